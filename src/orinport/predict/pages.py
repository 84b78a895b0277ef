"""What a PERF code means: pages and titles, like those of rules."""

from __future__ import annotations

import sys
from inspect import cleandoc

from orinport.predict.advice import all_advice

__all__ = ["page", "titles"]


def titles() -> dict[str, str]:
    """Every code and its title."""
    return {advice.code: advice.title for advice in all_advice()}


def page(code: str) -> str:
    """The page of a code as Markdown, empty if there is none such."""
    for advice in all_advice():
        if advice.code == code:
            documentation = cleandoc(sys.modules[type(advice).__module__].__doc__ or "")
            return f"# {advice.code}: {advice.title}\n\n{documentation}\n"
    return ""
