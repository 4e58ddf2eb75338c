"""The version, as a constant, so that saying it costs nothing."""

from __future__ import annotations

__version__ = "0.1.0"
