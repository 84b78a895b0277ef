"""`python -m orinport`."""

import sys

from orinport.cli import main

if __name__ == "__main__":
    sys.exit(main())
