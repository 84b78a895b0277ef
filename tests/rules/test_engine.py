"""The engine: verdicts, their order, constants, fallback, selection and speed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from layers import chain, convolution, found, layer, relu, run, tensor, verdicts
from orinport.model.layer import DType, Layer, LayerKind
from orinport.rules import check_layers, engine
from orinport.rules.catalogue import rules
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule, NetworkRule
from orinport.targets import load_target
from orinport.targets.target import Precision

PLUGIN = {"op_type": "DCNv4_Plugin", "domain": "custom_op"}


def plugin(source: str, result: str) -> Layer:
    return layer(LayerKind.PLUGIN, (source,), (result,), **PLUGIN)


def test_rules_are_found_in_order_of_their_codes() -> None:
    codes = [rule.code for rule in rules()]
    assert codes == sorted(codes)
    assert len(codes) == len(set(codes))
    assert {"DLA090", "DLA099", "DLA302"} <= set(codes)
    assert all(isinstance(rule, (LayerRule, NetworkRule)) for rule in rules())


def test_a_taken_network_is_dla() -> None:
    report = run([convolution("x", "y"), relu("y", "z")])
    assert verdicts(report) == [Verdict.DLA, Verdict.DLA]
    assert not [finding for finding in report.findings if finding.verdict]


def test_the_gravest_finding_decides() -> None:
    """A shape that is not known is `unknown`; a refusal on the same layer weighs more, a blocked layer most."""
    unknown = run(relu(tensor("x", None), tensor("y", None)))
    assert verdicts(unknown) == [Verdict.UNKNOWN]
    refused = run(plugin("x", "y"))
    assert verdicts(refused) == [Verdict.GPU]
    both = run(layer(LayerKind.PLUGIN, (tensor("x", None),), ("y",), **PLUGIN))
    assert {finding.verdict for finding in both.findings} >= {Verdict.UNKNOWN, Verdict.GPU}
    assert verdicts(both) == [Verdict.GPU]
    blocked = run(
        layer(LayerKind.UNSUPPORTED, (tensor("x", None),), ("y",), op_type="Foo", domain="bar", reason="not known")
    )
    assert verdicts(blocked) == [Verdict.BLOCKED]


def test_a_kind_on_which_no_rule_speaks_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Today every kind has a rule; the net is for kinds that a newer TensorRT adds."""
    assert not found(run(relu()), "DLA099")
    monkeypatch.setattr(engine, "_covered", lambda: frozenset({LayerKind.CONVOLUTION}))
    report = run([convolution("x", "y"), relu("y", "z")])
    assert verdicts(report) == [Verdict.DLA, Verdict.UNKNOWN]
    (finding,) = found(report, "DLA099")
    assert finding.value == "ACTIVATION"


def test_a_constant_follows_its_readers() -> None:
    one = tensor("one", (1, 64, 1, 1), constant=True)
    constant = layer(LayerKind.CONSTANT, (), (one,), values=64, scalar=1.0)
    report = run([constant, layer(LayerKind.ELEMENTWISE, ("x", one), ("y",), op="SUM")])
    assert verdicts(report) == [Verdict.DLA, Verdict.DLA]
    report = run([constant, layer(LayerKind.PLUGIN, ("x", one), ("y",), **PLUGIN)])
    assert verdicts(report) == [Verdict.GPU, Verdict.GPU]


def test_a_constant_without_readers_stays() -> None:
    one = tensor("one", (1, 64, 1, 1), constant=True)
    constant = layer(LayerKind.CONSTANT, (), (one,), values=64, scalar=1.0)
    assert verdicts(run([constant, relu("x", "y")], outputs=["y"])) == [Verdict.DLA, Verdict.DLA]


@pytest.mark.parametrize("options", [{"gpu_fallback": False}, {"standalone": True}])
def test_without_fallback_a_refused_layer_blocks(options: dict[str, bool]) -> None:
    network = [convolution("x", "y"), layer(LayerKind.GATHER, ("y",), ("z",), mode="DEFAULT", axis=1)]
    with_fallback = run(network)
    assert verdicts(with_fallback) == [Verdict.DLA, Verdict.GPU]
    assert not found(with_fallback, "DLA310")
    without = run(network, **options)
    assert verdicts(without) == [Verdict.DLA, Verdict.BLOCKED]
    (summary,) = found(without, "DLA310")
    assert summary.layer == ""
    assert summary.verdict is Verdict.BLOCKED
    assert "1 of 2 layers" in summary.message
    assert "'z'" in summary.message
    assert all(finding.verdict is not Verdict.GPU for finding in without.findings)


def test_notes_leave_verdicts_alone() -> None:
    report = run(convolution("x", "y"), precision="int8")
    (note,) = found(report, "DLA204")
    assert note.verdict is None
    assert verdicts(report) == [Verdict.DLA]


def test_selection_filters_findings_and_never_verdicts() -> None:
    network = [plugin("x", "y"), layer(LayerKind.GATHER, ("y",), ("z",), mode="DEFAULT", axis=1)]
    everything = run(network)
    assert {"DLA090", "DLA015"} <= {finding.code for finding in everything.findings}
    selected = run(network, select=["dla09"])
    assert {finding.code for finding in selected.findings} == {"DLA090"}
    ignored = run(network, ignore=["DLA09"])
    assert not found(ignored, "DLA090")
    assert found(ignored, "DLA015")
    assert run(network, select=["DLA0"], ignore=["DLA015"]).findings == found(everything, "DLA090")
    assert selected.verdicts == ignored.verdicts == everything.verdicts
    assert selected.codes == {0: ("DLA090",)}


