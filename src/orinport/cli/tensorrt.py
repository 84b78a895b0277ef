"""Our lowering beside NVIDIA's own parser, for `orinport check --with-tensorrt`."""

from __future__ import annotations

import sys
from difflib import SequenceMatcher
from math import isclose
from typing import TYPE_CHECKING, Any

from orinport.model.layer import LayerKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from orinport.device.tensorrt_rtx import ParsedLayer, ParsedNetwork, ParsedTensor
    from orinport.model.layer import Layer, Tensor

__all__ = ["compare_with_parser", "differences"]

_COMPARED: dict[str, tuple[str, ...]] = {
    "ACTIVATION": ("type",),
    "CAST": ("to",),
    "CONCATENATION": ("axis",),
    "CONVOLUTION": ("kernel", "stride", "dilation", "groups", "output_maps", "padding_mode"),
    "DECONVOLUTION": ("kernel", "stride", "dilation", "groups", "output_maps", "padding_mode"),
    "DEQUANTIZE": ("axis",),
    "ELEMENTWISE": ("op",),
    "GATHER": ("mode", "axis"),
    "GRID_SAMPLE": ("mode", "sample", "align_corners"),
    "LRN": ("window", "alpha", "beta", "k"),
    "MATRIX_MULTIPLY": ("op0", "op1"),
    "NORMALIZATION": ("axes", "groups", "epsilon"),
    "ONE_HOT": ("axis",),
    "POOLING": ("type", "window", "stride", "exclusive", "padding_mode"),
    "QUANTIZE": ("axis",),
    "REDUCE": ("op", "axes", "keep_dims"),
    "RESIZE": ("mode", "coordinate_transformation", "selector", "rounding", "scales"),
    "SCALE": ("mode", "channel_axis"),
    "SCATTER": ("mode", "axis"),
    "SHUFFLE": ("first_transpose", "second_transpose"),
    "SLICE": ("mode", "axes"),
    "SOFTMAX": ("axis",),
    "TOPK": ("op", "axes"),
    "UNARY": ("op",),
}
_WITH_ALPHA = frozenset({"LEAKY_RELU", "ELU", "SELU", "CLIP", "HARD_SIGMOID", "SCALED_TANH", "THRESHOLDED_RELU"})
_WITH_BETA = frozenset({"SELU", "CLIP", "HARD_SIGMOID", "SCALED_TANH"})
_PLUGINS = frozenset({"PLUGIN", "PLUGIN_V2", "PLUGIN_V3"})
_NEVER_FOLDED = _PLUGINS | {"RECURRENCE", "TRIP_LIMIT", "CONDITIONAL_OUTPUT"}


def compare_with_parser(path: str | PathLike[str], target: str, shapes: Sequence[str] = ()) -> bool:
    """Lower the model as the parser does that the extra `tensorrt` brings, and print where the two differ.

    Layers that only compute build-time constants are left out on both sides. True if nothing differs.
    Raises MissingExtraError if the extra is not installed.
    """
    from orinport.device.tensorrt_rtx import REFERENCE_VERSION, Session
    from orinport.model.load import load
    from orinport.model.lower import lower
    from orinport.targets import load_target

    wanted = load_target(target).stack.tensorrt
    with Session() as session:
        model = load(path, shapes=tuple(shapes) or None)
        parsed = session.parse(model)
    layers = lower(model, tensorrt=REFERENCE_VERSION)
    found = _refusals(layers, parsed) or differences(layers, parsed)
    out = sys.stderr
    if found:
        out.write(f"orinport: NVIDIA's parser (TensorRT {REFERENCE_VERSION} in kind) differs:\n")
        out.writelines(f"  {line}\n" for line in found)
    else:
        count = len(_running(layers))
        out.write(f"orinport: NVIDIA's parser (TensorRT {REFERENCE_VERSION} in kind) makes the same {count} layers.\n")
    if wanted != REFERENCE_VERSION:
        out.write(
            f"orinport: the report is about TensorRT {wanted}, whose parser may lower some operators otherwise.\n"
        )
    return not found


def _refusals(layers: Sequence[Layer], parsed: ParsedNetwork) -> list[str]:
    """How the two differ about whether the model can be imported at all."""
    refused = [layer for layer in layers if layer.kind in {LayerKind.UNSUPPORTED, LayerKind.PLUGIN}]
    if parsed.parsed:
        return [
            f"{_node(layer)}: the parser takes it, orinport does not: {layer.attributes.get('reason', 'a plugin')}"
            for layer in refused
            if layer.kind is LayerKind.UNSUPPORTED
        ]
    if refused:
        return []
    return [
        f"{error.name or error.operator or 'model'}: the parser refuses it, orinport does not: {error.message}"
        for error in parsed.errors
    ] or ["The parser refuses the model and gives no reason."]


