"""`python -m whet`: the same as the `whet` command."""

import sys

from whet.cli.main import main

sys.exit(main())
