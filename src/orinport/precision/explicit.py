"""`insert_qdq`: scales become explicit QuantizeLinear and DequantizeLinear layers, for TensorRT 11.

Which patterns the DLA takes there is not documented (row I13). NVIDIA's published way, ModelOpt with `--target_dla`,
puts a pair on the inputs of every operator, and so it is done here: one pair on every tensor that has a scale, read
by all of its readers, and integers with one scale an output channel for the weights of convolutions, deconvolutions
and matrix products that read such a tensor; the others compute in FP16 and keep their weights. Scales have the type
of the tensor, since a strongly typed network has FP16 tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.model import dtype_of
from orinport.model.save import copy_model, to_proto
from orinport.precision.complete import is_quantisable
from orinport.precision.findings import invalid_scale
from orinport.precision.qdq import channel_axis
from orinport.precision.scales import LEVELS, Origin, Scales
from orinport.rewrites.builder import Names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.model.model import Model
    from orinport.rules.finding import Finding

__all__ = ["insert_qdq"]

_PER_CHANNEL_OPSET = 13
_HALF_OPSET = 19
"""QuantizeLinear takes FP16 from this opset on."""


def insert_qdq(model: Model, scales: Scales) -> tuple[Model, tuple[Finding, ...]]:
    """A copy of `model` with Q/DQ layers for `scales`, and findings on scales that FP16 cannot hold.

    Raises OrinportError if the network cannot be raised to an opset that has such layers.
    """
    halves = any(value.dtype == ir.DataType.FLOAT16 for node in model.graph for value in node.outputs)
    raised = _raised(model, _HALF_OPSET if halves else _PER_CHANNEL_OPSET)
    work = _Inserter(raised)
    findings = work.activations(scales)
    work.weights()
    return work.model, findings


def _raised(model: Model, opset: int) -> Model:
    if model.opset >= opset:
        return copy_model(model)
    from dataclasses import replace

    try:
        proto = onnx.version_converter.convert_version(to_proto(model), opset)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OrinportError(f"The network cannot be raised from opset {model.opset} to {opset}: {reason}") from error
    return replace(load(proto), name=model.name, path=model.path)


class _Inserter:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph: ir.Graph = model.ir.graph
        self.names = Names(model.ir)
        self._zero = self._constant("int8_zero", np.int8(0))

    def _constant(self, base: str, array: NDArray[np.generic] | np.generic) -> ir.Value:
        name = self.names.unique(base)
        tensor = ir.tensor(np.asarray(array), name=name)
        value = ir.Value(
            name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        self.graph.initializers[name] = value
        return value

    def _pair(self, source: ir.Value, scale: ir.Value) -> tuple[ir.Node, ir.Node]:
        base = source.name or "tensor"
        quantize = ir.Node(
            "", "QuantizeLinear", [source, scale, self._zero], name=self.names.unique(f"{base}_quantize")
        )
        integers = quantize.outputs[0]
        integers.name, integers.shape = self.names.unique(f"{base}_int8"), source.shape
        integers.type = ir.TensorType(ir.DataType.INT8)
        restore = ir.Node(
            "", "DequantizeLinear", [integers, scale, self._zero], name=self.names.unique(f"{base}_restore")
        )
        floats = restore.outputs[0]
        floats.name, floats.shape = self.names.unique(f"{base}_restored"), source.shape
        floats.type = source.type
        return quantize, restore

    def activations(self, scales: Scales) -> tuple[Finding, ...]:
        """A pair on every run-time tensor of the graph that has a scale of its own."""
        findings: list[Finding] = []
        values = [*self.graph.inputs, *(output for node in list(self.graph) for output in node.outputs)]
        for value in values:
            given = scales.get(value.name or "")
            if given is None or given.origin is Origin.FUSED or value.const_value is not None:
                continue
            if dtype_of(value) is None or not is_quantisable(self.model.tensor(value)):
                continue
            assert value.dtype is not None
            with np.errstate(over="ignore", under="ignore"):
                number = np.asarray(given.value, value.dtype.numpy())
            if not np.isfinite(number) or number <= 0:
                findings.append(invalid_scale(value.name or "", float(number)))
                continue
            self._wrap(value, self._constant(f"{value.name}_scale", number))
        return tuple(findings)

    def _wrap(self, value: ir.Value, scale: ir.Value) -> None:
        """Everything that reads `value` reads it behind a pair, the network's output included."""
        uses = list(value.uses())
        leaves = value.is_graph_output()
        name = value.name or ""
        quantize, restore = self._pair(value, scale)
        for use in uses:
            use.node.replace_input_with(use.idx, restore.outputs[0])
        maker = value.producer()
        if maker is not None:
            self.graph.insert_after(maker, [quantize, restore])
        elif len(self.graph):
            self.graph.insert_before(self.graph[0], [quantize, restore])
        else:  # the input is the output
            self.graph.extend([quantize, restore])
        if leaves and maker is not None:
            position = next(index for index, each in enumerate(self.graph.outputs) if each is value)
            value.name = self.names.unique(f"{name}_before")
            restore.outputs[0].name = name
            self.graph.outputs[position] = restore.outputs[0]

    def weights(self) -> None:
        """Weights as INT8 with one scale an output channel, where the activation is in INT8 too."""
        done: dict[tuple[ir.Value, int], ir.Value] = {}
        for node in list(self.graph):
            axis = channel_axis(node)
            value = node.inputs[1] if axis is not None and len(node.inputs) > 1 else None
            if (
                axis is None
                or value is None
                or not value.is_initializer()
                or not is_quantisable(self.model.tensor(value))
                or not _is_restored(node.inputs[0])
            ):
                continue
            array = self.model.constant(value, limit=None)
            if array is None or array.ndim < 2 or not np.isfinite(array).all():
                continue
            key = value, axis % array.ndim
            if key not in done:
                done[key] = self._integers(value, array, axis % array.ndim, node)
            node.replace_input_with(1, done[key])
        unused = [
            name for name, each in self.graph.initializers.items() if not each.uses() and not each.is_graph_output()
        ]
        for name in unused:
            self.graph.initializers.pop(name)

    def _integers(self, value: ir.Value, array: NDArray[np.generic], axis: int, reader: ir.Node) -> ir.Value:
        others = tuple(each for each in range(array.ndim) if each != axis)
        largest = np.abs(array.astype(np.float32)).max(axis=others)
        steps = _steps(np.where(largest > 0, largest, np.float32(1)) / np.float32(LEVELS), array.dtype)
        shape = tuple(-1 if index == axis else 1 for index in range(array.ndim))
        integers = np.clip(np.rint(array.astype(np.float32) / steps.astype(np.float32).reshape(shape)), -LEVELS, LEVELS)
        base = value.name or "weights"
        stored = self._constant(f"{base}_int8", integers.astype(np.int8))
        zeros = self._constant(f"{base}_zero", np.zeros(steps.shape, np.int8))
        node = ir.Node(
            "",
            "DequantizeLinear",
            [stored, self._constant(f"{base}_scale", steps), zeros],
            [ir.AttrInt64("axis", axis)],
            name=self.names.unique(f"{base}_restore"),
        )
        node.outputs[0].name = self.names.unique(f"{base}_restored")
        node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
        self.graph.insert_before(reader, node)
        return node.outputs[0]


def _steps(wanted: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Steps in the type of the weights; what is not a normal number of it is rounded up, so that nothing saturates."""
    steps = wanted.astype(dtype)
    coarse = (steps == 0) | ((wanted < np.finfo(dtype).tiny) & (steps.astype(np.float32) < wanted))
    return np.where(coarse, np.nextafter(steps, np.asarray(np.inf, dtype)), steps)


def _is_restored(value: ir.Value | None) -> bool:
    """True if a pair stands in front of what reads `value`."""
    maker = None if value is None else value.producer()
    return maker is not None and maker.op_type == "DequantizeLinear"
