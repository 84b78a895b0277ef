"""The board: bundles that it builds and runs, and what its programs print, reported back."""
