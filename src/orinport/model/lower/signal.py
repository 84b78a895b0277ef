"""Windows and STFT, of TensorRT 10.4 and later."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import integer, need, whole_numbers
from orinport.model.lower.network import Network, Ref, Refused, Weights

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

__all__ = ["blackman_window", "hamming_window", "hann_window", "stft"]


def _window(net: Network, node: ir.Node, inputs: Inputs) -> tuple[Ref, Ref]:
    """The length, a scalar, and the numbers from 0 up to it."""
    if integer(node, "output_datatype", 1) != 1:
        raise Refused("A window of another type than fp32.")
    length = net.tensor(need(inputs, 0))
    if length.shape != ():
        raise Refused("The length of the window is no scalar.")
    extent = net.shuffle(length, (1,), base=net.helper("ShapeShuffle"))
    shape = None if extent.values is None else (int(extent.values[0]),)
    attributes = {"op": "LINSPACE"}
    return length, net.add(LayerKind.FILL, (extent,), shape, DType.FP32, attributes, base=net.helper("ShapeFill"))


def _constant(net: Network, value: float) -> Ref:
    return net.constant(value, DType.FP32, (1,))


def _wave(net: Network, node: ir.Node, length: Ref, numbers: Ref, factor: float, op: str) -> Ref:
    """A trigonometric function of `factor` times each number, divided by the length."""
    scaled = net.elementwise(_constant(net, factor), numbers, "PROD", base=None)
    if integer(node, "periodic", 1) == 0:
        one = net.cast(net.constant(1, DType.INT32, ()), length.dtype)
        length = net.elementwise(length, one, "SUB", base=None)
    divisor = net.broadcast(net.cast(length, DType.FP32), 1)
    return net.unary(net.elementwise(scaled, divisor, "DIV", base=None), op, base=None)


def hann_window(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """HannWindow to FILL, a sine and its square."""
    length, numbers = _window(net, node, inputs)
    sine = _wave(net, node, length, numbers, pi, "SIN")
    return [net.elementwise(sine, sine, "PROD")]


def hamming_window(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """HammingWindow to FILL, a cosine and arithmetic."""
    length, numbers = _window(net, node, inputs)
    cosine = _wave(net, node, length, numbers, 2 * pi, "COS")
    part = net.elementwise(_constant(net, 21 / 46), cosine, "PROD")
    return [net.elementwise(_constant(net, 25 / 46), part, "SUB")]


def blackman_window(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """BlackmanWindow to FILL, two cosines and arithmetic."""
    length, numbers = _window(net, node, inputs)
    slow = _wave(net, node, length, numbers, 2 * pi, "COS")
    first = net.elementwise(_constant(net, 0.5), slow, "PROD")
    fast = _wave(net, node, length, numbers, 4 * pi, "COS")
    second = net.elementwise(_constant(net, 0.08), fast, "PROD")
    return [net.elementwise(net.elementwise(_constant(net, 0.42), first, "SUB"), second, "SUM")]


def _weights(inputs: Inputs, index: int) -> Weights | None:
    operand = inputs[index] if index < len(inputs) else None
    if operand is None:
        return None
    if not isinstance(operand, Weights):
        raise Refused(f"Input {index} of STFT is not known at build time.")
    return operand


def stft(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """STFT of a real signal to two CONVOLUTION, CONCATENATION and SHUFFLE."""
    ref = net.tensor(need(inputs, 0))
    if ref.shape is None or len(ref.shape) not in {2, 3} or (len(ref.shape) == 3 and ref.shape[2] != 1):
        raise Refused("The signal is not real.")
    if len(ref.shape) == 3:
        ref = net.squeeze(ref, [2])
    if ref.dtype is not DType.FP32:
        raise Refused(f"A signal of type {ref.dtype.value}.")
    step = whole_numbers(_weights(inputs, 1))
    window, length = _weights(inputs, 2), whole_numbers(_weights(inputs, 3))
    if step is None or (window is None and length is None):
        raise Refused("The step or the length of the frames is missing.")
    frame = length[0] if length else (window.shape[0] if window is not None else 0)
    bins = frame // 2 + 1 if integer(node, "onesided", 1) else frame
    signal = net.unsqueeze(ref, [1, 2])
    assert signal.shape is not None
    frames = (signal.shape[3] - frame) // step[0] + 1
    attributes = {
        "kernel": (1, frame),
        "stride": (1, step[0]),
        "dilation": (1, 1),
        "pre_padding": (0, 0),
        "post_padding": (0, 0),
        "padding_mode": "EXPLICIT_ROUND_DOWN",
        "groups": 1,
        "output_maps": bins,
        "has_bias": False,
        "constant_kernel": True,
        "weight_values": bins * frame,
    }
    shape = (signal.shape[0], bins, 1, frames)
    parts = [net.add(LayerKind.CONVOLUTION, (signal,), shape, DType.FP32, dict(attributes)) for _ in range(2)]
    return [net.shuffle(net.concat(parts, 2), first=(0, 3, 1, 2))]
