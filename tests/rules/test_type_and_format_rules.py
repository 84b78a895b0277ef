"""DLA200 to DLA212: strong typing, quantisation and formats, per version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layers import chain, convolution, found, layer, relu, run, tensor, verdicts
from orinport.model.layer import DType, Layer, LayerKind
from orinport.rules import check_layers
from orinport.rules.catalogue.dla210_edge_formats import RULE as EDGE_FORMATS
from orinport.rules.finding import Verdict
from orinport.rules.rule import Context
from orinport.targets import load_target, rows_for
from orinport.targets.target import Confidence, Precision
from orinport.targets.version import Version

WEAK = ["xavier-agx/jp5.1", "orin-agx-64gb/jp5.1", "orin-agx-64gb/jp6.0", "orin-agx-64gb/jp6.2", "orin-agx-64gb/jp7.2"]
STRONG = "orin-agx-64gb/jp7.2.2"
IMAGE = tensor("x", (1, 3, 224, 224))


def half(name: str) -> tensor:
    return tensor(name, dtype=DType.FP16)


def test_fp32_in_a_strongly_typed_network() -> None:
    report = run(convolution("x", "y"), target=STRONG)
    (finding,) = found(report, "DLA200")
    assert finding.verdict is Verdict.GPU
    assert finding.rows == ("G01", "I10")
    assert "FP32" in finding.message
    assert "11.4.1" in finding.message


def test_fp16_in_a_strongly_typed_network() -> None:
    report = run(convolution(half("x"), half("y")), target=STRONG)
    assert not found(report, "DLA200")
    assert verdicts(report) == [Verdict.DLA]


@pytest.mark.parametrize("target", WEAK)
def test_fp32_is_no_matter_before(target: str) -> None:
    assert not found(run(convolution("x", "y"), target=target), "DLA200")


def quantised(*, zero_point: bool = False, to: str = "int8") -> list[Layer]:
    """Q, DQ and a convolution that reads them."""
    low = tensor("q", dtype=DType(to))
    return [
        layer(LayerKind.QUANTIZE, ("x",), (low,), axis=None, zero_point=zero_point, to=to),
        layer(LayerKind.DEQUANTIZE, (low,), ("d",), axis=None, zero_point=zero_point, to="fp32"),
        convolution("d", "y"),
    ]


@pytest.mark.parametrize(
    ("target", "verdict", "confidence"),
    [
        ("xavier-agx/jp5.1", Verdict.GPU, Confidence.DOCUMENTED),
        ("orin-agx-64gb/jp6.0", Verdict.GPU, Confidence.DOCUMENTED),
        ("orin-agx-64gb/jp6.2", Verdict.GPU, Confidence.DOCUMENTED),
        ("drive-orin/drive-6.0.9", Verdict.GPU, Confidence.DOCUMENTED),
        ("orin-agx-64gb/jp7.2", Verdict.UNKNOWN, Confidence.INFERRED),
        (STRONG, Verdict.UNKNOWN, Confidence.INFERRED),
    ],
)
def test_explicit_quantisation(target: str, verdict: Verdict, confidence: Confidence) -> None:
    report = run(quantised(), target=target, precision="int8")
    findings = found(report, "DLA201")
    assert [finding.layer for finding in findings] == ["q", "d"]
    assert {finding.verdict for finding in findings} == {verdict}
    assert {finding.confidence for finding in findings} == {confidence}
    (reader,) = found(report, "DLA203")
    assert reader.layer == "y"
    assert reader.verdict is verdict


def test_the_conflict_on_explicit_quantisation_is_told() -> None:
    (first, *_) = found(run(quantised(), target="orin-agx-64gb/jp7.2", precision="int8"), "DLA201")
    assert "documents differ" in first.message
    assert "CF03" in first.rows


def test_ten_ten_is_the_last_version_that_refuses() -> None:
    """The limit lies between 10.10 and 10.11."""
    known = load_target("orin-agx-64gb/jp6.2")
    for version, verdict in [("10.10.10", Verdict.GPU), ("10.11.0", Verdict.UNKNOWN)]:
        target = replace(known, stack=replace(known.stack, tensorrt=Version.parse(version)))
        report = check_layers(
            chain(*quantised()), inputs=[tensor("x")], outputs=[tensor("y")], target=target, precision=Precision.INT8
        )
        assert {finding.verdict for finding in found(report, "DLA201")} == {verdict}, version


def test_without_quantisers_nothing_is_said() -> None:
    report = run([convolution("x", "y"), relu("y", "z")], precision="int8")
    assert not found(report, "DLA201")
    assert not found(report, "DLA202")
    assert not found(report, "DLA203")


@pytest.mark.parametrize(("zero_point", "to"), [(True, "int8"), (False, "uint8")])
@pytest.mark.parametrize(
    ("target", "verdict"),
    [("orin-agx-64gb/jp6.2", Verdict.GPU), ("orin-agx-64gb/jp7.2", Verdict.UNKNOWN)],
)
def test_asymmetric_quantisation(zero_point: bool, to: str, target: str, verdict: Verdict) -> None:
    findings = found(run(quantised(zero_point=zero_point, to=to), target=target, precision="int8"), "DLA202")
    assert [finding.layer for finding in findings] == ["q", "d"]
    assert {finding.verdict for finding in findings} == {verdict}


@pytest.mark.parametrize(("dla", "verdict"), [("3.15.9", Verdict.GPU), ("3.16", None), ("3.17.1", None)])
def test_asymmetric_quantisation_by_dla_software(dla: str, verdict: Verdict | None) -> None:
    known = load_target("orin-agx-64gb/jp7.2")
    target = replace(known, stack=replace(known.stack, dla=Version.parse(dla)))
    report = check_layers(
        chain(*quantised(zero_point=True)),
        inputs=[tensor("x")],
        outputs=[tensor("y")],
        target=target,
        precision=Precision.INT8,
    )
    assert {finding.verdict for finding in found(report, "DLA202")} == {verdict}


def test_symmetric_quantisation_is_not_asymmetric() -> None:
    assert not found(run(quantised(), target="orin-agx-64gb/jp7.2", precision="int8"), "DLA202")


def test_implicit_int8_needs_scales() -> None:
    network = [convolution("x", "y"), relu("y", "z")]
    (note,) = found(run(network, precision="int8"), "DLA204")
    assert note.verdict is None
    assert note.value == 2
    assert not found(run(network, precision="fp16"), "DLA204")
    assert not found(run(quantised(), precision="int8"), "DLA204")


def test_int8_in_a_strongly_typed_network_is_not_documented() -> None:
    network = convolution(half("x"), half("y"))
    (finding,) = found(run(network, target=STRONG, precision="int8"), "DLA205")
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.rows == ("I13", "OP03")
    assert not found(run(network, target=STRONG, precision="fp16"), "DLA205")
    assert not found(run(network, target="orin-agx-64gb/jp7.2", precision="int8"), "DLA205")
    assert not found(run(network, target=STRONG, precision="int8"), "DLA204")


def test_inner_outputs() -> None:
    network = [convolution("x", "y"), relu("y", "z")]
    (note,) = found(run(network, precision="int8", outputs=["y", "z"]), "DLA206")
    assert (note.layer, note.value, note.verdict) == ("y", 1, None)
    assert not found(run(network, precision="int8", outputs=["z"]), "DLA206")
    assert not found(run(network, precision="fp16", outputs=["y", "z"]), "DLA206")


@pytest.mark.parametrize(("shape", "blocked"), [((1, 64), True), ((1, 64, 8), False), ((1, 64, 8, 8), False)])
@pytest.mark.parametrize("fallback", [True, False])
def test_edges_without_fallback(shape: tuple[int, ...], blocked: bool, fallback: bool) -> None:
    """DLA210 by itself, for a layer that is on the DLA: other rules refuse most layers on flat tensors already."""
    source, result = tensor("x", shape), tensor("y", shape)
    (one,) = chain(relu(source, result))
    target = load_target("orin-agx-64gb/jp6.2")
    context = Context(
        target=target,
        precision=Precision.FP16,
        standalone=False,
        gpu_fallback=fallback,
        rows=rows_for(target, Precision.FP16),
        producers={"y": one},
        consumers={"x": (one,)},
        inputs=frozenset({"x"}),
        outputs=frozenset({"y"}),
        verdicts={0: Verdict.DLA},
    )
    findings = tuple(EDGE_FORMATS.check([one], context))
    assert [finding.value for finding in findings] == ([2, 2] if blocked and not fallback else [])
    assert all(finding.verdict is Verdict.BLOCKED for finding in findings)


@pytest.mark.parametrize(
    ("channels", "groups", "noted"), [(3, 1, False), (4, 4, False), (3, 3, False), (4, 5, True), (5, 5, False)]
)
def test_image_input_of_a_convolution(channels: int, groups: int, noted: bool) -> None:
    image = tensor("x", (1, channels, 224, 224))
    findings = found(run(convolution(image, "y", groups=groups)), "DLA211")
    assert bool(findings) is noted
    if noted:
        assert (findings[0].value, findings[0].limit) == (groups, 4)
        assert findings[0].verdict is None


@pytest.mark.parametrize(("precision", "vector"), [("fp16", 16), ("int8", 32)])
def test_image_input_of_another_layer(precision: str, vector: int) -> None:
    (note,) = found(run(relu(IMAGE, tensor("y", IMAGE.shape)), precision=precision), "DLA211")
    assert f"padded to {vector}" in note.message


@pytest.mark.parametrize(
    ("target", "noted"),
    [("orin-agx-64gb/jp5.1", True), ("xavier-agx/jp5.1", True), ("orin-agx-64gb/jp6.0", False)],
)
def test_standalone_formats(target: str, noted: bool) -> None:
    network = convolution(IMAGE, "y")
    findings = found(run(network, target=target, standalone=True), "DLA212")
    assert bool(findings) is noted
    if noted:
        assert findings[0].rows == ("J04b",)
        assert "chw16" in findings[0].message
    assert not found(run(network, target=target), "DLA212")


def test_standalone_formats_speak_of_images_only() -> None:
    assert not found(run(convolution("x", "y"), target="orin-agx-64gb/jp5.1", standalone=True), "DLA212")
