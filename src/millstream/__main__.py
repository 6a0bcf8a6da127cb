"""`python -m millstream` is the same as the `millstream` command."""

import sys

from millstream.cli.main import main

sys.exit(main())
