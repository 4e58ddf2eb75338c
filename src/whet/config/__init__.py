"""Settings: what `whet.toml`, the environment and flags say, checked, merged, and each value with its origin."""

from whet.config.describe import describe, entries
from whet.config.load import BUILT_IN, load_settings
from whet.config.settings import SandboxName, Settings

__all__ = ["BUILT_IN", "SandboxName", "Settings", "describe", "entries", "load_settings"]
