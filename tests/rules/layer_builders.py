"""Single layers and contexts for tests of the rules: `conv(kernel=(33, 33))`, `context("orin", "8.6.2", "int8")`."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from orinport.model.layer import ATTRIBUTES, DType, Layer, LayerKind, Tensor
from orinport.rules.catalogue import rules
from orinport.rules.rule import Context, LayerRule, NetworkRule
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Confidence, Hardware, Platform, PowerMode, Precision, Stack, Target
from orinport.targets.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orinport.rules.finding import Finding
    from orinport.rules.rule import Rule

IMAGE = (1, 64, 56, 56)

_EXTRA = {
    LayerKind.CONVOLUTION: {"padding_mode"},
    LayerKind.DECONVOLUTION: {"padding_mode"},
    LayerKind.POOLING: {"padding_mode"},
}


def tensor(
    name: str, shape: Sequence[int] | None = IMAGE, dtype: DType = DType.FP32, *, constant: bool = False
) -> Tensor:
    """A tensor; runtime and FP32 unless said otherwise."""
    return Tensor(name, None if shape is None else tuple(shape), dtype, constant)


def layer(
    kind: LayerKind,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    *,
    index: int = 0,
    **attributes: Any,
) -> Layer:
    """A layer whose attributes are those of the contract in `ATTRIBUTES`."""
    unknown = attributes.keys() - ATTRIBUTES.get(kind, {}).keys() - _EXTRA.get(kind, set())
    assert not unknown, f"{kind.value} has no attributes {sorted(unknown)}"
    return Layer(index, f"layer{index}", kind, tuple(inputs), tuple(outputs), (f"node{index}",), attributes)


def convolution(shape: Sequence[int] | None = IMAGE, *, deconvolution: bool = False, **changes: Any) -> Layer:
    """A 3x3 convolution (or a 2x2 deconvolution of stride 2) with 64 output maps."""
    size = 2 if deconvolution else 3
    attributes: dict[str, Any] = {
        "kernel": (size, size),
        "stride": (2, 2) if deconvolution else (1, 1),
        "dilation": (1, 1),
        "pre_padding": (0, 0),
        "post_padding": (0, 0),
        "groups": 1,
        "output_maps": 64,
        "has_bias": True,
        "constant_kernel": True,
        "weight_values": 36864,
        **changes,
    }
    kind = LayerKind.DECONVOLUTION if deconvolution else LayerKind.CONVOLUTION
    result = None if shape is None else (*shape[:1], attributes["output_maps"], *shape[2:])
    return layer(kind, (tensor("x", shape),), (tensor("y", result),), **attributes)


def pooling(shape: Sequence[int] | None = IMAGE, **changes: Any) -> Layer:
    """A 2x2 max pool of stride 2."""
    attributes: dict[str, Any] = {
        "type": "MAX",
        "window": (2, 2),
        "stride": (2, 2),
        "pre_padding": (0, 0),
        "post_padding": (0, 0),
        "exclusive": False,
        "round_up": False,
        **changes,
    }
    return layer(LayerKind.POOLING, (tensor("x", shape),), (tensor("y", shape),), **attributes)


def activation(kind: str, alpha: float = 0.0, beta: float = 0.0, shape: Sequence[int] | None = IMAGE) -> Layer:
    """An activation; Clip takes its bounds in `alpha` and `beta`."""
    return layer(LayerKind.ACTIVATION, (tensor("x", shape),), (tensor("y", shape),), type=kind, alpha=alpha, beta=beta)


def elementwise(op: str, *inputs: Tensor, dtype: DType | None = None, name: str = "y", index: int = 0) -> Layer:
    """An element-wise layer, by default of two runtime tensors of one shape."""
    inputs = inputs or (tensor("a"), tensor("b"))
    shapes = [t.shape for t in inputs]
    result = None
    if None not in shapes:
        rank = max(len(s) for s in shapes if s is not None)
        padded = [(1,) * (rank - len(s)) + s for s in shapes if s is not None]
        result = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    boolean = op in {"EQUAL", "GREATER", "LESS", "AND", "OR", "XOR"}
    out = tensor(name, result, dtype or (DType.BOOL if boolean else DType.FP32))
    return layer(LayerKind.ELEMENTWISE, inputs, (out,), op=op, index=index)


def unary(op: str, dtype: DType = DType.FP32, shape: Sequence[int] | None = IMAGE) -> Layer:
    """A unary layer."""
    return layer(LayerKind.UNARY, (tensor("x", shape, dtype),), (tensor("y", shape, dtype),), op=op)


def scale(mode: str = "CHANNEL", *, power: bool = False, shape: Sequence[int] | None = IMAGE) -> Layer:
    """A Scale."""
    return layer(
        LayerKind.SCALE,
        (tensor("x", shape),),
        (tensor("y", shape),),
        mode=mode,
        has_power=power,
        channel_axis=1,
        weight_values=64,
    )


def lrn(window: int = 5, *, across: bool = True) -> Layer:
    """A local response normalisation."""
    return layer(
        LayerKind.LRN,
        (tensor("x"),),
        (tensor("y"),),
        window=window,
        alpha=1e-4,
        beta=0.75,
        k=1.0,
        across_channels=across,
    )


def concatenation(*shapes: Sequence[int] | None, axis: int = 1) -> Layer:
    """A concatenation of tensors of these shapes."""
    result = None
    if None not in shapes:
        known = [tuple(s) for s in shapes if s is not None]
        total = sum(s[axis] for s in known)
        result = (*known[0][:axis], total, *known[0][axis + 1 :])
    inputs = [tensor(f"x{i}", shape) for i, shape in enumerate(shapes)]
    return layer(LayerKind.CONCATENATION, inputs, (tensor("y", result),), axis=axis)


def resize(
    mode: str = "NEAREST",
    scales: Sequence[float] | None = (1, 1, 2, 2),
    *,
    coordinates: str = "HALF_PIXEL",
    selector: str = "FORMULA",
    rounding: str = "HALF_DOWN",
    shape: Sequence[int] | None = (1, 64, 20, 20),
    to: Sequence[int] | None = None,
) -> Layer:
    """A Resize by scales, or by sizes if `scales` is None and `to` says where to."""
    result = to
    if result is None and shape is not None and scales is not None and len(scales) == len(shape):
        result = [int(size * factor) for size, factor in zip(shape, scales, strict=True)]
    return layer(
        LayerKind.RESIZE,
        (tensor("x", shape),),
        (tensor("y", result),),
        mode=mode,
        coordinate_transformation=coordinates,
        selector=selector,
        rounding=rounding,
        scales=None if scales is None else tuple(float(s) for s in scales),
        by_sizes=scales is None,
    )


def slicing(
    start: Sequence[int] | None = (0, 0, 0, 0),
    size: Sequence[int] | None = (1, 32, 56, 56),
    stride: Sequence[int] | None = (1, 1, 1, 1),
    *,
    mode: str = "STRICT_BOUNDS",
    fill: float | None = None,
    axes: Sequence[int] | None = None,
    shape: Sequence[int] | None = IMAGE,
    extra: Sequence[Tensor] = (),
) -> Layer:
    """A Slice; by default the first half of the channels."""

    def pack(values: Sequence[int] | None) -> tuple[int, ...] | None:
        return None if values is None else tuple(values)

    return layer(
        LayerKind.SLICE,
        (tensor("x", shape), *extra),
        (tensor("y", size),),
        start=pack(start),
        size=pack(size),
        stride=pack(stride),
        mode=mode,
        fill_value=fill,
        axes=pack(axes),
    )


def softmax(shape: Sequence[int] | None = (1, 1000, 1, 1), axis: int = 1) -> Layer:
    """A SoftMax."""
    return layer(LayerKind.SOFTMAX, (tensor("x", shape),), (tensor("y", shape),), axis=axis)


def shuffle(
    shape: Sequence[int] | None,
    reshape: Sequence[int] | None = None,
    *,
    first: Sequence[int] | None = None,
    second: Sequence[int] | None = None,
    kind: LayerKind = LayerKind.SHUFFLE,
) -> Layer:
    """Transpose, reshape, transpose."""
    result: Sequence[int] | None = None
    if shape is not None:
        moved = tuple(shape) if first is None else tuple(shape[axis] for axis in first)
        result = moved if reshape is None else tuple(reshape)
        assert prod(result) == prod(shape)
        result = result if second is None else tuple(result[axis] for axis in second)
    attributes: dict[str, Any] = {}
    if kind is LayerKind.SHUFFLE:
        attributes = {"first_transpose": first, "reshape": reshape, "second_transpose": second}
    return layer(kind, (tensor("x", shape),), (tensor("y", result),), **attributes)


def reduction(
    op: str, axes: Sequence[int] = (2, 3), *, keep: bool = True, shape: Sequence[int] | None = IMAGE
) -> Layer:
    """A reduction."""
    result = None
    if shape is not None:
        result = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
    return layer(
        LayerKind.REDUCE, (tensor("x", shape),), (tensor("y", result),), op=op, axes=tuple(axes), keep_dims=keep
    )


def parametric_relu(slope: Sequence[int] | None = (1, 64, 1, 1), *, constant: bool = True) -> Layer:
    """A parametric ReLU on `IMAGE`."""
    return layer(
        LayerKind.PARAMETRIC_RELU,
        (tensor("x"), tensor("slope", slope, constant=constant)),
        (tensor("y"),),
        constant_slope=constant,
    )


def product(first: Tensor, second: Tensor, op0: str = "NONE", op1: str = "NONE") -> Layer:
    """A matrix multiplication."""
    return layer(LayerKind.MATRIX_MULTIPLY, (first, second), (tensor("y", (128, 128)),), op0=op0, op1=op1)


@cache
def target(platform: str = "orin", tensorrt: str = "10.3.0") -> Target:
    """A target of this DLA generation with this TensorRT version, released or not."""
    where = Platform(platform)
    stack = Stack(
        name="test",
        title="test",
        tensorrt=Version.parse(tensorrt),
        dla=None,
        line="drive" if tensorrt.startswith("8.6.1") and tensorrt != "8.6.1" else "jetson",
        cuda=None,
        opset=17,
        platforms=(where,),
        families=("agx",),
        source="test",
        confidence=Confidence.INFERRED,
    )
    mode = PowerMode("test", {})
    return Target(Hardware("test", "test", where, "agx", {}, (mode,)), stack, mode)


def context(
    platform: str = "orin",
    tensorrt: str = "10.3.0",
    precision: str = "fp16",
    *,
    layers: Sequence[Layer] = (),
    outputs: Iterable[str] = (),
    standalone: bool = False,
) -> Context:
    """What a rule looks at beside its layer."""
    where = target(platform, tensorrt)
    consumers: dict[str, list[Layer]] = {}
    for one in layers:
        for read in one.inputs:
            consumers.setdefault(read.name, []).append(one)
    return Context(
        target=where,
        precision=Precision(precision),
        standalone=standalone,
        gpu_fallback=not standalone,
        rows=rows_for(where, Precision(precision)),
        producers={made.name: one for one in layers for made in one.outputs},
        consumers={name: tuple(readers) for name, readers in consumers.items()},
        inputs=frozenset(),
        outputs=frozenset(outputs),
        covered=frozenset(LayerKind),
        verdicts={},
    )


def rule(code: str) -> Rule:
    """The rule of this code."""
    return next(found for found in rules() if found.code == code)


def findings(
    code: str,
    checked: Layer,
    platform: str = "orin",
    tensorrt: str = "10.3.0",
    precision: str = "fp16",
    *,
    layers: Sequence[Layer] = (),
    outputs: Iterable[str] = (),
    standalone: bool = False,
) -> tuple[Finding, ...]:
    """What one rule says about one layer; `layers` are its neighbours and itself, where they matter."""
    found = rule(code)
    where = context(
        platform,
        tensorrt,
        precision,
        layers=layers or (checked,),
        outputs=outputs,
        standalone=standalone,
    )
    if isinstance(found, LayerRule):
        if found.kinds and checked.kind not in found.kinds:
            return ()
        return tuple(found.check(checked, where))
    assert isinstance(found, NetworkRule)
    return tuple(found.check(layers or (checked,), where))


def verdict(code: str, checked: Layer, *where: str, **more: Any) -> str:
    """`gpu`, `unknown`, `note` or, where the rule has nothing to say, `kept`."""
    found = findings(code, checked, *where, **more)
    if not found:
        return "kept"
    worst = [f.verdict.value for f in found if f.verdict is not None]
    return max(worst, key=["dla", "unknown", "gpu", "blocked"].index) if worst else "note"
