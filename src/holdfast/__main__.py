"""`python -m holdfast` is the same program as the `holdfast` script."""

import sys

from holdfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
