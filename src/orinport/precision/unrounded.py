"""`unrounded`: the constants of a network from before they were written in INT8 or FP16.

A network that was quantised or converted holds what rounding left of its weights. Where the network that it was made
from is at hand, the same node there has the weights themselves. They are told apart from other weights by how far
they are away: half a step of INT8 (largest magnitude / 127) and a rounding of FP16 (2**-11 of the value) at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.model.model import display_name
from orinport.precision.qdq import channel_axis
from orinport.precision.scales import LEVELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.model.model import Model

__all__ = ["Unrounded", "unrounded"]

_HALF = 2.0**-10
"""A rounding to FP16, of the weights and of their step."""
_SMALLEST_HALF = 2.0**-24
_STEPS = 0.51
"""Half a step, and what rounding the step itself adds."""


@dataclass(frozen=True, slots=True)
class Unrounded:
    """What the two networks have in common."""

    constants: dict[str, NDArray[Any]]
    """By the name in the rounded network."""
    others: tuple[str, ...]
    """Constants that are no rounding of what the same node has in the other network."""
    nodes: int
    """Nodes that both networks have."""


def unrounded(model: Model, original: Model) -> Unrounded:
    """The floating-point constants that nodes of `model` have in `original`, by node and position."""
    known = {display_name(node): node for node in original.graph}
    found: dict[str, NDArray[Any]] = {}
    others: dict[str, None] = {}
    nodes = 0
    for node in model.graph:
        same = known.get(display_name(node))
        if same is None or same.op_type != node.op_type:
            continue
        nodes += 1
        for position, (value, before) in enumerate(zip(node.inputs, same.inputs, strict=False)):
            array, exact = model.constant(value, limit=None), original.constant(before, limit=None)
            if value is None or array is None or exact is None or array.dtype.kind != "f" or exact.dtype.kind != "f":
                continue
            if array.shape != exact.shape:
                others[value.name or ""] = None
            elif not np.array_equal(array, exact):
                weights = position == 1 and channel_axis(node) is not None
                if _is_rounded(array, exact, weights=weights):
                    found[value.name or ""] = exact
                else:
                    others[value.name or ""] = None
    return Unrounded(found, tuple(others), nodes)


def _is_rounded(array: NDArray[Any], exact: NDArray[Any], *, weights: bool) -> bool:
    whole = exact.astype(np.float64)
    step = np.abs(whole).max(initial=0.0) / LEVELS if weights else 0.0
    with np.errstate(invalid="ignore"):
        gap = np.abs(array.astype(np.float64) - whole)
        near: bool = bool((gap <= _STEPS * step + _HALF * np.abs(whole) + _SMALLEST_HALF).all())
    return near
