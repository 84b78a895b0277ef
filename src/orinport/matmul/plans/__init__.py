"""Families of plans: one module each, holding one instance `PLAN`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.matmul.plan import PlanKind

__all__ = ["all_plans"]


@cache
def all_plans() -> tuple[PlanKind, ...]:
    """All families, in the order of their modules' names."""
    return tuple(
        import_module(f"{__name__}.{module.name}").PLAN
        for module in iter_modules(__path__)
        if not module.name.startswith("_")
    )
