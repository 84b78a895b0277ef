"""Whatever layers a network has, the rules answer: no crash, one verdict a layer, complete findings."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from layers import chain, layer
from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.report.json import dumps
from orinport.rules import check_layers
from orinport.rules.finding import Verdict
from orinport.targets import catalogue_rows, list_targets, load_target
from orinport.targets.target import Precision

SIZES = st.sampled_from([0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 32, 33, 64, 100, 1024, 8192, 8193])
SHAPES = st.one_of(st.none(), st.lists(SIZES, max_size=6).map(tuple))
SPATIAL, RANK, AXIS, AXES, ORDER, RESULT = "spatial", "rank", "axis", "axes", "order", "result"
"""Stand for values that have to fit the layer's tensors: see `fitting`."""
NUMBERS = st.sampled_from([-1.0, 0.0, 0.01, 0.5, 1.0, 2.0, 6.0, 32.0, 127.0, 128.0, float("inf"), float("-inf")])
FLAG = st.booleans()


def one_of(names: str) -> st.SearchStrategy[str]:
    return st.sampled_from(names.split())


WINDOW = {
    "stride": SPATIAL,
    "pre_padding": SPATIAL,
    "post_padding": SPATIAL,
    "padding_mode": one_of("EXPLICIT_ROUND_DOWN EXPLICIT_ROUND_UP SAME_UPPER SAME_LOWER"),
}
CONVOLUTION = {
    **WINDOW,
    "kernel": SPATIAL,
    "dilation": SPATIAL,
    "groups": st.sampled_from([1, 2, 4, 5, 32, 8193]),
    "output_maps": st.sampled_from([1, 64, 8192, 8193]),
    "has_bias": FLAG,
    "constant_kernel": FLAG,
    "weight_values": st.sampled_from([0, 1, 2**28]),
}
QUANTISER = {"axis": st.one_of(st.none(), st.integers(0, 3)), "zero_point": FLAG, "to": one_of("int8 uint8 fp32")}

ATTRIBUTES: dict[LayerKind, dict[str, st.SearchStrategy[Any] | str]] = {
    LayerKind.CONVOLUTION: CONVOLUTION,
    LayerKind.DECONVOLUTION: CONVOLUTION,
    LayerKind.FULLY_CONNECTED: {
        "output_maps": st.sampled_from([1, 8193]), "has_bias": FLAG, "weight_values": st.just(5)
    },
    LayerKind.POOLING: {
        **WINDOW,
        "type": one_of("MAX AVERAGE MAX_AVERAGE_BLEND"),
        "window": SPATIAL,
        "exclusive": FLAG,
        "round_up": FLAG,
    },
    LayerKind.ACTIVATION: {
        "type": one_of("RELU SIGMOID TANH LEAKY_RELU ELU SELU CLIP HARD_SIGMOID GELU_ERF THRESHOLDED_RELU"),
        "alpha": NUMBERS,
        "beta": NUMBERS,
    },
    LayerKind.ELEMENTWISE: {"op": one_of("SUM PROD MAX MIN SUB DIV POW FLOOR_DIV AND OR XOR EQUAL GREATER LESS")},
    LayerKind.SCALE: {
        "mode": one_of("UNIFORM CHANNEL ELEMENTWISE"),
        "has_power": FLAG,
        "channel_axis": st.integers(0, 4),
        "weight_values": st.just(64),
    },
    LayerKind.LRN: {
        "window": st.integers(1, 11), "alpha": NUMBERS, "beta": NUMBERS, "k": NUMBERS, "across_channels": FLAG
    },
    LayerKind.CONCATENATION: {"axis": AXIS},
    LayerKind.RESIZE: {
        "mode": one_of("NEAREST LINEAR CUBIC"),
        "coordinate_transformation": one_of("ALIGN_CORNERS ASYMMETRIC HALF_PIXEL"),
        "selector": one_of("FORMULA UPPER"),
        "rounding": one_of("HALF_UP HALF_DOWN FLOOR CEIL"),
        "scales": RANK,
        "by_sizes": FLAG,
    },
    LayerKind.UNARY: {"op": one_of("EXP LOG SQRT RECIP ABS NEG SIN COS TAN ATAN ATANH NOT SIGN ROUND ERF ISINF")},
    LayerKind.SLICE: {
        "start": RANK,
        "size": RANK,
        "stride": RANK,
        "mode": one_of("STRICT_BOUNDS WRAP CLAMP FILL REFLECT"),
        "fill_value": st.one_of(st.none(), NUMBERS),
        "axes": AXES,
    },
    LayerKind.SOFTMAX: {"axis": AXIS},
    LayerKind.SHUFFLE: {"first_transpose": ORDER, "reshape": RESULT, "second_transpose": st.none()},
    LayerKind.REDUCE: {"op": one_of("SUM PROD MAX MIN AVG NONE"), "axes": AXES, "keep_dims": FLAG},
    LayerKind.PARAMETRIC_RELU: {"constant_slope": FLAG},
    LayerKind.MATRIX_MULTIPLY: {"op0": one_of("NONE TRANSPOSE VECTOR"), "op1": one_of("NONE TRANSPOSE VECTOR")},
    LayerKind.GATHER: {"mode": one_of("DEFAULT ELEMENT ND"), "axis": st.integers(0, 4)},
    LayerKind.TOPK: {"op": one_of("MAX MIN"), "k": st.one_of(st.none(), st.integers(1, 5)), "axes": AXES},
    LayerKind.CONSTANT: {"values": st.integers(0, 9), "scalar": st.one_of(st.none(), NUMBERS)},
    LayerKind.CAST: {"to": one_of("fp16 fp32 int8 int32 bool")},
    LayerKind.IDENTITY: {"to": one_of("fp16 fp32")},
    LayerKind.QUANTIZE: QUANTISER,
    LayerKind.DEQUANTIZE: QUANTISER,
    LayerKind.PLUGIN: {"op_type": st.just("P"), "domain": st.just("test")},
    LayerKind.UNSUPPORTED: {"op_type": st.just("U"), "domain": st.just(""), "reason": st.just("no such operator")},
}  # fmt: skip
"""Attributes of the kinds that have some, as `orinport.model.layer.ATTRIBUTES` describes them."""


