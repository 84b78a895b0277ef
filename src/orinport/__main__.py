"""`python -m orinport`."""

from orinport.cli import entry

if __name__ == "__main__":
    entry()
