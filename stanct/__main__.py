"""`python -m stanct` is the `stanct` command."""

import sys

from stanct.cli import main

sys.exit(main())
