"""pad-value-to-concat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import network, node
from orinport.checking import as_precision, as_target, check_model
from orinport.model.load import load
from orinport.pipeline import rewrite_for
from orinport.rewrites.catalogue.pad_value_to_concat import REWRITE
from orinport.rewrites.rewrite import Safety
from rewrites.harness import SEEDS, Draw, Pattern, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


def generate(draw: Draw) -> Pattern:
    shape = draw.shape(4, 1, 5)
    opset = draw.opset()
    added = [0 if axis == 0 else draw.choose([0, 0, 1, 2]) for axis in (0, 1, 2, 3)] + [
        0 if axis == 0 else draw.choose([0, 0, 1, 3]) for axis in (0, 1, 2, 3)
    ]
    number = draw.choose([0.0, 1.0, -7.5, 0.1, -np.inf, 65000.0])
    if opset < 11:
        nodes = [node("Pad", ["x"], "y", pads=added, value=number)]
        return Pattern(nodes, {"x": shape}, ["y"], {}, opset, applies=any(added))
    constants: dict[str, np.ndarray] = {"p": np.asarray(added)}
    names = ["x", "p"]
    if draw.chance(0.8):
        constants["v"] = np.asarray(number, draw.dtype)
        names.append("v")
    if opset >= 18 and draw.chance(0.5):
        constants |= {"p": np.asarray([*added[1:4], *added[5:]]), "axes": np.asarray([1, -2, 3])}
        names += [""] * (3 - len(names)) + ["axes"]
    nodes = [node("Pad", names, "y")]
    if draw.chance(0.3):
        nodes.append(node("Pad", names, "z"))
    outputs = [each.output[0] for each in nodes]
    return Pattern(nodes, {"x": shape}, outputs, constants, opset, applies=any(added))


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def padded(pads: list[int], value: float, *behind: Any, **constants: np.ndarray) -> Any:
    nodes = [node("Relu", ["x"], "a"), node("Pad", ["a", "p", "v"], "b"), *behind]
    given: dict[str, np.ndarray] = {"p": np.asarray(pads), "v": np.asarray(value, np.float32), **constants}
    return network(nodes, {"x": (1, 8, 6, 6)}, [behind[-1].output[0]], given, opset=13)


SIDES = [0, 0, 1, 2, 0, 0, 1, 0]


@pytest.mark.parametrize("target", ["orin-agx-64gb/jp6.0", "orin-agx-64gb/jp6.2"])
@pytest.mark.parametrize(
    ("pads", "value"),
    [(SIDES, 1.0), ([0, 0, 0, 0, 0, 4, 0, 0], 0.0), (SIDES, 0.0)],
    ids=["ones", "channels of zeros", "zeros"],
)
def test_takes_it_to_the_dla(target: str, pads: list[int], value: float) -> None:
    board, precision = as_target(target), as_precision("fp16")
    model = load(padded(pads, value, node("Sigmoid", ["b"], "y")))
    assert not check_model(model, board, precision).all_dla
    result, log, _ = rewrite_for(model, board, precision)
    assert log.counts()["pad-value-to-concat"] == 1
    assert check_model(result, board, precision).all_dla


@pytest.mark.parametrize("consent", [[Safety.EXACT], [Safety.EXACT, Safety.TOLERANCE]], ids=["exact", "tolerance"])
def test_zeros_in_front_of_a_convolution_become_its_padding(consent: list[Safety]) -> None:
    weights = np.full((4, 8, 3, 3), 0.1, np.float32)
    model = load(padded([0, 0, 1, 1, 0, 0, 1, 1], 0.0, node("Conv", ["b", "w"], "y"), w=weights))
    _, log, _ = rewrite_for(model, as_target("orin-agx-64gb/jp6.0"), as_precision("fp16"), consent=consent)
    assert log.counts() == {"fuse-pad": 1}


def test_refused() -> None:
    samples = padded([1, 0, 0, 0, 0, 0, 0, 0], 1.0, node("Relu", ["b"], "y"))
    check_refused(samples, REWRITE, "pads the batch")
    away = padded([0, 0, -1, 0, 0, 0, 0, 0], 1.0, node("Relu", ["b"], "y"))
    check_refused(away, REWRITE, "takes rows or columns away")
    flat = network([node("Pad", ["x", "p"], "y")], {"x": (2, 3)}, ["y"], {"p": np.asarray([0, 1, 0, 0])}, opset=13)
    check_refused(flat, REWRITE, "rank 4")
    run_time = network(
        [node("Pad", ["x", "p", "v"], "y")],
        {"x": (1, 2, 3, 3), "v": ()},
        ["y"],
        {"p": np.asarray([0, 1, 0, 0, 0, 0, 0, 0])},
        opset=13,
    )
    check_refused(run_time, REWRITE, "run time")
