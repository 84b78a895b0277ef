"""Advice on speed: one module each, holding one instance `ADVICE`.

A module's docstring is its documentation page, with the same sections as a rule's. Modules are found by
looking into this folder, so adding advice is adding a file.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.predict.advise import Advice

__all__ = ["all_advice"]


@cache
def all_advice() -> tuple[Advice, ...]:
    """All advice in the order of the codes."""
    found: dict[str, Advice] = {}
    for module in iter_modules(__path__):
        advice: Advice = import_module(f"{__name__}.{module.name}").ADVICE
        assert advice.code not in found, f"two pieces of advice have the code {advice.code}"
        found[advice.code] = advice
    return tuple(found[code] for code in sorted(found))