def test_codes_by_layer_are_sorted_and_each_once() -> None:
    twice = layer(LayerKind.GATHER, (tensor("x", dtype=DType.INT64),), (tensor("y", (1, 9000, 1, 1)),), mode="DEFAULT")
    report = run(twice)
    assert report.codes[0] == tuple(sorted(set(report.codes[0])))
    assert {"DLA015", "DLA101", "DLA104"} <= set(report.codes[0])


def test_an_empty_network_has_no_findings() -> None:
    assert run([]).findings == ()
    assert run([], standalone=True, precision="int8").findings == ()


@pytest.mark.parametrize(
    "target",
    [
        "xavier-agx/jp5.1",
        "orin-agx-64gb/jp5.1",
        "orin-agx-64gb/jp6.0",
        "orin-agx-64gb/jp6.2",
        "orin-agx-64gb/jp7.2",
        "orin-agx-64gb/jp7.2.2",
        "drive-orin/drive-6.0.9",
    ],
)
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_every_finding_is_complete(target: str, precision: str) -> None:
    """Whatever speaks, on every target: a sentence, help, a source, a known code."""
    sixteen = DType.FP16 if "7.2.2" in target else DType.FP32
    x, y, z = (tensor(name, dtype=sixteen) for name in "xyz")
    network = [
        layer(LayerKind.CONVOLUTION, (x,), (y,), kernel=(33, 3), stride=(9, 1), dilation=(1, 1), pre_padding=(40, 1),
              post_padding=(1, 1), groups=1, output_maps=64, has_bias=True, constant_kernel=True, weight_values=1),
        layer(LayerKind.QUANTIZE, (y,), (z,), axis=None, zero_point=True, to="uint8"),
        layer(LayerKind.PLUGIN, (z,), ("w",), **PLUGIN),
    ]  # fmt: skip
    report = run(network, target=target, precision=precision)
    assert report.findings
    known = {rule.code for rule in rules()}
    for finding in report.findings:
        assert finding.code in known
        assert not finding.message[0].islower()
        assert finding.message.endswith(".")
        assert finding.help
        assert finding.help.endswith(".")
        assert finding.source


def test_layer_order_and_index_may_differ() -> None:
    """Verdicts go by `Layer.index`, whatever the position."""
    first, second = chain(convolution("x", "y"), plugin("y", "z"))
    moved = (replace(first, index=7), replace(second, index=3))
    report = check_layers(
        moved,
        inputs=[tensor("x")],
        outputs=[tensor("z")],
        target=load_target("orin-agx-64gb"),
        precision=Precision.FP16,
    )
    assert report.verdicts == {7: Verdict.DLA, 3: Verdict.GPU}


def test_twenty_thousand_layers_are_quick() -> None:
    """0.35 s is the aim; this bound is for loaded machines."""
    layers = []
    source = "x"
    for block in range(5000):
        names = [f"{part}{block}" for part in "cras"]
        layers += [
            convolution(source, names[0]),
            relu(names[0], names[1]),
            layer(LayerKind.ELEMENTWISE, (names[1], source), (names[2],), op="SUM"),
            layer(LayerKind.ACTIVATION, (names[2],), (names[3],), type="SIGMOID", alpha=0.0, beta=0.0),
        ]
        source = names[3]
    network = chain(*layers)
    run(network[:8])
    best = min(_timed(network) for _ in range(3))
    assert best < 1.5


def _timed(network: tuple[Layer, ...]) -> float:
    target = load_target("orin-agx-64gb/jp6.0")
    start = time.process_time()
    report = check_layers(
        network, inputs=[tensor("x")], outputs=list(network[-1].outputs), target=target, precision=Precision.INT8
    )
    assert all(verdict is Verdict.DLA for verdict in report.verdicts.values())
    return time.process_time() - start


def test_what_folds_into_a_constant_is_no_layer_of_its_own() -> None:
    """The reshape of a constant to a rank that no rule would take, and its reader."""
    flat, wide = tensor("flat", (64,), constant=True), tensor("wide", (1, 64, 1, 1), constant=True)
    network = [
        layer(LayerKind.CONSTANT, (), (flat,), values=64, scalar=None),
        layer(LayerKind.SHUFFLE, (flat,), (wide,), first_transpose=None, reshape=(1, 64, 1, 1), second_transpose=None),
        layer(LayerKind.ELEMENTWISE, ("x", wide), ("y",), op="SUM"),
    ]
    report = run(network)
    assert verdicts(report) == [Verdict.DLA] * 3
    assert not [finding for finding in report.findings if finding.layer == "wide"]
    assert not found(report, "DLA302")
    refused = run([*network[:2], layer(LayerKind.PLUGIN, ("x", wide), ("y",), **PLUGIN)])
    assert verdicts(refused) == [Verdict.GPU] * 3


def test_a_verdict_of_one_network_rule_is_seen_by_the_next() -> None:
    """The concatenation that a reshape beside it keeps off the DLA cuts the network in two."""
    flat = (1, 64, 28, 112)

    def reshape(source: str, result: str) -> Layer:
        return layer(
            LayerKind.SHUFFLE, (source,), (tensor(result, flat),),
            first_transpose=None, reshape=flat, second_transpose=None,
        )  # fmt: skip

    network = [
        reshape("x", "a"),
        layer(
            LayerKind.CONCATENATION, (tensor("a", flat), tensor("w", flat)), (tensor("b", (1, 128, 28, 112)),), axis=1
        ),
        layer(
            LayerKind.ACTIVATION, (tensor("b", (1, 128, 28, 112)),), (tensor("y", (1, 128, 28, 112)),),
            type="RELU", alpha=0.0, beta=0.0,
        ),
    ]  # fmt: skip
    report = run(network)
    assert verdicts(report) == [Verdict.DLA, Verdict.GPU, Verdict.DLA]
    assert [finding.value for finding in found(report, "DLA302")] == [2]
