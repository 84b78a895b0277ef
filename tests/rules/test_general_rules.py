"""DLA090 to DLA105: plugins, the parser, batch, dimensions, rank, shapes and types, at the limit and one past it."""

from __future__ import annotations

import pytest

from layers import convolution, found, layer, relu, run, tensor, verdicts
from orinport.model.layer import DType, LayerKind
from orinport.rules.finding import Verdict
from orinport.targets.target import Confidence


def test_plugin_goes_to_the_gpu() -> None:
    plugin = layer(LayerKind.PLUGIN, op_type="DCNv4_Plugin", domain="custom_op")
    (finding,) = found(run(plugin), "DLA090")
    assert finding.verdict is Verdict.GPU
    assert finding.rows == ("G20b",)
    assert "'DCNv4_Plugin'" in finding.message
    assert not found(run(relu()), "DLA090")


def test_plugin_blocks_a_standalone_loadable() -> None:
    plugin = layer(LayerKind.PLUGIN, op_type="DCNv4_Plugin", domain="custom_op")
    (finding,) = found(run(plugin, standalone=True), "DLA090")
    assert finding.verdict is Verdict.BLOCKED
    assert finding.rows == ("G20a",)
    assert finding.confidence is Confidence.DOCUMENTED


def test_what_the_parser_does_not_take_blocks() -> None:
    foreign = layer(LayerKind.UNSUPPORTED, op_type="Foo", domain="ai.example", reason="no such operator.")
    report = run(foreign)
    (finding,) = found(report, "DLA091")
    assert finding.message == "TensorRT 8.6.2 cannot parse ai.example::Foo: no such operator."
    assert verdicts(report) == [Verdict.BLOCKED]
    assert not found(run(relu()), "DLA091")


def test_an_operator_that_only_an_unknown_shape_stops_is_unknown() -> None:
    attributes = {"op_type": "AffineGrid", "domain": "", "reason": "its size is not known", "certain": False}
    report = run(layer(LayerKind.UNSUPPORTED, **attributes))
    (finding,) = found(report, "DLA091")
    assert finding.verdict is Verdict.UNKNOWN
    assert "may not be able" in finding.message


@pytest.mark.parametrize(
    ("shape", "batch"),
    [
        ((4096, 1, 1, 1), None),
        ((4097, 1, 1, 1), 4097),
        ((64, 64, 8, 8, 8), None),
        ((64, 65, 8, 8, 8), 4160),
        ((4097, 8, 8), None),  # the last three are no batch
        ((4097,), None),
    ],
)
@pytest.mark.parametrize("target", ["xavier-agx/jp5.1", "orin-agx-64gb/jp6.2"])
def test_batch(shape: tuple[int, ...], batch: int | None, target: str) -> None:
    report = run(relu(tensor("x", shape), tensor("y", shape)), target=target)
    findings = found(report, "DLA100")
    if batch is None:
        assert not findings
        return
    (finding,) = findings
    assert (finding.value, finding.limit) == (batch, 4096)
    assert f"has batch {batch}" in finding.message
    assert finding.verdict is Verdict.GPU


def test_batch_of_constants_is_none() -> None:
    table = tensor("table", (5000, 1, 1, 1), constant=True)
    assert not found(run(layer(LayerKind.ELEMENTWISE, ("x", table), op="SUM")), "DLA100")


@pytest.mark.parametrize(
    ("shape", "worst"),
    [
        ((1, 8192, 8192, 8192), None),
        ((1, 8193, 1, 1), 8193),
        ((1, 1, 8193, 1), 8193),
        ((1, 1, 1, 8193), 8193),
        ((9000, 1, 1, 1), None),
        ((8193,), 8193),
        ((1, 0, 1, 1), 0),
    ],
)
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_dimensions(shape: tuple[int, ...], worst: int | None, precision: str) -> None:
    findings = found(run(relu(tensor("x", shape), tensor("y", shape)), precision=precision), "DLA101")
    if worst is None:
        assert not findings
        return
    (finding,) = findings
    assert finding.value == worst
    assert finding.limit == (8192 if worst else 1)
    assert str(worst) in finding.message


