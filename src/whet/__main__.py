"""`python -m whet`: the same as the `whet` command."""

from __future__ import annotations

import sys

from whet.cli.main import main

sys.exit(main())
