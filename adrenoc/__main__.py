"""`python -m adrenoc`."""

import sys

from adrenoc.cli.main import main

sys.exit(main())
