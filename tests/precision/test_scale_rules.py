"""The DLA's own rules on scales: what follows, what is tied, what is missing, and the pages on it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orinport
from builders import light_path, network, node, small_cnn
from orinport.api import check_model
from orinport.model.layer import LayerKind
from orinport.model.load import load
from orinport.model.lower import lower
from orinport.precision import findings, pages
from orinport.precision.cache import parse_json
from orinport.precision.complete import complete, constant_scales, cut_constants
from orinport.precision.coverage import check_scales, coverage
from orinport.precision.scales import Origin, Scale, Scales
from orinport.precision.ties import Ties, tie, tied_tensors
from orinport.quantization import Int8Options, finish
from orinport.rules.pages import SECTIONS
from orinport.targets.target import Precision
from values import target

JP60 = target("8.6.2", "jp6.0")


def given_scales(**values: float) -> Scales:
    return Scales({name: Scale(value, Origin.FILE) for name, value in values.items()})


def layers_of(proto: object) -> tuple:
    return tuple(layer for layer in lower(load(proto), tensorrt=JP60.stack.tensorrt) if not layer.folds)


# ------------------------------------------------------------------------------------------------- ties


def pools_and_sums() -> object:
    nodes = [
        node("MaxPool", ["x"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["x"], "q", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["p", "q"], "k", axis=1),
        node("Relu", ["k"], "r"),
        node("Add", ["r", "u"], "s"),
        node("Mul", ["s", "v"], "m"),
        node("Mul", ["m", "c"], "y"),
    ]
    inputs = {"x": (1, 4, 8, 8), "u": (1, 8, 4, 4), "v": (1, 8, 4, 4)}
    return network(nodes, inputs, ["y"], {"c": np.ones((1, 8, 1, 1), np.float32)})


def test_ties_join_across_layers_and_take_the_widest() -> None:
    layers = layers_of(pools_and_sums())
    scales = given_scales(x=0.1, p=0.2, q=0.05, k=0.4, r=0.01, u=0.02, s=0.3, m=1.0, v=2.0, y=1.5)
    tied = tie(scales, layers, JP60)
    assert {tied[name].value for name in "xpqk"} == {float(np.float32(0.4))}
    assert {tied[name].value for name in "ru"} == {float(np.float32(0.02))}
    assert {tied[name].value for name in "sv"} == {2.0}
    assert tied["m"].value == 1.0, "the other operand is constant"
    assert tied["x"].origin is Origin.TIED
    assert tied["k"].origin is Origin.FILE
    assert {f.nodes[0] for f in tied.findings} == {"MaxPool_p", "AveragePool_q", "Add_s", "Mul_m"}
    assert {f.code for f in tied.findings} == {"Q005", "Q013"}


def test_ties_may_leave_products_or_everything_alone() -> None:
    layers = layers_of(pools_and_sums())
    scales = given_scales(x=0.1, p=0.2, q=0.05, k=0.4, r=0.01, u=0.02, s=0.3, m=1.0, v=2.0, y=1.5)
    kept = tie(scales, layers, JP60, Ties.EXCEPT_PRODUCTS)
    assert kept["s"].value == scales["s"].value
    assert kept["r"].value == scales["u"].value
    assert tie(scales, layers, JP60, Ties.NONE).tensors == scales.tensors


def test_products_whose_ties_cost_much_are_told_with_what_else_there_is() -> None:
    layers = layers_of(pools_and_sums())
    scales = given_scales(x=0.1, p=0.1, q=0.1, k=0.1, r=0.1, u=0.1, s=0.02, m=1.0, v=2.0, y=1.5)
    tied = tie(scales, layers, JP60)
    (finding,) = (each for each in tied.findings if each.code == "Q013")
    assert finding.value == pytest.approx(100)
    assert "'s' a factor of 100 (1 of 127 steps left)" in finding.message
    assert "--ties except-products" in finding.help
    assert "'Mul_m'" in finding.help
    assert tied.findings[0] is finding, "it comes before the many that say what each tie costs"
    for ties in (Ties.EXCEPT_PRODUCTS, Ties.NONE):
        assert "Q013" not in {each.code for each in tie(scales, layers, JP60, ties).findings}


@pytest.mark.parametrize(("scale", "told"), [(0.51, False), (0.5, True)])
def test_products_are_told_from_a_quarter_of_the_resolution_on(scale: float, told: bool) -> None:
    layers = layers_of(pools_and_sums())
    scales = given_scales(x=0.1, p=0.1, q=0.1, k=0.1, r=0.1, u=0.1, s=scale, m=1.0, v=2.0, y=1.5)
    assert ("Q013" in {each.code for each in tie(scales, layers, JP60).findings}) is told


def test_concatenations_are_tied_from_the_version_that_says_so() -> None:
    layers = [layer for layer in layers_of(pools_and_sums()) if layer.kind.value == "CONCATENATION"]
    scales = given_scales(p=0.2, q=0.05, k=0.4)
    assert tie(scales, layers, target("8.4.1", "jp5.1"))["p"].value == scales["k"].value
    assert tie(scales, layers, target("8.2.1", "jp5.1"))["p"].value == scales["p"].value


def test_a_tensor_of_zeros_follows_and_the_mark_stays() -> None:
    layers = layers_of(pools_and_sums())
    scales = Scales({**given_scales(r=0.001).tensors, "u": Scale.of_range(1.0, Origin.FREE)})
    assert tie(scales, layers, JP60)["u"].value == float(np.float32(0.001))
    marked = Scales({**given_scales(r=0.001).tensors, "u": Scale(1.0, Origin.FUSED)})
    assert tie(marked, layers, JP60).tensors == marked.tensors


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("xpqkrusvmy"), st.floats(2.0**-20, 2.0**20, width=32)))
def test_tied_scales_are_equal_and_never_smaller(values: dict[str, float]) -> None:
    layers = layers_of(pools_and_sums())
    scales = given_scales(**values)
    tied = tie(scales, layers, JP60)
    for layer in layers:
        assert len({tied[t.name].value for t in tied_tensors(layer) if t.name in tied}) <= 1
    assert all(tied[name].value >= scales[name].value for name in values)
    assert tie(tied, layers, JP60).tensors == tied.tensors
    assert set(tied.tensors) == set(values)


# --------------------------------------------------------------------------------------------- complete


def test_calibrated_sigmoid_has_the_scale_of_one() -> None:
    layers = layers_of(network([node("Sigmoid", ["x"], "y"), node("Relu", ["y"], "z")], {"x": (1, 4, 8, 8)}, ["z"]))
    data = Scales({"y": Scale(0.001, Origin.DATA)})
    assert complete(data, layers, {"z"})["y"].value == float(np.float32(1) / np.float32(127))
    own = Scales({"y": Scale(0.001, Origin.QDQ)})
    assert complete(own, layers, {"z"})["y"].value == own["y"].value


def test_a_clip_bounds_what_comes_out() -> None:
    proto = network(
        [node("Clip", ["x", "lo", "hi"], "c"), node("MaxPool", ["c"], "y", kernel_shape=[2, 2])],
        {"x": (1, 4, 8, 8)},
        ["y"],
        {"lo": np.float32(0), "hi": np.float32(6)},
    )
    scales = complete(given_scales(x=1.0), layers_of(proto), {"y"})
    assert scales["c"].value == float(np.float32(6) / np.float32(127))
    assert "y" not in scales
    backward = complete(given_scales(c=0.01), layers_of(proto), {"y"})
    assert backward["x"].value == float(np.float32(0.01))


@pytest.mark.parametrize("inputs", [["x", "", "hi"], ["x", "lo", ""]])
def test_a_clip_with_one_bound_has_scales_throughout(inputs: list[str]) -> None:
    """TensorRT's parser makes two layers of it, a tensor between them, the largest number as the other bound."""
    nodes = [node("Clip", inputs, "c"), node("Conv", ["c", "w"], "y")]
    weights = {"lo": np.float32(-0.5), "hi": np.float32(2), "w": np.ones((4, 4, 3, 3), np.float32)}
    data = {"x": (1, 4, 8, 8)}
    given = json.dumps({"tensors": {"x": 0.05, "c": 0.03, "y": 0.2}}).encode()
    proto = network(nodes, data, ["y"], {name: each for name, each in weights.items() if name in (*inputs, "w")})
    report = finish(parse_json(given), load(proto), check_model(load(proto), JP60, Precision.INT8), Int8Options())
    assert report.coverage.complete
    pair = [layer for layer in layers_of(proto) if layer.kind is LayerKind.ELEMENTWISE]
    assert [layer["op"] for layer in pair] == ["MAX", "MIN"]
    assert report.scales[pair[0].outputs[0].name].value == report.scales["c"].value
    bounds = [tensor.name for layer in pair for tensor in layer.inputs if tensor.constant]
    own = 0.5 if "lo" in inputs else 2.0
    assert sorted(report.scales[name].range for name in bounds) == pytest.approx(sorted([own, 0.03 * 127]))


