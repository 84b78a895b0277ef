"""Constants in the smallest form that broadcasts to the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["shrink"]


def shrink(array: NDArray[Any]) -> NDArray[Any]:
    """`array` with every dimension along which nothing changes cut to 1; NaN counts as equal to NaN."""
    for axis in range(array.ndim):
        if array.shape[axis] == 1:
            continue
        first = array.take([0], axis=axis)
        same = (array == first) | ((array != array) & (first != first))
        if bool(np.all(same)):
            array = first
    return np.ascontiguousarray(array)
