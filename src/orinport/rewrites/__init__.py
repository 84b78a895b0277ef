"""Rewrites: what makes a network fit the DLA, each guarded, documented and proved."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.rewrites.context import CostLimit
    from orinport.rewrites.driver import all_rewrites, documentation, find_rewrite, rewrite_model
    from orinport.rewrites.edges import EdgeMapping, move_edges
    from orinport.rewrites.log import RewriteLog
    from orinport.rewrites.proof import compare_models
    from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

__all__ = [
    "CostLimit",
    "EdgeMapping",
    "Match",
    "Refusal",
    "Rewrite",
    "RewriteLog",
    "Safety",
    "all_rewrites",
    "compare_models",
    "documentation",
    "find_rewrite",
    "move_edges",
    "rewrite_model",
]

_HOME = {
    "CostLimit": "context",
    "EdgeMapping": "edges",
    "Match": "rewrite",
    "Refusal": "rewrite",
    "Rewrite": "rewrite",
    "RewriteLog": "log",
    "Safety": "rewrite",
    "all_rewrites": "driver",
    "compare_models": "proof",
    "documentation": "driver",
    "find_rewrite": "driver",
    "move_edges": "edges",
    "rewrite_model": "driver",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