@pytest.mark.parametrize(("rank", "refused"), [(1, True), (2, True), (3, False), (4, False), (5, True), (6, True)])
def test_rank(rank: int, refused: bool) -> None:
    shape = (1,) * (rank - 1) + (8,)
    softmax = layer(LayerKind.SOFTMAX, (tensor("x", shape),), (tensor("y", shape),), axis=rank - 1)
    findings = found(run(softmax), "DLA102")
    assert bool(findings) is refused
    if refused:
        assert (findings[0].value, findings[0].limit) == (rank, 4)
        assert findings[0].confidence is Confidence.OBSERVED


def test_shapes_that_are_not_known() -> None:
    report = run(relu(tensor("x", None), tensor("y", None)))
    (finding,) = found(report, "DLA103")
    assert finding.verdict is Verdict.UNKNOWN
    assert not found(run(relu()), "DLA103")


@pytest.mark.parametrize(
    ("dtype", "row"), [(DType.INT32, "G21b"), (DType.INT64, "G21b"), (DType.BOOL, "G21a"), (DType.FP16, "")]
)
def test_integers(dtype: DType, row: str) -> None:
    findings = found(run(relu(tensor("x", dtype=dtype), tensor("y", dtype=dtype))), "DLA104")
    assert [finding.rows for finding in findings] == ([(row,)] if row else [])
    assert all(finding.verdict is Verdict.GPU for finding in findings)


def test_integer_constants_are_no_matter() -> None:
    indices = tensor("indices", (3,), DType.INT64, constant=True)
    gather = layer(LayerKind.GATHER, ("x", indices), mode="DEFAULT", axis=1)
    assert not found(run(gather), "DLA104")


def comparison(*, readers: int = 1, cast: bool = True) -> list:
    truth = tensor("truth", dtype=DType.BOOL)
    layers = [layer(LayerKind.ELEMENTWISE, ("x", "w"), (truth,), op="EQUAL")]
    for number in range(readers):
        if cast:
            layers.append(layer(LayerKind.CAST, (truth,), (tensor(f"y{number}", dtype=DType.FP16),), to="fp16"))
        else:
            layers.append(layer(LayerKind.SELECT, (truth, "x", "w"), (f"y{number}",)))
    return layers


def test_the_boolean_between_comparison_and_cast_is_allowed() -> None:
    assert not found(run(comparison(), precision="int8"), "DLA104")


@pytest.mark.parametrize("options", [{"readers": 2}, {"cast": False}])
def test_any_other_boolean_is_not(options: dict) -> None:
    assert found(run(comparison(**options), precision="int8"), "DLA104")


def test_a_boolean_that_leaves_the_network_is_not() -> None:
    report = run(comparison(), precision="int8", outputs=["truth", "y0"])
    assert {finding.layer for finding in found(report, "DLA104")} == {"truth", "y0"}


@pytest.mark.parametrize(
    ("dtype", "verdict"),
    [
        (DType.BF16, Verdict.GPU),
        (DType.FP8, Verdict.GPU),
        (DType.FP4, Verdict.GPU),
        (DType.INT16, Verdict.GPU),
        (DType.STRING, Verdict.GPU),
        (DType.UINT8, Verdict.GPU),
        (DType.UNKNOWN, Verdict.UNKNOWN),
        (DType.FP32, None),
        (DType.FP64, None),
        (DType.FP16, None),
        (DType.INT8, None),
    ],
)
def test_types(dtype: DType, verdict: Verdict | None) -> None:
    findings = found(run(convolution(tensor("x", dtype=dtype), tensor("y", dtype=dtype))), "DLA105")
    assert [finding.verdict for finding in findings] == ([verdict] if verdict else [])
