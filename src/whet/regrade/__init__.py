"""Regrading: a suite's checks as they are now, applied to what an earlier run recorded."""
