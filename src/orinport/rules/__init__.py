"""Rules: which layers the DLA takes on a target, and why it refuses the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.rules.engine import RuleReport, check_layers
    from orinport.rules.pages import explain, titles

__all__ = ["RuleReport", "check_layers", "explain", "titles"]

_HOMES = {
    "RuleReport": "orinport.rules.engine",
    "check_layers": "orinport.rules.engine",
    "explain": "orinport.rules.pages",
    "titles": "orinport.rules.pages",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
