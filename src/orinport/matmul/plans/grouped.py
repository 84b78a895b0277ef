"""A constant of its own for every product: a grouped convolution, or dense blocks of several products.

Products lie side by side in the channels; each group has the weights of one product. Dense blocks put several
products into one group with zeros between them: more multiplications, but whole atoms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.matmul.plan import Candidate, Feed, Layout, Limits, PlanKind, grid
from orinport.matmul.plans._network import Net
from orinport.matmul.product import Constant, Product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_ATOM = 64


class GroupedPlan(PlanKind):
    name = "grouped weights"

    def candidates(self, product: Product, limits: Limits, constant: NDArray[Any] | None) -> Iterator[Candidate]:
        if constant is None or not product.distinct:
            return
        turned = product.constant is Constant.LHS
        rows, columns = (product.n, product.m) if turned else (product.m, product.n)
        weights = constant if turned else constant.transpose(0, 2, 1)
        most = limits.dimension // max(product.k, columns)
        if most < 1:
            return
        packed = max(1, _ATOM // max(product.k, columns))
        for together in dict.fromkeys((1, packed)):
            products = min(product.count, most // together * together)
            products -= products % together
            if products:
                yield _build(product, weights[:products], rows, columns, products, together, limits, turned=turned)


def _build(
    product: Product,
    weights: NDArray[Any],
    rows: int,
    columns: int,
    products: int,
    together: int,
    limits: Limits,
    *,
    turned: bool,
) -> Candidate:
    """`weights` is (products, columns, K)."""
    k = product.k
    height, width, pad = grid(rows, limits.dimension, limits.dimension)
    net = Net("products")
    source = net.input("b" if turned else "a", (1, products * k, height, width))
    groups = products // together
    blocks = np.zeros((groups, together, columns, together, k), weights.dtype)
    each = np.arange(together)
    blocks[:, each, :, each, :] = weights.reshape(groups, together, columns, k).transpose(1, 0, 2, 3)
    kernel = blocks.reshape(products * columns, together * k, 1, 1)
    net.conv(source, kernel, "y", group=groups)
    net.output("y", (1, products * columns, height, width))

    def layout(size: int) -> Layout:
        # (products, rows, size) to (products * size, height, width)
        perm = (2, 0, 1) if turned else (1, 0, 2)
        return Layout(
            perm,
            (rows, products, size),
            (pad, 0, 0),
            (height, width, products * size),
            (2, 0, 1),
            (1, products * size, height, width),
        )

    kind = "grouped convolution" if together == 1 else f"blocks of {together} products on the diagonal"
    return Candidate(
        f"{kind}, {products} products an inference",
        f"{products} products side by side in {products * k} channels, {groups} groups, {rows} rows are positions",
        products,
        net.model(),
        {source: Feed(source, layout(k))},
        {"y": (layout(columns), slice(0, columns))},
    )


PLAN = GroupedPlan()
