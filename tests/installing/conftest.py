"""Every test here may use what was built once, and a browser."""

import sys
from pathlib import Path

# The browser of the tests of the service.
sys.path.append(str(Path(__file__).resolve().parents[1] / "server"))

from browsing import browser
from building import built

__all__ = ["browser", "built"]
