"""Do the steps that weights are quantised with fit the weights?

Both questions are asked of the floats before quantisation: what is left behind a scale that is far too small fits that
scale, so it says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orinport.precision.scales import LEVELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LostWeights", "coarse", "saturated"]

_BEYOND = 0.01 * LEVELS
"""Steps beyond the last one from which on weights saturate for want of range; max |w| / 128 is another convention."""
_COARSE = 4
"""Steps so many times max |w| / 127 of what they are used for take two of the eight bits."""


@dataclass(frozen=True, slots=True)
class LostWeights:
    """Weights that their own scales do not fit."""

    name: str
    lost: int
    """Elements that saturate, or that become zero."""
    elements: int
    largest: float
    """The largest element that saturates, or the largest magnitude that the worst scale is used for."""
    kept: float
    """What that element is cut to, or the step of that scale."""


def saturated(
    name: str, values: NDArray[np.float64], steps: NDArray[np.float64], low: NDArray[np.float64]
) -> LostWeights | None:
    """Elements outside of `low` ... `low + 255 * steps`, which broadcast against `values`; None if they all fit."""
    high = low + 255 * steps
    beyond = np.maximum(values - high, low - values) / steps
    if not (beyond > _BEYOND).any():
        return None
    out = beyond > 0.5
    worst = int(np.argmax(np.where(out, np.abs(values), 0)))
    kept = np.clip(values, low, high).flat[worst]
    return LostWeights(name, int(out.sum()), values.size, float(values.flat[worst]), float(kept))


def coarse(name: str, values: NDArray[np.float64], steps: NDArray[np.float64]) -> LostWeights | None:
    """Elements that become zero by steps, one an axis or one for all, that are far too large; None if none is."""
    others = tuple(axis for axis, length in enumerate(steps.shape) if length == 1)
    largest = np.abs(values).max(axis=others, keepdims=True)
    factor = LEVELS * steps / np.where(largest > 0, largest, np.inf)
    if not (factor >= _COARSE).any():
        return None
    zeros = (factor >= _COARSE) & (values != 0) & (np.abs(values) < steps / 2)
    worst = int(np.nanargmax(factor))
    return LostWeights(
        name,
        int(zeros.sum()),
        values.size,
        float(largest.flat[worst]),
        float(np.broadcast_to(steps, largest.shape).flat[worst]),
    )