def differences(layers: Sequence[Layer], parsed: ParsedNetwork) -> list[str]:
    """Where the layers that run, their attributes, shapes or types differ; one line each."""
    if not parsed.parsed:
        return []
    ours, theirs = _running(layers), _parsed_running(parsed)
    kinds = [_kind(layer.kind.value) for layer in ours], [_kind(layer.kind) for layer in theirs]
    lines: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, *kinds, autojunk=False).get_opcodes():
        if tag == "equal":
            for mine, other in zip(ours[i:j], theirs[k:m], strict=True):
                lines += _compare(mine, other)
            continue
        left = ", ".join(f"{layer.kind.value} {layer.name}" for layer in ours[i:j]) or "nothing"
        right = ", ".join(f"{layer.kind} {layer.name}" for layer in theirs[k:m]) or "nothing"
        lines.append(f"orinport makes {left}; the parser makes {right}")
    return lines


def _node(layer: Layer) -> str:
    return layer.nodes[0] if layer.nodes else layer.name


def _kind(kind: str) -> str:
    return "PLUGIN" if kind in _PLUGINS else kind


def _running(layers: Sequence[Layer]) -> list[Layer]:
    return [layer for layer in layers if not layer.is_constant and layer.kind is not LayerKind.CONSTANT]


def _parsed_running(parsed: ParsedNetwork) -> list[ParsedLayer]:
    """The parsed layers without those that the builder folds."""
    constant: set[str] = set()
    known = -1
    # Inputs of a FILL can be added after it, so once through the layers is not always enough.
    while len(constant) > known:
        known = len(constant)
        for layer in parsed.layers:
            if _folded(layer, constant):
                constant.update(tensor.name for tensor in layer.outputs if tensor is not None)
    return [layer for layer in parsed.layers if not _folded(layer, constant)]


def _folded(layer: ParsedLayer, constant: set[str]) -> bool:
    inputs = [tensor for tensor in layer.inputs if tensor is not None]
    if layer.kind == "CONSTANT":
        return True
    if layer.kind == "SHAPE":
        return all(tensor.shape is not None and -1 not in tensor.shape for tensor in inputs)
    if layer.kind in _NEVER_FOLDED or (layer.kind == "FILL" and layer.attributes.get("op") != "LINSPACE"):
        return False
    return bool(inputs or layer.kind == "FILL") and all(tensor.name in constant for tensor in inputs)


def _compare(mine: Layer, other: ParsedLayer) -> list[str]:
    lines = []
    keys = _COMPARED.get(mine.kind.value, ())
    if mine.kind is LayerKind.ACTIVATION:
        kind = mine.attributes["type"]
        keys += ("alpha",) * (kind in _WITH_ALPHA) + ("beta",) * (kind in _WITH_BETA)
    if mine.attributes.get("padding_mode", "").startswith("EXPLICIT"):
        keys += ("pre_padding", "post_padding")
    for key in keys:
        if key not in other.attributes:
            continue
        left, right = mine.attributes.get(key), other.attributes[key]
        if key.endswith("_transpose"):
            left, right = _order(left), _order(right)
        if left is not None and right is not None and not _same(left, right):
            lines.append(f"{mine.kind.value} {mine.name}: {key} is {left}, the parser has {right}")
    for index, (left, right) in enumerate(zip(mine.outputs, other.outputs, strict=False)):
        if right is not None:
            lines += [f"{mine.kind.value} {mine.name}, output {index}: {text}" for text in _tensors(left, right)]
    return lines


def _order(order: tuple[int, ...] | None) -> tuple[int, ...]:
    """A permutation without the identity at its end, and without what is there for ranks that it has not."""
    places = list(order or ())
    rank = len(places)
    while rank and sorted(places[:rank]) != list(range(rank)):
        rank -= 1
    places = places[:rank]
    while places and places[-1] == len(places) - 1:
        places.pop()
    return tuple(places)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) or isinstance(right, float):
        return isclose(left, right, rel_tol=1e-5, abs_tol=1e-12)
    return bool(left == right)


def _tensors(left: Tensor, right: ParsedTensor) -> list[str]:
    lines = []
    if left.shape is not None and right.shape is not None and -1 not in right.shape and left.shape != right.shape:
        lines.append(f"shape {left.shape}, the parser has {right.shape}")
    if "unknown" not in {left.dtype.value, right.dtype.value} and left.dtype is not right.dtype:
        lines.append(f"type {left.dtype.value}, the parser has {right.dtype.value}")
    return lines
