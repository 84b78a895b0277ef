"""DLA300 to DLA320: neighbours, loadables, memory, fallback and releases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layers import convolution, found, layer, relu, run, tensor, verdicts
from orinport.model.layer import Layer, LayerKind
from orinport.placement.place import place
from orinport.rules.finding import Verdict
from orinport.targets import load_target
from orinport.targets.target import Confidence, Precision


def shuffle(source: str, result: str, *, reshape: bool = True) -> Layer:
    return layer(
        LayerKind.SHUFFLE,
        (tensor(source, (1, 64, 56, 56)),),
        (tensor(result, (1, 64, 28, 112) if reshape else (1, 64, 56, 56)),),
        first_transpose=None,
        reshape=(1, 64, 28, 112) if reshape else None,
        second_transpose=None if reshape else (0, 1, 3, 2),
    )


def concatenation(first: str, second: str, result: str) -> Layer:
    flat = (1, 64, 28, 112)
    return layer(
        LayerKind.CONCATENATION,
        (tensor(first, flat), tensor(second, flat)),
        (tensor(result, (1, 128, 28, 112)),),
        axis=1,
    )


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        ("orin-agx-64gb/jp5.1", Verdict.GPU),
        ("orin-agx-64gb/jp6.0", Verdict.GPU),
        ("orin-agx-64gb/jp6.2", Verdict.UNKNOWN),
        ("orin-agx-64gb/jp7.2", Verdict.UNKNOWN),
        ("xavier-agx/jp5.1", None),
    ],
)
def test_reshape_beside_a_concatenation(target: str, verdict: Verdict | None) -> None:
    report = run([shuffle("x", "a"), shuffle("w", "b"), concatenation("a", "b", "y")], target=target)
    findings = found(report, "DLA300")
    assert [finding.verdict for finding in findings] == ([verdict] if verdict else [])
    if verdict:
        assert findings[0].layer == "y"
        assert "'a'" in findings[0].message
        assert verdicts(report)[2] is verdict


def test_reshape_behind_a_concatenation() -> None:
    joined = layer(
        LayerKind.CONCATENATION,
        (tensor("x", (1, 32, 56, 56)), tensor("w", (1, 32, 56, 56))),
        (tensor("a", (1, 64, 56, 56)),),
        axis=1,
    )
    assert found(run([joined, shuffle("a", "y")]), "DLA300")


def test_a_layer_between_is_enough_and_a_transpose_is_no_reshape() -> None:
    apart = [
        shuffle("x", "a"),
        layer(
            LayerKind.ACTIVATION,
            (tensor("a", (1, 64, 28, 112)),),
            (tensor("b", (1, 64, 28, 112)),),
            type="RELU",
            alpha=0.0,
            beta=0.0,
        ),
        concatenation("b", "w", "y"),
    ]
    assert not found(run(apart), "DLA300")
    transposed = [shuffle("x", "a", reshape=False), concatenation("a", "w", "y")]
    assert not found(run(transposed), "DLA300")


def test_a_reshape_on_the_gpu_is_no_neighbour() -> None:
    flat = layer(
        LayerKind.SHUFFLE,
        (tensor("x", (1, 64, 56, 56, 1, 1)),),
        (tensor("a", (1, 64, 28, 112)),),
        first_transpose=None,
        reshape=(1, 64, 28, 112),
        second_transpose=None,
    )
    report = run([flat, concatenation("a", "w", "y")])
    assert verdicts(report)[0] is not Verdict.DLA
    assert not found(report, "DLA300")


def windows() -> list[Layer]:
    """A convolution on one image, a reshape into windows that runs elsewhere, a convolution on the windows."""
    return [
        convolution("x", "a"),
        layer(
            LayerKind.PLUGIN,
            ("a",),
            (tensor("b", (64, 64, 7, 7)),),
            op_type="Windows",
            domain="test",
        ),
        convolution(tensor("b", (64, 64, 7, 7)), tensor("y", (64, 64, 7, 7))),
    ]


@pytest.mark.parametrize(
    ("target", "confidence"),
    [
        ("orin-agx-64gb/jp5.1", None),
        ("orin-agx-64gb/jp6.2", Confidence.INFERRED),
        ("orin-agx-64gb/jp7.2", Confidence.DOCUMENTED),
    ],
)
def test_batch_sizes(target: str, confidence: Confidence | None) -> None:
    findings = found(run(windows(), target=target), "DLA301")
    assert [finding.confidence for finding in findings] == ([confidence] if confidence else [])
    if confidence:
        assert (findings[0].value, findings[0].limit, findings[0].verdict) == (2, 1, None)
        assert "1 (1), 64 (1)" in findings[0].message


def test_one_batch_size() -> None:
    assert not found(run([convolution("x", "y"), relu("y", "z")]), "DLA301")


def blocks(number: int) -> list[Layer]:
    """`number` loadables with a plugin between each two."""
    layers, source = [], "x"
    for block in range(number):
        layers.append(convolution(source, f"c{block}"))
        source = f"c{block}"
        if block < number - 1:
            layers.append(layer(LayerKind.PLUGIN, (source,), (f"p{block}",), op_type="P", domain="test"))
            source = f"p{block}"
    return layers


@pytest.mark.parametrize(("number", "noted", "conflict"), [(1, 0, False), (2, 1, False), (4, 1, False), (5, 1, True)])
def test_several_loadables(number: int, noted: int, conflict: bool) -> None:
    findings = found(run(blocks(number)), "DLA302")
    assert len(findings) == noted
    if noted:
        assert (findings[0].value, findings[0].limit, findings[0].verdict) == (number, 16, None)
        assert ("CF02" in findings[0].rows) is conflict


@pytest.mark.parametrize(("number", "refused"), [(16, []), (17, ["c16"]), (18, ["c16", "c17"])])
@pytest.mark.parametrize("target", ["xavier-agx/jp5.1", "orin-agx-64gb/jp6.2"])
def test_loadables_beyond_the_limit(number: int, refused: list[str], target: str) -> None:
    report = run(blocks(number), target=target)
    moved = [finding for finding in found(report, "DLA302") if finding.layer]
    assert [finding.layer for finding in moved] == refused
    assert all(finding.verdict is Verdict.GPU and finding.limit == 16 for finding in moved)
    assert verdicts(report).count(Verdict.DLA) == min(number, 16)


WEIGHTS = 512 * 2**20


@pytest.mark.parametrize(
    ("values", "precision", "over"),
    [
        (WEIGHTS // 2 - 1, "fp16", False),
        (WEIGHTS // 2, "fp16", True),
        (WEIGHTS - 1, "int8", False),
        (WEIGHTS, "int8", True),
    ],
)
def test_weights(values: int, precision: str, over: bool) -> None:
    network = [convolution("x", "y", weight_values=values - 1), convolution("y", "z", weight_values=1)]
    findings = found(run(network, precision=precision), "DLA303")
    assert bool(findings) is over
    if over:
        assert findings[0].value == WEIGHTS
        assert findings[0].verdict is Verdict.UNKNOWN
    blocked = found(run(network, precision=precision, gpu_fallback=False), "DLA303")
    assert [finding.verdict for finding in blocked] == ([Verdict.BLOCKED] if over else [])


def test_weights_of_two_loadables_are_counted_apart() -> None:
    heavy = [
        replace(one, attributes={**one.attributes, "weight_values": WEIGHTS // 3})
        if one.kind is LayerKind.CONVOLUTION
        else one
        for one in blocks(2)
    ]
    assert not found(run(heavy), "DLA303")


@pytest.mark.parametrize(("rows", "over"), [(8191, False), (8192, True)])
def test_inner_tensors(rows: int, over: bool) -> None:
    """8192 x 8192 x 8 channels in FP16 are 1 GiB."""
    shape = (1, 8, rows, 8192)
    network = [
        layer(LayerKind.ACTIVATION, (tensor("x", shape),), (tensor("y", shape),), type="RELU", alpha=0.0, beta=0.0),
        layer(LayerKind.ACTIVATION, (tensor("y", shape),), (tensor("z", shape),), type="RELU", alpha=0.0, beta=0.0),
    ]
    findings = found(run(network), "DLA304")
    assert bool(findings) is over
    if over:
        assert findings[0].value == findings[0].limit == 2**30
    assert not found(run(network, precision="int8"), "DLA304")


def test_fallback_off_names_the_layers() -> None:
    network = [convolution("x", "a"), *[layer(LayerKind.GATHER, ("a",), (f"g{n}",), mode="DEFAULT") for n in range(5)]]
    (finding,) = found(run(network, gpu_fallback=False), "DLA310")
    assert finding.value == 5
    assert "'g0', 'g1', 'g2' and 2 more" in finding.message
    assert finding.rows == ("W01", "G10")
    (alone,) = found(run(network, standalone=True), "DLA310")
    assert alone.rows == ("W01", "J03")
    assert not found(run(network[:1], gpu_fallback=False), "DLA310")


def pair() -> list[Layer]:
    return [convolution("x", "y"), convolution("u", "v")]


def heads(number: int) -> list[Layer]:
    """`number` convolutions that read what one GPU layer gives, and one behind another GPU layer."""
    fork = layer(LayerKind.PLUGIN, ("x",), ("p",), op_type="P", domain="test")
    readers = [convolution("p", f"h{head}") for head in range(number)]
    again = layer(LayerKind.PLUGIN, ("h0",), ("q",), op_type="P", domain="test")
    return [fork, *readers, again, convolution("q", "last")]


def test_layers_that_share_only_an_input_may_be_one_loadable() -> None:
    report = run(heads(3))
    (note,) = found(report, "DLA302")
    assert "form 2 to 4 loadables" in note.message
    assert "OP53" in note.rows
    beyond = [each for each in found(run(heads(17)), "DLA302") if each.layer]
    assert [(each.layer, each.verdict) for each in beyond] == [("h16", Verdict.UNKNOWN), ("last", Verdict.UNKNOWN)]


def test_placement_counts_the_loadables_that_rules_count() -> None:
    for network in (heads(3), blocks(5), pair(), windows()):
        report = run(network)
        target = load_target("orin-agx-64gb/jp6.2")
        numbered = [replace(each, index=index) for index, each in enumerate(network)]
        placement = place(numbered, report.verdicts, inputs=(), outputs=(), target=target, precision=Precision.FP16)
        counted = [finding.value for finding in found(report, "DLA302") if not finding.layer]
        assert counted == ([placement.loadables] if placement.loadables > 1 else [])


@pytest.mark.parametrize(
    ("target", "blocked"), [("orin-agx-64gb/jp5.1", False), ("orin-agx-64gb/jp6.0", True), ("xavier-agx/jp5.1", False)]
)
def test_standalone_is_one_graph(target: str, blocked: bool) -> None:
    findings = found(run(pair(), target=target, standalone=True), "DLA311")
    assert bool(findings) is blocked
    if blocked:
        assert (findings[0].value, findings[0].limit, findings[0].verdict) == (2, 1, Verdict.UNKNOWN)
        assert "'v'" in findings[0].message
        assert "OP53" in findings[0].rows


def test_standalone_parts_of_different_batch_are_two_graphs_for_certain() -> None:
    batched = layer(
        LayerKind.ACTIVATION,
        (tensor("u", (4, 8, 8, 8)),),
        (tensor("v", (4, 8, 8, 8)),),
        type="RELU",
        alpha=0.0,
        beta=0.0,
    )
    findings = found(run([convolution("x", "y"), batched], standalone=True), "DLA311")
    assert [finding.verdict for finding in findings] == [Verdict.BLOCKED]


def test_one_graph_or_no_standalone_is_fine() -> None:
    assert not found(run(pair()), "DLA311")
    assert not found(run([convolution("x", "y"), relu("y", "z")], standalone=True), "DLA311")


@pytest.mark.parametrize(
    ("target", "noted"),
    [("orin-agx-64gb/jp6.2", False), ("orin-agx-64gb/jp7.2", True), ("drive-orin/drive-6.0.9", False)],
)
def test_the_dispute_about_releases(target: str, noted: bool) -> None:
    findings = found(run(convolution("x", "y"), target=target), "DLA320")
    assert bool(findings) is noted
    if noted:
        assert findings[0].verdict is None
        assert "10.7" in findings[0].message
        assert "JetPack 7.2 carries 10.16.2" in findings[0].message
