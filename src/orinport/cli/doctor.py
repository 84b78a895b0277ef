"""`orinport doctor`."""

from __future__ import annotations

from orinport.cli.options import TextFormat

__all__ = ["doctor"]


def doctor(
    *,
    format: TextFormat = "text",
) -> int:
    """Say what this machine has for the DLA, what is missing, and what slows it, each with the step that helps.

    Exit status: 0 if nothing is missing or slow, 1 if something is.
    """
    import sys

    from orinport.cli.options import style
    from orinport.device.doctor import State, examine
    from orinport.report.json import SCHEMA_VERSION, dumps
    from orinport.report.style import clean

    items = examine()
    if format == "json":
        rows = [
            {"name": i.name, "state": i.state.value, "found": i.found, "help": i.help, "needed": i.needed}
            for i in items
        ]
        sys.stdout.write(dumps({"schema_version": SCHEMA_VERSION, "items": rows}))
    else:
        paint = style()
        colour = {State.GOOD: paint.good, State.SLOW: paint.warn, State.MISSING: paint.bad, State.UNKNOWN: paint.warn}
        for item in items:
            said = colour[item.state](item.state.value) if item.needed or item.state is State.GOOD else "not there"
            sys.stdout.write(f"{item.name}: {said}, {clean(item.found)}\n")
            if item.help and item.state is not State.GOOD:
                sys.stdout.write(f"  {item.help}\n")
    return 0 if all(item.state is State.GOOD or not item.needed for item in items) else 1