@pytest.mark.parametrize(("second", "cut"), [("Min", True), ("Add", False)])
def test_a_bound_is_cut_to_the_widest_range_it_bounds_unless_it_is_added(second: str, cut: bool) -> None:
    proto = network(
        [node("Min", ["x", "hi"], "a"), node(second, ["u", "hi"], "b")],
        {"x": (1, 4, 8, 8), "u": (1, 4, 8, 8)},
        ["a", "b"],
        {"hi": np.full((1, 1, 1, 1), 100, np.float32)},
    )
    layers = layers_of(proto)
    bound = next(tensor.name for tensor in layers[0].inputs if tensor.constant)
    known = given_scales(a=0.1, b=0.2).merged({bound: Scale.of_range(100.0, Origin.CONSTANT)})
    assert cut_constants(known, layers)[bound].value == pytest.approx(0.2 if cut else 100 / 127)


def test_the_smaller_of_two_tensors_hands_no_scale_back() -> None:
    data = {"x": (1, 4, 8, 8), "u": (1, 4, 8, 8)}
    layers = layers_of(network([node("Min", ["x", "u"], "y")], data, ["y"]))
    assert set(complete(given_scales(y=0.1), layers, {"y"}).tensors) == {"y"}


@pytest.mark.parametrize("op_type", ["Sigmoid", "Exp", "Tanh", "Sqrt", "AveragePool"])
def test_nothing_goes_backward_through_operators_that_change_values(op_type: str) -> None:
    more = {"kernel_shape": [2, 2]} if op_type == "AveragePool" else {}
    proto = network([node(op_type, ["x"], "m", **more), node("Relu", ["m"], "y")], {"x": (1, 4, 8, 8)}, ["y"])
    assert "x" not in complete(given_scales(m=0.5), layers_of(proto), {"y"})


