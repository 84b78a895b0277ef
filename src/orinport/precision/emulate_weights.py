"""Weights of products in the emulation: one row an output channel, as integers with a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.precision.nvdla_arithmetic import INT8, bias_of, quantize
from orinport.precision.scales import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir
    from numpy.typing import NDArray

__all__ = ["Form", "Weights", "largest_sum", "quantized_weights"]

Weights = tuple["NDArray[np.int8]", "NDArray[np.float64]", "NDArray[np.int64]"]
"""Integers (output channels, inputs), the accumulator's step and the bias of each output channel."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the weights of a node become one row an output channel, and back."""

    groups: int
    kernels: int
    shape: tuple[int, ...]
    turned: bool
    """Input channels come first: deconvolution, and a matrix that is not transposed."""
    last: bool
    """Output channels are the last dimension of the result, not the second."""

    @classmethod
    def of(cls, node: ir.Node, weights: NDArray[Any]) -> Form | None:
        """None for what a row an output channel does not describe."""
        attributes = node.attributes
        shape = weights.shape
        if node.op_type == "Conv":
            groups = attributes["group"].as_int() if "group" in attributes else 1
            return cls(groups, shape[0], shape, False, False)
        if node.op_type == "ConvTranspose":
            groups = attributes["group"].as_int() if "group" in attributes else 1
            return cls(groups, shape[1] * groups, shape, True, False)
        if len(shape) != 2:
            return None
        if node.op_type == "MatMul":
            return cls(1, shape[1], shape, True, True)
        plain = all(attributes[name].as_float() == 1.0 for name in ("alpha", "beta") if name in attributes)
        if not plain or ("transA" in attributes and attributes["transA"].as_int()):
            return None
        turned = not ("transB" in attributes and attributes["transB"].as_int())
        return cls(1, shape[1] if turned else shape[0], shape, turned, True)

    def rows(self, weights: NDArray[Any]) -> NDArray[Any]:
        """(output channels, input channels of its group * taps)."""
        if not self.turned:
            return weights.reshape(self.kernels, -1)
        inputs, outputs = self.shape[0] // self.groups, self.kernels // self.groups
        grouped = weights.reshape(self.groups, inputs, outputs, -1)
        result: NDArray[Any] = grouped.transpose(0, 2, 1, 3).reshape(self.kernels, -1)
        return result

    def weights(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `rows`."""
        if not self.turned:
            return rows.reshape(self.shape)
        inputs, outputs = self.shape[0] // self.groups, self.kernels // self.groups
        grouped = rows.reshape(self.groups, outputs, inputs, -1)
        return np.ascontiguousarray(grouped.transpose(0, 2, 1, 3)).reshape(self.shape)

    def broadcast(self, rank: int) -> tuple[int, ...]:
        """The shape in which one number an output channel broadcasts against a result of this rank."""
        return (-1,) if self.last else (-1, *[1] * (rank - 2))

    def cut(self, rows: NDArray[np.int8], fits: Callable[[NDArray[np.int8]], bool]) -> list[NDArray[np.int8]]:
        """Rows that add up to `rows`, each with zeros for a run of inputs, as few halvings as it takes to fit."""
        count = 1
        parts = [rows]
        while count < rows.shape[1] and not all(fits(part) for part in parts):
            count *= 2
            owner = np.arange(rows.shape[1]) * count // rows.shape[1]
            parts = [np.where(owner == number, rows, np.int8(0)) for number in range(count)]
        return parts


def quantized_weights(
    form: Form,
    weights: NDArray[Any],
    bias: NDArray[Any] | None,
    scale: float,
    given: NDArray[np.float32] | None = None,
) -> Weights:
    """Integers of rows, the accumulator's step of each, and the bias in such steps.

    `given` are steps that the network states, in a shape that broadcasts against `weights`; they count where they are
    finite and positive, and one for a whole row.
    """
    rows = np.asarray(form.rows(weights), np.float32)
    offset = np.zeros(form.kernels) if bias is None else np.broadcast_to(bias.reshape(-1), form.kernels)
    steps = _weight_steps(rows, offset, scale)
    if given is not None:
        stated = form.rows(np.broadcast_to(given, weights.shape))
        whole = (stated == stated[:, :1]).all(axis=1) & np.isfinite(stated[:, 0]) & (stated[:, 0] > 0)
        steps = np.where(whole & rows.any(axis=1), stated[:, 0], steps)
    low = -LEVELS if given is None else INT8[0]
    units = np.float64(scale) * steps.astype(np.float64)
    adds = np.array([bias_of(float(b), float(unit)) for b, unit in zip(offset, units, strict=True)], np.int64)
    return quantize(rows / steps[:, None], 1.0, (low, LEVELS)).astype(np.int8), units, adds


def _weight_steps(rows: NDArray[Any], bias: NDArray[Any], input_scale: float) -> NDArray[np.float32]:
    """One scale an output channel: its largest magnitude / 127; where all are zero, a step that the bias fits."""
    largest = np.abs(rows.astype(np.float32)).max(axis=1, initial=0.0)
    for_bias = np.abs(bias.astype(np.float64)) / (input_scale * ((1 << 15) - 1))
    for_bias = np.where(for_bias > np.finfo(np.float32).tiny, for_bias, 1.0)
    steps = largest / np.float32(LEVELS)
    return np.where(steps > np.finfo(np.float32).tiny, steps, for_bias).astype(np.float32)


def largest_sum(rows: NDArray[np.int8], low: int, high: int) -> NDArray[np.int64]:
    """The largest magnitude that any partial sum of a row can have with inputs from `low` to `high`."""
    positive = np.maximum(rows, 0).sum(axis=1, dtype=np.int64)
    negative = -np.minimum(rows, 0).sum(axis=1, dtype=np.int64)
    low, high = -min(low, 0), max(high, 0)
    bound: NDArray[np.int64] = np.maximum(positive * high + negative * low, positive * low + negative * high)
    return bound
