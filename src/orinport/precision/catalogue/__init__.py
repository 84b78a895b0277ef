"""One module a code on scales: its docstring is the page that `explain` prints."""
