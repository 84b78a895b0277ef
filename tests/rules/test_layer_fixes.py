"""Which findings offer which rewrite, and which do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orinport.model.layer import Layer, LayerKind
from rules.layer_builders import (
    IMAGE,
    concatenation,
    convolution,
    elementwise,
    findings,
    layer,
    pooling,
    reduction,
    scale,
    shuffle,
    slicing,
    softmax,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

JP60, JP62 = ("orin", "8.6.2"), ("orin", "10.3.0")
CHANNELS = (1, 64, 1, 1)


def fix(code: str, checked: Layer, *where: str, **more: Any) -> str | None:
    """The rewrite that the one finding offers."""
    (found,) = findings(code, checked, *where, **more)
    return found.fix.rewrite if found.fix is not None else None


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("DLA135", {"pre_padding": (1, 1), "post_padding": (1, 1)}),
        ("DLA136", {"groups": 64}),
        ("DLA137", {"dilation": (2, 2)}),
    ],
)
def test_deconvolution_is_made_plain_where_its_kernel_is_constant(code: str, changes: dict[str, Any]) -> None:
    constant = convolution(deconvolution=True, **changes)
    runtime = convolution(deconvolution=True, constant_kernel=False, **changes)
    assert fix(code, constant, *JP60) == "conv-transpose-to-unpadded"
    assert fix(code, runtime, *JP60) is None


@pytest.mark.parametrize(
    ("code", "shape", "changes", "expected"),
    [
        ("DLA123", (1, 3, 224, 224), {"kernel": (16, 16), "stride": (16, 16)}, "conv-stride-to-channels"),
        ("DLA127", (1, 1024, 80, 160), {}, "split-conv-channels"),
        ("DLA127", (1, 512, 80, 400), {"groups": 512}, "split-conv-channels"),
    ],
)
def test_convolutions_are_taken_apart_where_their_kernel_is_constant(
    code: str, shape: tuple[int, ...], changes: dict[str, Any], expected: str
) -> None:
    assert fix(code, convolution(shape, **changes), *JP60) == expected
    assert fix(code, convolution(shape, constant_kernel=False, **changes), *JP60) is None


@pytest.mark.parametrize(
    ("code", "changes"), [("DLA140", {"window": (13, 13)}), ("DLA141", {"pre_padding": (8, 8), "post_padding": (8, 8)})]
)
def test_large_pools_are_split(code: str, changes: dict[str, Any]) -> None:
    assert fix(code, pooling(type="MAX", **changes), *JP60) == "split-max-pool"
    assert fix(code, pooling(type="AVERAGE", **changes), *JP60) == "split-average-pool"
    assert fix(code, pooling(type="MAX_AVERAGE_BLEND", **changes), *JP60) is None


def test_unpadded_exclusive_averages_are_set_to_count_on_xavier() -> None:
    checked = pooling(type="AVERAGE", exclusive=True)
    assert fix("DLA143", checked, "xavier", "8.5.2") == "average-pool-to-inclusive"


def per_channel(op: str = "DIV", shape: tuple[int, ...] = CHANNELS, *, first: bool = False) -> Layer:
    """An element-wise layer that reads the output of `convolution()` and a constant."""
    operands = [tensor("y"), tensor("c", shape, constant=True)]
    return elementwise(op, *(reversed(operands) if first else operands), name="z", index=1)


class TestFusionIntoAConvolution:
    @pytest.mark.parametrize("shape", [CHANNELS, (64, 1, 1), (1, 1, 1, 1), ()])
    def test_a_constant_per_channel_fuses(self, shape: tuple[int, ...]) -> None:
        checked = per_channel(shape=shape)
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked)) == "fuse-scale-into-conv"

    @pytest.mark.parametrize("shape", [(1, 64, 56, 56), (1, 1, 56, 56), (1, 64, 1, 56)])
    def test_a_constant_per_position_does_not(self, shape: tuple[int, ...]) -> None:
        checked = per_channel(shape=shape)
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked)) == "div-to-mul"

    def test_a_constant_dividend_does_not(self) -> None:
        checked = per_channel(first=True)
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked)) is None

    def test_another_operation_does_not(self) -> None:
        checked = per_channel("POW")
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked)) is None
        checked = per_channel("POW", shape=())
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked)) == "pow-to-mul"

    def test_a_second_reader_of_the_convolution_forbids_it(self) -> None:
        checked = per_channel()
        other = elementwise("SUM", tensor("y"), tensor("q"), name="r", index=2)
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked, other)) == "div-to-mul"

    def test_a_network_output_in_between_forbids_it(self) -> None:
        checked = per_channel()
        assert fix("DLA021", checked, *JP60, layers=(convolution(), checked), outputs=("y",)) == "div-to-mul"

    def test_another_layer_before_forbids_it(self) -> None:
        checked = per_channel()
        assert fix("DLA021", checked, *JP60, layers=(pooling(), checked)) == "div-to-mul"

    def test_a_kernel_from_another_layer_forbids_it(self) -> None:
        checked = per_channel()
        assert fix("DLA021", checked, *JP60, layers=(convolution(constant_kernel=False), checked)) == "div-to-mul"

    def test_scale_constant_and_division_offer_it_too(self) -> None:
        behind = Layer(1, "s", LayerKind.SCALE, (tensor("y"),), (tensor("z"),), ("n",), scale().attributes)
        assert fix("DLA030", behind, *JP60, layers=(convolution(), behind)) == "fuse-scale-into-conv"
        assert fix("DLA030", scale(), *JP60) is None
        values = layer(LayerKind.CONSTANT, (), (tensor("c", CHANNELS, constant=True),), index=2, values=64, scalar=None)
        reader = per_channel("SUM")
        assert fix("DLA033", values, *JP62, layers=(values, convolution(), reader)) == "fuse-scale-into-conv"
        assert fix("DLA033", values, *JP62, layers=(values, pooling(), reader)) is None
        assert fix("DLA033", values, *JP62, layers=(values,)) is None
        division = per_channel("DIV")
        assert fix("DLA163", division, *JP62, layers=(convolution(), division)) == "fuse-scale-into-conv"


def renamed(checked: Layer, index: int, reads: str, gives: str, nodes: Sequence[str]) -> Layer:
    """The same layer elsewhere in a network."""
    return Layer(
        index,
        f"layer{index}",
        checked.kind,
        (tensor(reads, checked.inputs[0].shape), *checked.inputs[1:]),
        (tensor(gives, checked.outputs[0].shape),),
        tuple(nodes),
        checked.attributes,
    )


@pytest.mark.parametrize(("nodes", "expected"), [(("conv",), "windows-to-4d"), (("reshape",), None)])
def test_reshapes_that_the_parser_puts_around_a_1d_window(nodes: tuple[str, ...], expected: str | None) -> None:
    into = renamed(shuffle((1, 64, 400), (1, 64, 400, 1)), 0, "x", "a", nodes)
    window = renamed(convolution((1, 64, 400, 1), kernel=(5, 1)), 1, "a", "b", ("conv",))
    out = renamed(shuffle((1, 64, 396, 1), (1, 64, 396)), 2, "b", "c", nodes)
    network = (into, window, out)
    assert fix("DLA190", into, *JP62, layers=network) == expected
    assert fix("DLA190", out, *JP62, layers=network) == expected


@pytest.mark.parametrize(
    ("op", "axes", "expected"),
    [
        ("AVG", (2, 3), "reduce-to-pool"),
        ("AVG", (3,), "reduce-to-pool"),
        ("MAX", (2, 3), "reduce-to-pool"),
        ("AVG", (1,), "reduce-to-conv"),
        ("AVG", (0, 1, 2, 3), "reduce-to-conv"),
        ("SUM", (2, 3), "reduce-to-conv"),
        ("MAX", (1,), "reduce-max-to-pool"),
        ("MIN", (2, 3), "reduce-max-to-pool"),
        ("PROD", (2, 3), None),
    ],
)
def test_reductions_by_operation_and_axes(op: str, axes: tuple[int, ...], expected: str | None) -> None:
    assert fix("DLA024", reduction(op, axes), *JP60) == expected


def test_reductions_over_a_batch_or_of_an_unknown_shape_have_none() -> None:
    assert fix("DLA024", reduction("AVG", (0, 2, 3), shape=(2, 8, 4, 4)), *JP60) is None
    assert fix("DLA024", reduction("AVG", (2, 3), shape=None), *JP60) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 64, 56, 56), (1, 64, 1, 1), "broadcast-to-resize"),
        ((1, 1, 56, 56), (1, 64, 56, 56), "broadcast-to-resize"),
        ((2, 64, 56, 56), (1, 64, 1, 1), None),
        ((1, 64, 56, 56), (64, 1, 1), None),
    ],
)
def test_broadcast_is_written_out(first: tuple[int, ...], second: tuple[int, ...], expected: str | None) -> None:
    assert fix("DLA161", elementwise("PROD", tensor("a", first), tensor("b", second)), *JP60) == expected


def test_broadcast_of_a_power_is_not() -> None:
    assert fix("DLA161", elementwise("POW", tensor("a"), tensor("b", CHANNELS)), *JP62) is None


class TestPadding:
    def network(self, kind: str = "conv", fill: float = 0.0, nodes: tuple[str, ...] = ("pad",)) -> tuple[Layer, ...]:
        padded = slicing((0, 0, -1, -1), (1, 64, 58, 58), mode="FILL", fill=fill)
        pad = Layer(0, "pad", padded.kind, padded.inputs, (tensor("p", (1, 64, 58, 58)),), nodes, padded.attributes)
        reader = {"conv": convolution(), "pool": pooling(), "other": scale()}[kind]
        return pad, renamed(reader, 1, "p", "z", ("reader",))

    @pytest.mark.parametrize("kind", ["conv", "pool"])
    def test_zeros_move_into_convolutions_and_pools(self, kind: str) -> None:
        network = self.network(kind)
        assert fix("DLA184", network[0], *JP62, layers=network) == "fuse-pad"

    def test_other_readers_other_values_and_outputs_ask_for_constant_rows(self) -> None:
        for network in (self.network("other"), self.network(fill=1.0), self.network()[:1]):
            assert fix("DLA184", network[0], *JP62, layers=network) == "pad-value-to-concat"
        network = self.network()
        assert fix("DLA184", network[0], *JP62, layers=network, outputs=("p",)) == "pad-value-to-concat"

    @pytest.mark.parametrize(
        ("mode", "start", "size", "expected"),
        [
            ("REFLECT", (0, 0, -1, -1), (1, 64, 58, 58), "pad-to-concat"),
            ("CLAMP", (0, -1, 0, 0), (1, 66, 56, 56), None),
            ("WRAP", (0, 0, 0, 0), (1, 128, 56, 56), "tile-to-concat"),
            ("WRAP", (0, 0, -1, 0), (1, 64, 58, 56), "pad-to-concat"),
            ("FILL", (-1, 0, 0, 0), (2, 64, 56, 56), None),
        ],
    )
    def test_other_borders(
        self, mode: str, start: tuple[int, ...], size: tuple[int, ...], expected: str | None
    ) -> None:
        assert fix("DLA184", slicing(start, size, mode=mode, fill=1.0), *JP62) == expected

    def test_output_padding_of_a_deconvolution_is_no_pad(self) -> None:
        pad, reader = self.network(nodes=("deconv",))
        maker = renamed(convolution(deconvolution=True), 2, "q", "x", ("deconv",))
        assert fix("DLA184", pad, *JP62, layers=(maker, pad, reader)) is None


def test_softmax_of_another_rank_moves_to_four_dimensions() -> None:
    assert fix("DLA102", softmax((1, 1000)), *JP62) == "softmax-to-channels"
    assert fix("DLA102", concatenation((1, 10), (1, 10)), *JP62) is None


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("HARD_SIGMOID", JP62, "hard-activation-to-clip"),
        ("SOFTPLUS", JP62, "activation-to-sigmoid"),
        ("GELU_ERF", JP62, "gelu-to-tanh"),
        ("SOFTSIGN", JP62, "softsign-to-div"),
        ("SOFTSIGN", JP60, None),
        ("THRESHOLDED_RELU", JP60, "thresholded-relu-to-clip"),
        ("SCALED_TANH", JP62, None),
    ],
)
def test_activations_name_their_rewrite(kind: str, target: tuple[str, str], expected: str | None) -> None:
    checked = layer(LayerKind.ACTIVATION, (tensor("x"),), (tensor("y"),), type=kind, alpha=0.2, beta=0.5)
    assert fix("DLA020", checked, *target) == expected


@pytest.mark.parametrize(("low", "high", "expected"), [(-1.0, 1.0, "clip-to-min-max"), (0.0, 3.4e38, "clip-to-relu")])
def test_clips_name_their_rewrite(low: float, high: float, expected: str) -> None:
    checked = layer(LayerKind.ACTIVATION, (tensor("x"),), (tensor("y"),), type="CLIP", alpha=low, beta=high)
    assert fix("DLA152", checked, *JP62) == expected


@pytest.mark.parametrize(
    ("op", "target", "expected"),
    [("NEG", JP60, "div-to-mul"), ("RECIP", JP60, None), ("RECIP", JP62, "reciprocal-to-div"), ("SQRT", JP62, None)],
)
def test_unary_operations_name_their_rewrite(op: str, target: tuple[str, str], expected: str | None) -> None:
    checked = layer(LayerKind.UNARY, (tensor("x"),), (tensor("y"),), op=op)
    assert fix("DLA023", checked, *target) == expected


def test_a_reversed_tensor_that_is_only_sliced() -> None:
    flipped = slicing((0, 0, 0, 55), IMAGE, (1, 1, 1, -1))
    first = renamed(slicing((0, 0, 0, 0), (1, 64, 56, 1)), 1, "y", "z", ("n1",))
    assert fix("DLA183", flipped, *JP62, layers=(flipped, first)) == "merge-slices"
    assert fix("DLA183", flipped, *JP62, layers=(flipped, first), outputs=("y",)) == "slice-step-to-conv"
    assert fix("DLA183", flipped, *JP62, layers=(flipped,)) == "slice-step-to-conv"


def test_a_rearrangement_that_returns_to_four_dimensions() -> None:
    apart = renamed(shuffle((1, 16, 8, 8), (1, 4, 4, 8, 8)), 0, "x", "a", ("n0",))
    moved = renamed(shuffle((1, 4, 4, 8, 8), (1, 4, 4, 8, 8)), 1, "a", "b", ("n1",))
    joined = renamed(shuffle((1, 4, 4, 8, 8), (1, 16, 8, 8)), 2, "b", "c", ("n2",))
    for checked in (apart, moved, joined):
        assert fix("DLA190", checked, *JP62, layers=(apart, moved, joined)) == "rearrange-in-4d"
    assert fix("DLA190", apart, *JP62, layers=(apart, moved)) is None
