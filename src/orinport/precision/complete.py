"""`complete`: scales for tensors that hold the values of others, that an operator bounds, or that are constant.

Layers are walked forward and backward until nothing changes, so that neither the order of the operands nor the
depth of the network matters. A scale that a tensor has of its own is never replaced, except a calibrated one
behind Sigmoid and its like, whose range is known better than any data can tell. No scale is handed on to an output of
the network: what leaves the network is not quantised unless it has a scale of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.precision.scales import Origin, Scale, Scales

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.model.model import Model

__all__ = ["complete", "constant_scales", "cut_constants", "hands_back", "is_quantisable", "keeps"]

_KEEPING = frozenset(
    {
        LayerKind.SHUFFLE,
        LayerKind.IDENTITY,
        LayerKind.CAST,
        LayerKind.SLICE,
        LayerKind.GATHER,
        LayerKind.PADDING,
        LayerKind.SQUEEZE,
        LayerKind.UNSQUEEZE,
    }
)
"""Their output holds values of their first input, or zeros."""

_BOUNDED = {"SIGMOID": 1.0, "TANH": 1.0, "HARD_SIGMOID": 1.0}
"""The largest magnitude that these activations give, by their definition."""

_FLOATS = frozenset({DType.FP32, DType.FP16})


def is_quantisable(tensor: Tensor) -> bool:
    """True if INT8 would need a scale for the tensor: it is a floating-point tensor."""
    return tensor.dtype in _FLOATS


def complete(scales: Scales, layers: Sequence[Layer], outputs: Collection[str]) -> Scales:
    """`scales` with those that follow from them; `outputs` are the names of the network's outputs."""
    running = [layer for layer in layers if not layer.folds]
    found = {**scales.tensors, **_bounded(running, scales.tensors, outputs)}
    readers: dict[str, list[Layer]] = {}
    for layer in running:
        for tensor in layer.runtime_inputs:
            readers.setdefault(tensor.name, []).append(layer)
    while True:
        before = len(found)
        for layer in running:
            _forward(layer, found, outputs)
        for layer in reversed(running):
            _backward(layer, found, readers)
        if len(found) == before:
            return scales.merged(found)


def _bounded(layers: Sequence[Layer], given: Mapping[str, Scale], outputs: Collection[str]) -> dict[str, Scale]:
    """Scales behind Sigmoid and its like; an output without a scale of its own stays without."""
    return {
        tensor.name: Scale.of_range(_BOUNDED[layer["type"]], Origin.BOUND, layer["type"].lower())
        for layer in layers
        if layer.kind is LayerKind.ACTIVATION and layer["type"] in _BOUNDED
        for tensor in layer.outputs
        if (given[tensor.name].origin is Origin.DATA if tensor.name in given else tensor.name not in outputs)
    }


def _forward(layer: Layer, found: dict[str, Scale], outputs: Collection[str]) -> None:
    scale = _from_inputs(layer, found)
    if scale is None:
        return
    for tensor in layer.outputs:
        if tensor.name not in found and tensor.name not in outputs and is_quantisable(tensor):
            found[tensor.name] = scale


def _from_inputs(layer: Layer, found: Mapping[str, Scale]) -> Scale | None:
    """What the output's scale is if that follows from the inputs."""
    if layer.kind is LayerKind.CONCATENATION:
        known = [(tensor.name, found[tensor.name]) for tensor in layer.inputs if tensor.name in found]
        if len(known) < len(layer.inputs):
            return None
        name, widest = max(known, key=lambda item: item[1].value)
        return Scale(widest.value, Origin.KEPT, name)
    if not layer.inputs or layer.inputs[0].name not in found or not keeps(layer):
        return None
    name, scale = layer.inputs[0].name, found[layer.inputs[0].name]
    if layer.kind is LayerKind.ACTIVATION and layer["type"] == "CLIP":
        bound = max(abs(layer["alpha"]), abs(layer["beta"]))
        if 0 < bound < scale.range:
            return Scale.of_range(bound, Origin.BOUND, "clip")
    return Scale(scale.value, Origin.KEPT, name)


def keeps(layer: Layer) -> bool:
    """True if no magnitude of the output exceeds those of the first input."""
    if layer.kind in _KEEPING:
        return layer.kind is not LayerKind.SLICE or layer["fill_value"] in (None, 0.0)
    if layer.kind is LayerKind.POOLING:
        return True
    if layer.kind is LayerKind.RESIZE:
        return bool(layer["mode"] in ("NEAREST", "LINEAR"))
    if layer.kind is LayerKind.REDUCE:
        return bool(layer["op"] in ("MAX", "MIN", "AVG"))
    if layer.kind is LayerKind.ACTIVATION:
        return layer["type"] in ("RELU", "CLIP") or (layer["type"] == "LEAKY_RELU" and abs(layer["alpha"]) <= 1)
    return layer.kind is LayerKind.UNARY and layer["op"] in ("ABS", "NEG")


