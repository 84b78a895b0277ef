"""cumsum-to-conv: running sums over any axis, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.rewrites.catalogue.cumsum_to_conv import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    draw.dtype = np.float32  # ONNX Runtime sums no FP16
    shape = draw.shape(draw.integer(1, 5), 1, 7)
    axis = draw.integer(-len(shape), len(shape) - 1)
    constants = {"axis": np.asarray([axis] if draw.chance(0.3) else axis, np.int64)}
    call = node("CumSum", ["x", "axis"], "y", reverse=draw.integer(0, 1))
    return Pattern([call], {"x": shape}, ["y"], constants, draw.opset(11))


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def running(shape: tuple[int, ...], dtype: Any = np.float32, **attributes: Any) -> Any:
    call = node("CumSum", ["x", "axis"], "y", **attributes)
    return network([call], {"x": (shape, dtype)}, ["y"], {"axis": np.asarray(2, np.int64)})


def test_refusals() -> None:
    check_refused(running((1, 2, 8, 4), exclusive=1), REWRITE, "exclusive")
    check_refused(running((1, 2, 33, 4)), REWRITE, "33 elements")
    check_refused(running((1, 2, 8, 9000)), REWRITE, "8192")
    check_refused(running((1, 2, 8, 4), np.int32), REWRITE, "INT32")


def test_an_axis_at_run_time_is_refused() -> None:
    proto = network([node("CumSum", ["x", "a"], "y")], {"x": (2, 3), "a": ((), np.int64)}, ["y"])
    check_refused(proto, REWRITE, "run time")
