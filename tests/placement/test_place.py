"""Regions, transitions and edge formats."""

from __future__ import annotations

import pytest

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.formats import edge_format
from orinport.placement.place import place
from orinport.placement.placement import Placement
from orinport.rules.finding import Verdict
from orinport.targets.load import load_target
from orinport.targets.target import Precision
from values import layer, target

X = Tensor("x", (1, 16, 8, 8), DType.FP32)


def chain(*verdicts: Verdict) -> Placement:
    layers = [layer(i, LayerKind.ACTIVATION, f"t{i}", f"t{i + 1}") for i in range(len(verdicts))]
    return place(
        layers,
        dict(enumerate(verdicts)),
        inputs=[layers[0].inputs[0]],
        outputs=[layers[-1].outputs[0]],
        target=target(),
        precision=Precision.FP16,
    )


D, G, U, B = Verdict.DLA, Verdict.GPU, Verdict.UNKNOWN, Verdict.BLOCKED


@pytest.mark.parametrize(
    ("verdicts", "regions", "transitions"),
    [
        ((D, D, D), "d", 0),
        ((D, G, D), "dgd", 2),
        ((G, G), "g", 0),
        ((D, U, U, D), "dgd", 2),
        ((G, D), "gd", 1),
    ],
)
def test_regions_of_a_chain(verdicts: tuple[Verdict, ...], regions: str, transitions: int) -> None:
    placement = chain(*verdicts)
    assert "".join(region.device[0] for region in placement.regions) == regions
    assert placement.transitions == transitions
    assert placement.loadables == regions.count("d")


def test_an_all_dla_network_has_native_formats_at_its_edges() -> None:
    placement = chain(D, D)
    assert placement.all_dla
    assert [f.format for f in (*placement.inputs, *placement.outputs)] == ["chw16", "chw16"]
    assert placement.inputs[0].dtype is DType.FP16


def test_where_the_gpu_reads_the_format_is_linear() -> None:
    placement = chain(G, D)
    assert [f.format for f in (*placement.inputs, *placement.outputs)] == ["chw", "chw16"]
    assert placement.inputs[0].dtype is DType.FP32


def test_a_blocked_layer_belongs_to_no_region() -> None:
    placement = chain(D, B)
    assert sum(len(region.layers) for region in placement.regions) == 1


def test_layers_of_another_batch_size_open_a_loadable_of_their_own() -> None:
    first = layer(0, LayerKind.ACTIVATION, "x", "a")
    second = Layer(
        1,
        "second",
        LayerKind.SHUFFLE,
        (Tensor("a", (1, 16, 8, 8), DType.FP32),),
        (Tensor("b", (4, 4, 8, 8), DType.FP32),),
        ("second",),
    )
    placement = place(
        [first, second],
        {0: D, 1: D},
        inputs=[X],
        outputs=[second.outputs[0]],
        target=target(),
        precision=Precision.FP16,
    )
    assert placement.loadables == 2


def conv(channels: int, groups: int = 1) -> Layer:
    shape = (1, channels, 32, 32)
    return Layer(
        0,
        "conv",
        LayerKind.CONVOLUTION,
        (Tensor("x", shape, DType.FP32),),
        (Tensor("y", (1, 8, 32, 32), DType.FP32),),
        ("conv",),
        {"groups": groups},
    )


@pytest.mark.parametrize(
    ("channels", "groups", "expected"),
    [(3, 1, "dla_hwc4"), (4, 4, "dla_hwc4"), (1, 1, "dla_hwc4"), (2, 1, "chw16"), (5, 1, "chw16"), (8, 1, "chw16")],
)
def test_images_that_only_convolutions_read_come_as_hwc4(channels: int, groups: int, expected: str) -> None:
    reader = conv(channels, groups)
    found = edge_format(
        reader.inputs[0], [reader], on_dla=True, is_input=True, target=target(), precision=Precision.FP16
    )
    assert found.format == expected


@pytest.mark.parametrize(("name", "expected"), [("jp5.1", "chw16"), ("jp6.0", "dla_hwc4"), ("jp6.2", "dla_hwc4")])
def test_standalone_loadables_have_the_image_format_only_where_trtexec_offers_it(name: str, expected: str) -> None:
    reader = conv(3)
    found = edge_format(
        reader.inputs[0],
        [reader],
        on_dla=True,
        is_input=True,
        target=load_target(f"orin-agx-64gb/{name}"),
        precision=Precision.FP16,
        standalone=True,
    )
    assert found.format == expected


def test_hwc4_needs_convolutions_with_at_most_four_groups_and_no_other_reader() -> None:
    image = Tensor("x", (1, 4, 32, 32), DType.FP32)
    for readers in ([], [conv(4, 8)], [conv(4), layer(1, LayerKind.POOLING, "x", "z")]):
        found = edge_format(image, readers, on_dla=True, is_input=True, target=target(), precision=Precision.FP16)
        assert found.format == "chw16"


def test_outputs_are_never_hwc4_and_int8_is_packed_by_32() -> None:
    reader = conv(3)
    for is_input, expected in ((True, "dla_hwc4"), (False, "chw32")):
        found = edge_format(
            reader.inputs[0], [reader], on_dla=True, is_input=is_input, target=target(), precision=Precision.INT8
        )
        assert (found.format, found.dtype) == (expected, DType.INT8)


@pytest.mark.parametrize(("version", "expected"), [("10.3.0", DType.INT32), ("11.4.1", DType.INT64)])
def test_integers_on_the_gpu_edge(version: str, expected: DType) -> None:
    found = edge_format(
        Tensor("i", (1, 4), DType.INT64),
        [],
        on_dla=False,
        is_input=True,
        target=target(version),
        precision=Precision.FP16,
    )
    assert (found.format, found.dtype) == ("chw", expected)
