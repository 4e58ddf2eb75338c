"""The version, as a constant, so that saying it costs nothing."""

__version__ = "0.1.0"