BINARY = {LayerKind.ELEMENTWISE, LayerKind.MATRIX_MULTIPLY, LayerKind.PARAMETRIC_RELU, LayerKind.GATHER}


def fitting(what: str, read: tuple[int, ...] | None, made: tuple[int, ...] | None) -> st.SearchStrategy[Any]:
    """Values as lowering makes them for a layer that reads and writes tensors of these shapes."""
    rank = len(read) if read is not None else 4
    if what == SPATIAL:
        number = 3 if rank == 5 else 2
        return st.tuples(*[st.sampled_from([0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 128])] * number)
    if what == RANK:
        return st.one_of(st.none(), st.tuples(*[st.sampled_from([0, 1, 2, 3.5, 4, 33])] * rank))
    if what == AXIS:
        return st.integers(0, max(rank - 1, 0))
    if what == AXES:
        return st.lists(st.integers(0, max(rank - 1, 0)), max_size=3, unique=True).map(tuple)
    if what == ORDER:
        return st.one_of(st.none(), st.permutations(range(rank)).map(tuple))
    assert what == RESULT
    return st.one_of(st.none(), st.just(made))


@st.composite
def layers(draw: st.DrawFn, index: int) -> Layer:
    """A layer that reads the one before it, perhaps a constant, perhaps another input."""
    kind = draw(st.sampled_from(list(LayerKind)))
    dtype = draw(st.sampled_from([DType.FP32, DType.FP16, DType.INT8, DType.INT64, DType.BOOL, DType.UNKNOWN]))
    inputs = [Tensor(f"t{index}", draw(SHAPES), dtype)]
    if kind in BINARY or draw(FLAG):
        inputs.append(Tensor(f"k{index}", draw(SHAPES), dtype, constant=draw(FLAG)))
    if kind is LayerKind.CONSTANT:
        inputs = []
    result = Tensor(f"t{index + 1}", draw(SHAPES), dtype, constant=kind is LayerKind.CONSTANT)
    read = inputs[0].shape if inputs else None
    attributes = {
        name: draw(fitting(value, read, result.shape) if isinstance(value, str) else value)
        for name, value in ATTRIBUTES.get(kind, {}).items()
    }
    return layer(kind, inputs, (result,), **attributes)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Layer, ...]:
    """One to four layers in a row."""
    return chain(*[draw(layers(index)) for index in range(draw(st.integers(1, 4)))])


@settings(max_examples=500)
@given(
    network=networks(),
    target=st.sampled_from([target.name for target in list_targets()]),
    precision=st.sampled_from(list(Precision)),
    standalone=FLAG,
    fallback=FLAG,
)
def test_the_rules_answer(
    network: tuple[Layer, ...], target: Any, precision: Any, standalone: bool, fallback: bool
) -> None:
    report = check_layers(
        network,
        inputs=[tensor for tensor in network[0].inputs if not tensor.constant],
        outputs=network[-1].outputs,
        target=load_target(target),
        precision=precision,
        standalone=standalone,
        gpu_fallback=fallback,
    )
    assert set(report.verdicts) == {one.index for one in network}
    for finding in report.findings:
        assert finding.message, finding.code
        assert finding.source, finding.code
        assert set(finding.rows) <= set(catalogue_rows())
        assert finding.layer in {"", *(one.name for one in network)}
        dumps({"value": finding.value, "limit": finding.limit})
    if standalone or not fallback:
        assert Verdict.GPU not in report.verdicts.values()
        assert not any(finding.verdict is Verdict.GPU for finding in report.findings)
