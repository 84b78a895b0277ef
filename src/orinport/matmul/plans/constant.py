"""A constant operand as the weights of a convolution.

K becomes channels, the constant's other side kernels, and rows of the other operand positions: one 1x1
convolution. Rows of all products share the weights, so one inference computes as many products as fit the
map. Where K is too large for one dimension it is folded into the height of the kernel, with a stride of the
same size. A constant on the left is the transposed problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.matmul.plan import Candidate, Feed, Layout, Limits, PlanKind, grid
from orinport.matmul.plans._network import Net
from orinport.matmul.product import Constant, Product
from orinport.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

_ATOM = 64


class ConstantPlan(PlanKind):
    name = "constant weights"

    def candidates(self, product: Product, limits: Limits, constant: NDArray[Any] | None) -> Iterator[Candidate]:
        if constant is None or product.distinct:
            return
        turned = product.constant is Constant.LHS
        rows, columns = (product.n, product.m) if turned else (product.m, product.n)
        weights = constant if turned else constant.T
        most = max(1, limits.dimension * limits.dimension // rows)
        for products in dict.fromkeys((min(product.count, most), 1)):
            for fold in _folds(product.k, limits):
                yield _build(product, weights, rows, columns, products, fold, limits, turned=turned)


def _folds(k: int, limits: Limits) -> list[int]:
    """Heights of the kernel that K is folded into: the least that fits, and the least that fills whole atoms."""
    fitting = [
        fold
        for fold in range(1, min(limits.stride, limits.kernel) + 1)
        if k % fold == 0 and k // fold <= limits.dimension
    ]
    whole = [fold for fold in fitting if k // fold % _ATOM == 0]
    return list(dict.fromkeys([*fitting[:1], *whole[:1]]))


def _build(
    product: Product,
    weights: NDArray[np.floating[Any]],
    rows: int,
    columns: int,
    products: int,
    fold: int,
    limits: Limits,
    *,
    turned: bool,
) -> Candidate:
    """`weights` is (columns, K): one kernel for each column of the result."""
    k = product.k
    channels = k // fold
    height, width, pad = grid(products * rows, limits.dimension // fold, limits.dimension)
    net = Net("product")
    source = net.input("b" if turned else "a", (1, channels, height * fold, width))
    kernel = weights.reshape(columns, fold, channels).transpose(0, 2, 1)[..., None]
    outputs = {}
    parts = range(0, columns, limits.dimension)
    for number, start in enumerate(parts):
        stop = min(columns, start + limits.dimension)
        name = "y" if len(parts) == 1 else f"y{number}"
        net.conv(source, kernel[start:stop], name, strides=[fold, 1])
        net.output(name, (1, stop - start, height, width))
        outputs[name] = (_output(products, rows, stop - start, height, width, pad, turned=turned), slice(start, stop))
    # A stack (products, rows, K) becomes (K / fold, height, fold, width); a turned one comes as (products, K, rows).
    read = Layout(
        (0, 2, 1) if turned else (0, 1, 2),
        (products * rows, fold, channels),
        (pad, 0, 0),
        (height, width, fold, channels),
        (3, 0, 2, 1),
        (1, channels, height * fold, width),
    )
    folded = f", K folded into a kernel of {fold}x1" if fold > 1 else ""
    return Candidate(
        f"{fold}x1 convolution, {count(products, 'product')} an inference",
        f"{products * rows} rows are positions ({height}x{width}), K = {channels} channels{folded}, the constant is"
        f" {columns} kernels",
        products,
        net.model(),
        {source: Feed(source, read)},
        outputs,
    )


def _output(products: int, rows: int, columns: int, height: int, width: int, pad: int, *, turned: bool) -> Layout:
    """From (columns, height, width) back to (products, rows, columns)."""
    return Layout(
        (0, 2, 1) if turned else (0, 1, 2),
        (products * rows, columns),
        (pad, 0),
        (height, width, columns),
        (2, 0, 1),
        (1, columns, height, width),
    )


PLAN = ConstantPlan()