def test_constants_have_the_scale_of_their_values() -> None:
    model = load(
        network(
            [node("Add", ["x", "c"], "a"), node("Mul", ["a", "z"], "y")],
            {"x": (1, 4, 8, 8)},
            ["y"],
            {"c": np.array([0.5, -2.0, 1.0, 0.25], np.float32).reshape(1, 4, 1, 1), "z": np.float32(0)},
        )
    )
    layers = lower(model, tensorrt=JP60.stack.tensorrt)
    scales = constant_scales(model, layers)
    read = [t.name for layer in layers if not layer.folds for t in layer.inputs if t.constant]
    assert sorted(scales) == sorted(read)
    assert {(each.origin, each.range) for each in scales.values()} == {(Origin.CONSTANT, 2.0), (Origin.FREE, 1.0)}


# --------------------------------------------------------------------------------------------- coverage


def test_every_tensor_of_every_region_is_looked_at() -> None:
    model = load(small_cnn())
    report = check_model(model, JP60, Precision.INT8)
    regions = [region.layers for region in report.placement.regions if region.device == "dla"]
    assert regions
    wanted = {(i, t.name) for i, r in enumerate(regions) for layer in r for t in (*layer.inputs, *layer.outputs)}
    nothing = coverage(Scales({}), regions)
    assert {(row.region, row.tensor.name) for row in nothing.tensors} == wanted
    assert len(nothing.fp16_layers) == sum(map(len, regions)) == len(nothing.findings)
    assert {f.code for f in nothing.findings} == {"Q001"}
    assert not nothing.complete
    names = {name for _, name in wanted}
    full = coverage(given_scales(**dict.fromkeys(names, 0.1)), regions)
    assert full.complete
    assert not full.findings
    for name in sorted(names):
        gap = coverage(given_scales(**dict.fromkeys(names - {name}, 0.1)), regions)
        assert not gap.complete
        assert all(repr(name) in f.message for f in gap.findings)


def test_a_users_scales_are_held_against_the_network() -> None:
    layers = layers_of(small_cnn())
    found = check_scales(given_scales(r1=0.01, p1=5000.0, c1=1e6, nothing=1.0, g1=1e-12), layers)
    assert [f.code for f in found if "nothing" in f.message] == ["Q006"]
    absurd = {f.message.split("'")[1] for f in found if f.code == "Q007"}
    assert absurd == {"c1", "g1", "p1", "r1"}
    taken = layers[0].inputs[0].name
    assert [(f.code, taken in f.message) for f in check_scales(given_scales(**{taken: 1e30}), layers)] == [
        ("Q007", True)
    ]
    assert not check_scales(given_scales(r1=0.01, p1=0.02, c1=0.05), layers)


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "inception_v1", "shufflenet"])
def test_light_networks_are_covered(name: str, tmp_path: object) -> None:
    path = light_path(name)
    shape = load(path).inputs[0].shape
    assert shape is not None
    data = f"{tmp_path}/d.npy"
    np.save(data, np.random.default_rng(0).standard_normal((2, *shape[1:])).astype(np.float32))
    report = orinport.quantize(path, data=data, target=JP60)
    assert report.coverage.tensors
    assert report.coverage.complete or all(f.code == "Q001" for f in report.coverage.findings)
    gaps = {row.tensor.name for row in report.coverage.tensors if row.scale is None}
    told = " ".join(f.message for f in report.coverage.findings)
    assert len(gaps) <= 2
    assert all(repr(gap) in told for gap in gaps)


# ------------------------------------------------------------------------------------------------ pages


def test_every_code_has_a_page() -> None:
    source = (findings.__file__ or "").replace(".pyc", ".py")
    with open(source, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    used = {part[:4] for part in text.split('"') if len(part) == 4 and part.startswith("Q") and part[1:].isdigit()}
    assert used == set(pages.titles())
    for code in used:
        page = pages.page(code)
        assert [section for section in SECTIONS if f"## {section}" not in page] == []
    assert pages.page("Q999") == ""
