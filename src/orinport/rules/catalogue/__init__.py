"""The rules: one module each, holding one instance `RULE`.

A module's docstring is the rule's documentation page, its sections in this order: What it checks, Why it
matters, Example, What to do, Fix safety, Source. Modules are found by looking into this folder, so adding a
rule is adding a file. Modules that begin with _ are helpers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.rules.rule import Rule

__all__ = ["rules"]


@cache
def rules() -> tuple[Rule, ...]:
    """All rules in the order of their codes."""
    found: dict[str, Rule] = {}
    for module in iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        rule: Rule = import_module(f"{__name__}.{module.name}").RULE
        assert rule.code not in found, f"two rules have the code {rule.code}"
        found[rule.code] = rule
    return tuple(found[code] for code in sorted(found))
