"""Rewrites: what makes a network fit the DLA, each guarded, documented and proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.lazy import lazily

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
    "CostLimit": "orinport.rewrites.context",
    "EdgeMapping": "orinport.rewrites.edges",
    "Match": "orinport.rewrites.rewrite",
    "Refusal": "orinport.rewrites.rewrite",
    "Rewrite": "orinport.rewrites.rewrite",
    "RewriteLog": "orinport.rewrites.log",
    "Safety": "orinport.rewrites.rewrite",
    "all_rewrites": "orinport.rewrites.driver",
    "compare_models": "orinport.rewrites.proof",
    "documentation": "orinport.rewrites.driver",
    "find_rewrite": "orinport.rewrites.driver",
    "move_edges": "orinport.rewrites.edges",
    "rewrite_model": "orinport.rewrites.driver",
}

__getattr__ = lazily(__name__, _HOME)
