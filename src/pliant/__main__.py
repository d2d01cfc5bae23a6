"""`python -m pliant` is the command `pliant`."""

import sys

from .cli import main

sys.exit(main())
