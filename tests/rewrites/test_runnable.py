"""What is changed for ONNX Runtime: padding that an average counts, put on apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders import network, node, random_feeds, run_onnx
from orinport.rewrites.runnable import counts_padding_wrong, with_padding_apart


def pool(opset: int, **attributes: Any) -> Any:
    nodes = [node("AveragePool", ["x"], "y", kernel_shape=[4, 3], strides=[2, 1], **attributes)]
    return network(nodes, {"x": (1, 2, 8, 9)}, ["y"], opset=opset)


@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [1, 0, 2, 1], [2, 1, 1, 0], [1, 1, 1, 1]])
def test_the_count_is_that_of_an_earlier_opset(pads: list[int]) -> None:
    given = pool(20, pads=pads, count_include_pad=1)
    changed = with_padding_apart(given)
    feeds = random_feeds(given)
    (want,), (have,) = run_onnx(pool(18, pads=pads, count_include_pad=1), feeds), run_onnx(changed, feeds)
    assert [each.op_type for each in changed.graph.node] == ["Pad", "AveragePool"]
    assert np.allclose(want, have, atol=1e-6)
    if not counts_padding_wrong():
        assert np.allclose(run_onnx(given, feeds)[0], have, atol=1e-6)


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [
        (18, {"pads": [1, 1, 1, 1], "count_include_pad": 1}),
        (20, {"pads": [1, 1, 1, 1]}),
        (20, {"count_include_pad": 1}),
        (20, {"pads": [1, 1, 1, 1], "count_include_pad": 1, "ceil_mode": 1}),
        (20, {"auto_pad": "SAME_UPPER", "count_include_pad": 1}),
    ],
)
def test_other_pools_stay(opset: int, attributes: dict[str, Any]) -> None:
    given = pool(opset, **attributes)
    assert with_padding_apart(given) is given
