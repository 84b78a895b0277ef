"""What a Q code means: pages and titles, like those of rules."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import cleandoc
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["page", "titles"]


@cache
def _modules() -> tuple[ModuleType, ...]:
    from orinport.precision import catalogue

    names = sorted(module.name for module in iter_modules(catalogue.__path__))
    return tuple(import_module(f"{catalogue.__name__}.{name}") for name in names)


def titles() -> dict[str, str]:
    """Every code and its title."""
    return {module.CODE: module.TITLE for module in _modules()}


def page(code: str) -> str:
    """The page of a code as Markdown, empty if there is none such."""
    for module in _modules():
        if code == module.CODE:
            return f"# {module.CODE}: {module.TITLE}\n\n{cleandoc(module.__doc__ or '')}\n"
    return ""
