"""Gemm, MatMul, Einsum."""

# ruff: noqa: ARG001 - all lowerings have one signature
from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import integer, need, real, refuse_types, text
from orinport.model.lower.network import Network, Ref, Refused

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

__all__ = ["einsum", "gemm", "matmul"]

_INTEGERS = (DType.INT32, DType.INT64)


def gemm(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Gemm to MATRIX_MULTIPLY, products with alpha and beta where they are not 1, and a SUM.

    The parsers of TensorRT 8.5 and later make no FULLY_CONNECTED of it. Source: importGemm, onnx-tensorrt
    8.5 to 10.10.
    """
    refuse_types(need(inputs, 0), *_INTEGERS)
    alpha, beta = real(node, "alpha", 1.0), real(node, "beta", 1.0)
    a, b = net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1))
    for ref in (a, b):
        if ref.shape is not None and len(ref.shape) != 2:
            raise Refused(f"Gemm of an input of rank {len(ref.shape)}.")
    op0 = "TRANSPOSE" if integer(node, "transA", 0) else "NONE"
    op1 = "TRANSPOSE" if integer(node, "transB", 0) else "NONE"
    out = net.matmul(a, op0, b, op1)
    base = "" if net.parser.has("strongly_typed") else None
    if alpha != 1.0:
        out = _scaled(net, alpha, out, base)
    operand = inputs[2] if len(inputs) > 2 else None
    if operand is None:
        return [out]
    bias = net.tensor(operand)
    if beta != 1.0:
        bias = _scaled(net, beta, bias, base)
    out, bias = net.broadcast_pair(out, bias)
    return [net.elementwise(out, bias, "SUM", base=base)]


def _scaled(net: Network, factor: float, ref: Ref, base: str | None) -> Ref:
    shape = (1,) * len(ref.shape or ()) if net.parser.has("scalar_rank") else ()
    constant, ref = net.broadcast_pair(net.constant(factor, ref.dtype, shape), ref)
    return net.elementwise(constant, ref, "PROD", base=base)


def matmul(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """MatMul to MATRIX_MULTIPLY; the operand of lower rank gets dimensions in front by a SHUFFLE."""
    refuse_types(need(inputs, 0), *_INTEGERS)
    a, b = net.tensor(need(inputs, 0)), net.tensor(need(inputs, 1))
    head = tail = False
    if a.shape is not None and b.shape is not None:
        if len(a.shape) > len(b.shape) == 1:
            b = net.unsqueeze(b, [1])
            tail = True
        head = len(a.shape) == 1 < len(b.shape or ())
    a, b = net.broadcast_pair(a, b)
    ops = ["VECTOR" if ref.shape is not None and len(ref.shape) == 1 else "NONE" for ref in (a, b)]
    out = net.matmul(a, ops[0], b, ops[1])
    rank = None if out.shape is None else len(out.shape)
    if head:
        if out.shape is not None and out.shape[0] != 1:
            raise Refused("A vector times a batch of matrices.")
        # The vector became a 1 x K matrix behind leading ones, so the row dimension goes.
        out = net.squeeze(out, [0])
    if tail and rank is not None:
        out = net.squeeze(out, [rank - 1])
    return [out]


def einsum(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Einsum to EINSUM; from TensorRT 9 on more than two inputs become a chain of them."""
    refuse_types(need(inputs, 0), DType.UINT8)
    refs = [net.tensor(need(inputs, i)) for i in range(len(inputs))]
    equation = text(node, "equation", "").replace(" ", "")
    if not net.parser.has("int64") and ("..." in equation or any(c.isupper() for c in equation)):
        raise Refused("Ellipsis and capital subscripts are not taken in Einsum.")
    while len(refs) > 2:
        refs[:2] = [net.add(LayerKind.EINSUM, refs[:2], None, refs[0].dtype, {"equation": ""})]
    return [net.add(LayerKind.EINSUM, refs, None, refs[0].dtype, {"equation": equation})]
