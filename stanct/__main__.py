"""`python -m stanct` is the `stanct` command."""

import sys

from stanct.cli.main import main

sys.exit(main())
