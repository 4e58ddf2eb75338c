"""Settings: what `whet.toml`, the environment and flags say, checked, merged, and each value with its origin."""

from whet.config.describe import describe, entries
from whet.config.load import load_settings
from whet.config.settings import SandboxName, Settings

__all__ = ["SandboxName", "Settings", "describe", "entries", "load_settings"]
