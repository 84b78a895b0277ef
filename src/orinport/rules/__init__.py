"""Rules: which layers the DLA takes on a target, and why it refuses the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.lazy import lazily

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

__getattr__ = lazily(__name__, _HOMES)
