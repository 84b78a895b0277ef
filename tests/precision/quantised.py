"""Networks with Q/DQ layers for tests, as the quantisers export them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from builders import network, node

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx


_ZERO = np.int8(0)


class QuantisedNetwork:
    """Builds a network with Q/DQ pairs node by node."""

    def __init__(self, opset: int = 17) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.opset = opset
        self.rng = np.random.default_rng(0)

    def op(self, op_type: str, inputs: Sequence[str], output: str | Sequence[str], **attributes: Any) -> str:
        """One node; gives its first output."""
        self.nodes.append(node(op_type, inputs, output, **attributes))
        return output if isinstance(output, str) else output[0]

    def pair(
        self,
        source: str,
        scale: float | np.ndarray,
        *,
        zero: Any = _ZERO,
        name: str = "",
        output: str = "",
        axis: int | None = None,
    ) -> str:
        """A QuantizeLinear and a DequantizeLinear on `source`; `zero=None` leaves the zero point out."""
        tag = name or f"{source}_q{len(self.nodes)}"
        self.constants[f"{tag}_s"] = np.asarray(scale, np.float32)
        parameters = [f"{tag}_s"]
        if zero is not None:
            self.constants[f"{tag}_z"] = np.asarray(zero)
            parameters.append(f"{tag}_z")
        more = {} if axis is None else {"axis": axis}
        self.op("QuantizeLinear", [source, *parameters], f"{tag}_i", **more)
        return self.op("DequantizeLinear", [f"{tag}_i", *parameters], output or f"{tag}_f", **more)

    def weights(
        self,
        name: str,
        shape: Sequence[int],
        *,
        axis: int | None = 0,
        integers: bool = False,
        factor: float = 1.0,
        zero: bool = True,
    ) -> str:
        """Weights quantised by channel, or by tensor with `axis=None`; stored as integers or before a pair."""
        floats = self.rng.normal(0, 0.2, shape).astype(np.float32)
        others = None if axis is None else tuple(i for i in range(len(shape)) if i != axis)
        scale = (np.abs(floats).max(axis=others) / 127 * factor).astype(np.float32)
        along = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        self.constants[f"{name}_s"] = scale
        parameters = [f"{name}_s"]
        if zero:
            self.constants[f"{name}_z"] = np.zeros(scale.shape, np.int8)
            parameters.append(f"{name}_z")
        more = {} if axis is None else {"axis": axis}
        if integers:
            self.constants[f"{name}_i"] = np.clip(np.rint(floats / along), -127, 127).astype(np.int8)
        else:
            self.constants[name] = floats
            self.op("QuantizeLinear", [name, *parameters], f"{name}_i", **more)
        return self.op("DequantizeLinear", [f"{name}_i", *parameters], f"{name}_f", **more)

    def conv(
        self, source: str, output: str, channels: tuple[int, int] = (4, 4), kernel: int = 3, **weights: Any
    ) -> str:
        """A convolution with quantised weights."""
        shape = (channels[1], channels[0], kernel, kernel)
        pad = kernel // 2
        return self.op("Conv", [source, self.weights(f"w_{output}", shape, **weights)], output, pads=[pad] * 4)

    def model(self, inputs: dict[str, Any], outputs: Sequence[str]) -> onnx.ModelProto:
        """The network."""
        return network(self.nodes, inputs, list(outputs), self.constants, opset=self.opset)