def _backward(layer: Layer, found: dict[str, Scale], readers: Mapping[str, list[Layer]]) -> None:
    """Inputs whose values come out again, or are cut as the output's quantisation would cut them."""
    if not hands_back(layer):
        return
    for tensor in _handed(layer):
        if tensor.name in found or tensor.constant or not is_quantisable(tensor):
            continue
        behind = [
            (output.name, found[output.name])
            for reader in readers.get(tensor.name, ())
            if hands_back(reader) and tensor in _handed(reader)
            for output in reader.outputs
            if output.name in found
        ]
        if behind:
            name, widest = max(behind, key=lambda item: item[1].value)
            found[tensor.name] = Scale(widest.value, Origin.KEPT, name)


def _handed(layer: Layer) -> Sequence[Tensor]:
    """The inputs whose values a layer hands on."""
    if layer.kind is LayerKind.CONCATENATION:
        return layer.inputs
    return layer.runtime_inputs if layer.kind is LayerKind.ELEMENTWISE else layer.inputs[:1]


def hands_back(layer: Layer) -> bool:
    """True if a value beyond the output's range is of no use to the layer."""
    if layer.kind is LayerKind.ELEMENTWISE:
        return _is_bound(layer)
    if layer.kind is LayerKind.CONCATENATION or layer.kind in _KEEPING:
        return layer.kind not in (LayerKind.SLICE, LayerKind.GATHER)
    if layer.kind is LayerKind.POOLING:
        return bool(layer["type"] == "MAX")
    if layer.kind is LayerKind.RESIZE:
        return bool(layer["mode"] == "NEAREST")
    if layer.kind is LayerKind.UNARY:
        return bool(layer["op"] in ("ABS", "NEG"))
    return layer.kind is LayerKind.ACTIVATION and layer["type"] in ("RELU", "CLIP")


def _is_bound(layer: Layer) -> bool:
    """True for the larger or the smaller of a tensor and a constant: a Clip, or half of one."""
    return layer.kind is LayerKind.ELEMENTWISE and layer["op"] in ("MAX", "MIN") and len(layer.runtime_inputs) == 1


def cut_constants(scales: Scales, layers: Sequence[Layer]) -> Scales:
    """`scales` where no bound, a constant that only maxima and minima read, has a wider range than their outputs.

    A bound beyond that range bounds nothing: it is the largest number of the type where a Clip has none. Cut to the
    range it leaves -127 ... 127 as they are, and both operands have one range.
    """
    wanted: dict[str, list[Scale | None]] = {}
    for layer in layers:
        for tensor in layer.inputs:
            if tensor.constant and not layer.folds:
                wanted.setdefault(tensor.name, []).append(_cut_to(layer, scales))
    changed = {}
    for name, cuts in wanted.items():
        given, known = scales.get(name), [each for each in cuts if each is not None]
        if given is None or given.origin is not Origin.CONSTANT or len(known) < len(cuts):
            continue
        widest = max(known, key=lambda each: each.value)
        if widest.value < given.value:
            changed[name] = widest
    return scales.merged(changed)


def _cut_to(layer: Layer, scales: Scales) -> Scale | None:
    """The scale that a bound needs at most; None if the layer is not bounded, or has no scale that means anything."""
    given = scales.get(layer.outputs[0].name) if _is_bound(layer) else None
    if given is None or given.origin in (Origin.FREE, Origin.FUSED):
        return None
    return Scale(given.value, Origin.KEPT, layer.outputs[0].name)


def constant_scales(model: Model, layers: Sequence[Layer]) -> dict[str, Scale]:
    """Scales of constants that layers read as tensors, by the names that TensorRT's parser gives them."""
    by_name = {value.name: value for value in model.graph.initializers.values()}
    largest: dict[str, float] = {}
    for layer in layers:
        if not layer.folds or not layer.outputs:
            continue
        if layer.kind is LayerKind.CONSTANT:
            magnitude = _magnitude(model, layer, by_name.get(layer.name))
        elif layer.kind in _KEEPING and layer.inputs:
            magnitude = largest.get(layer.inputs[0].name)
        else:
            magnitude = None
        if magnitude is not None:
            largest[layer.outputs[0].name] = magnitude
    read = {tensor.name for layer in layers if not layer.folds for tensor in layer.inputs if tensor.constant}
    return {
        name: Scale.of_range(value, Origin.CONSTANT) if value > 1e-30 else Scale.of_range(1.0, Origin.FREE)
        for name, value in largest.items()
        if name in read
    }


def _magnitude(model: Model, layer: Layer, initializer: object) -> float | None:
    scalar = layer["scalar"]
    if scalar is not None:
        return abs(float(scalar)) if np.isfinite(scalar) else None
    array = model.constant(initializer, limit=None) if initializer is not None else None  # type: ignore[arg-type]
    if array is None or array.dtype.kind != "f" or not array.size:
        return None
    magnitude = float(np.abs(array).max())
    return magnitude if np.isfinite(magnitude) else None
