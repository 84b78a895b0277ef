"""`unrounded`: the constants of a network from before they were written in INT8 or FP16.

A network that was quantised or converted holds what rounding left of its weights. Where the network that it was made
from is at hand, the same node there has the weights themselves. They are told apart from other weights by how far
they are away: half a step of INT8, as the network states it, and a rounding of FP16 (2**-11 of the value) at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.model.model import display_name

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def unrounded(model: Model, original: Model, steps: Mapping[str, NDArray[np.float32]]) -> Unrounded:
    """The floating-point constants that nodes of `model` have in `original`, by node and position.

    `steps` are those of constants in INT8, by name, in a shape that broadcasts against them.
    """
    known = {display_name(node): node for node in original.graph}
    found: dict[str, NDArray[Any]] = {}
    others: dict[str, None] = {}
    nodes = 0
    for node in model.graph:
        same = known.get(display_name(node))
        if same is None or same.op_type != node.op_type:
            continue
        nodes += 1
        for value, before in zip(node.inputs, same.inputs, strict=False):
            array, exact = model.constant(value, limit=None), original.constant(before, limit=None)
            if value is None or array is None or exact is None or array.dtype.kind != "f" or exact.dtype.kind != "f":
                continue
            if array.shape != exact.shape:
                others[value.name or ""] = None
            elif not np.array_equal(array, exact):
                if _is_rounded(array, exact, steps.get(value.name or "", np.float32(0))):
                    found[value.name or ""] = exact
                else:
                    others[value.name or ""] = None
    return Unrounded(found, tuple(others), nodes)


def _is_rounded(array: NDArray[Any], exact: NDArray[Any], step: NDArray[np.float32] | np.float32) -> bool:
    whole = exact.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(array.astype(np.float64) - whole)
        near: bool = bool((gap <= _STEPS * step + _HALF * np.abs(whole) + _SMALLEST_HALF).all())
    return near
