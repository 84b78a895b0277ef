"""A matrix multiplication.

## What it checks
Every MatrixMultiply layer. With two operands that are computed at run time it is refused. With a constant
operand documents differ: the builder refuses the layer, the operator table of NVIDIA's DLA software calls it
native because TensorRT may turn it into a convolution. Then the verdict is `unknown` if the second operand is
the constant, and the rewrite settles it.

## Why it matters
The DLA multiplies in its convolution engine only, and that takes weights which the compiler has packed into the
loadable. The builder says: "MatMul is unsupported on DLA, relax constraints or use Convolution layer instead."
A product whose second operand changes with every inference has no weights to pack.

## Example
The scores Q * K^T of an attention layer (two runtime operands); the linear layers around it (a constant
operand).

## What to do
Constant operand: prepare writes it as a 1x1 convolution. Two runtime operands: prepare writes a small product with
copies, an element-wise product and a sum over the channels; leave a large one to the GPU, or ask `orinport matmul` what
the ways would cost.

## Fix safety
The rewrites matmul-to-conv, gemm-to-conv and matmul-to-elementwise are exact up to the order of additions.

## Source
Rows X02, C14b and CF06: builder log from 8.5 on; operator table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import GEMM_TO_CONV, MATMUL_TO_CONV, MATMUL_TO_ELEMENTWISE
from orinport.rules.rule import LayerRule
from orinport.rules.support import by, finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_MESSAGE = '"MatMul is unsupported on DLA, relax constraints or use Convolution layer instead"'
_CONSTANT = "Write it as a 1x1 convolution with the constant as weights."
_RUNTIME = (
    "A small product can be done with copies, an element-wise product and a sum over channels; a large one stays on the"
    " GPU, and 'orinport matmul' ranks the ways. If one operand is in fact constant, make it an initializer, and it"
    " becomes a 1x1 convolution."
)


class MatrixMultiply(LayerRule):
    code = "DLA010"
    title = "Matrix multiplication"
    rows = ("X02", "C14b", "CF06")
    kinds = (LayerKind.MATRIX_MULTIPLY,)
    fix = MATMUL_TO_CONV

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        first, second = layer.inputs
        sizes = f"{_shape(first, layer['op0'])} x {_shape(second, layer['op1'])}"
        # Only a Gemm comes with transposed operands.
        rewrite = GEMM_TO_CONV if "TRANSPOSE" in (layer["op0"], layer["op1"]) else MATMUL_TO_CONV
        row = context.rows.get("X02")
        if row is None:
            yield finding(
                self,
                layer,
                (),
                f"Matrix product {sizes}: no document of this TensorRT version names the layer.",
                value=sizes,
                limit=None,
                advice=_CONSTANT if first.constant or second.constant else _RUNTIME,
                verdict=Verdict.UNKNOWN,
                fix=rewrite if first.constant or second.constant else MATMUL_TO_ELEMENTWISE,
            )
        elif second.constant:
            yield finding(
                self,
                layer,
                holding(context, ("CF06", "X02")),
                f"Matrix product {sizes} with a constant: TensorRT says {_MESSAGE}, NVIDIA's operator table calls it"
                " native as a 1x1 convolution; documents differ.",
                value=sizes,
                limit="convolution with constant weights",
                advice=_CONSTANT,
                verdict=Verdict.UNKNOWN,
                fix=rewrite,
            )
        else:
            why = (
                "the weights of a convolution are packed into the loadable, so the second operand, in their place,"
                " has to be the constant"
                if first.constant
                else "both operands are computed at run time, and the DLA multiplies only in convolutions whose weights"
                " are packed into the loadable"
            )
            yield finding(
                self,
                layer,
                row,
                f"Matrix product {sizes}: TensorRT says {_MESSAGE}: {why}.",
                value=sizes,
                limit="convolution with constant weights",
                advice=_CONSTANT if first.constant else _RUNTIME,
                fix=rewrite if first.constant else MATMUL_TO_ELEMENTWISE,
            )


def _shape(tensor: Tensor, operation: str) -> str:
    """The operand's shape as it enters the product."""
    if tensor.shape is None:
        return "?"
    shape = (1, *tensor.shape) if operation == "VECTOR" else tensor.shape
    return by((*shape[:-2], *shape[:-3:-1]) if operation == "TRANSPOSE" else shape)


RULE = MatrixMultiply()
