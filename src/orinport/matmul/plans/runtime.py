"""Both operands known at run time only: multiply element by element, then sum with a convolution of ones.

The DLA multiplies two runtime tensors only element by element. Every product of one element of A with one of B
gets a channel: 1x1 convolutions with ones and zeros copy the elements of A and of B to M K N channels, an
elementwise product multiplies them, and a third convolution sums over K. Products are positions, so that
many small ones run at once. For larger matrices K is the channels and the map is M by N: nearest resizes repeat the
rows of A along the width and the columns of B along the height, and a convolution of ones sums the channels.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.matmul.plan import Candidate, Feed, Layout, Limits, PlanKind, grid
from orinport.matmul.plans._network import Net
from orinport.matmul.product import Constant, Product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_MOST_CHANNELS = 2048


class RuntimePlan(PlanKind):
    name = "runtime operands"

    def candidates(self, product: Product, limits: Limits, constant: NDArray[Any] | None) -> Iterator[Candidate]:
        if constant is not None or product.constant is not Constant.NONE:
            return
        m, k, n = product.m, product.k, product.n
        if m * k * n <= min(_MOST_CHANNELS, limits.dimension):
            yield _channels(product, min(product.count, limits.dimension * limits.dimension), limits)
        if k <= limits.dimension:
            whole = _map(product, limits)
            if whole is not None:
                yield whole


def _channels(product: Product, products: int, limits: Limits) -> Candidate:
    m, k, n = product.m, product.k, product.n
    height, width, pad = grid(products, limits.dimension, limits.dimension)
    net = Net("products")
    a = net.input("a", (1, m * k, height, width))
    b = net.input("b", (1, k * n, height, width))
    index = np.arange(m * k * n).reshape(m, k, n)
    copy_a = np.zeros((m * k * n, m * k, 1, 1))
    copy_b = np.zeros((m * k * n, k * n, 1, 1))
    total = np.zeros((m * n, m * k * n, 1, 1))
    for i, j, c in np.ndindex(m, k, n):
        copy_a[index[i, j, c], i * k + j] = 1
        copy_b[index[i, j, c], j * n + c] = 1
        total[i * n + c, index[i, j, c]] = 1
    net.conv(a, copy_a, "elements_a")
    net.conv(b, copy_b, "elements_b")
    net.node("Mul", ["elements_a", "elements_b"], "products")
    net.conv("products", total, "y")
    net.output("y", (1, m * n, height, width))

    def layout(size: int) -> Layout:
        return Layout((0, 1, 2), (products, size), (pad, 0), (height, width, size), (2, 0, 1), (1, size, height, width))

    return Candidate(
        f"elements as channels, {products} product{'s' if products > 1 else ''} an inference",
        f"{products} products are positions ({height}x{width}); M K N = {m * k * n} channels hold every single"
        " multiplication, a convolution of ones sums over K",
        products,
        net.model(),
        {"a": Feed("a", layout(m * k)), "b": Feed("b", layout(k * n))},
        {"y": (layout(m * n), slice(0, n))},
    )


def _map(product: Product, limits: Limits) -> Candidate | None:
    """One product an inference over a map of M by N; None if a side needs more repetitions than fit."""
    m, k, n = product.m, product.k, product.n
    down, along = repetitions(m, limits), repetitions(n, limits)
    height, width = prod(down), prod(along)
    if max(height, width) > limits.dimension:
        return None
    net = Net("product")
    a = net.input("a", (1, k, height, 1))
    b = net.input("b", (1, k, 1, width))
    wide = _repeat(net, a, [(1, factor) for factor in along])
    high = _repeat(net, b, [(factor, 1) for factor in down])
    net.node("Mul", [wide, high], "products")
    net.conv("products", np.ones((1, k, 1, 1)), "y")
    net.output("y", (1, 1, height, width))
    read_a = Layout((0, 1, 2), (m, k), (height - m, 0), (height, k), (1, 0), (1, k, height, 1))
    read_b = Layout((0, 1, 2), (k, n), (0, width - n), (k, width), (0, 1), (1, k, 1, width))
    written = Layout((0, 1, 2), (m, n), (height - m, width - n), (height, width), (0, 1), (1, 1, height, width))
    return Candidate(
        "map of M by N, 1 product an inference",
        f"K = {k} channels; resizes repeat A {'x'.join(map(str, along))} times along the width and B"
        f" {'x'.join(map(str, down))} times along the height of a {height}x{width} map; a convolution of ones sums K",
        1,
        net.model(),
        {"a": Feed("a", read_a), "b": Feed("b", read_b)},
        {"y": (written, slice(0, n))},
    )


def _repeat(net: Net, x: str, factors: list[tuple[int, int]]) -> str:
    """Nearest resizes by (height, width), one after the other."""
    for number, (high, wide) in enumerate(factors):
        if (high, wide) == (1, 1):
            continue
        name = f"{x}_repeated{number}"
        scales = net.constant(f"{name}_scales", np.array([1, 1, high, wide], np.float32))
        x = net.node(
            "Resize",
            [x, "", scales],
            name,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return x


def repetitions(size: int, limits: Limits) -> tuple[int, ...]:
    """Factors within the limit of one resize, as few as can be, whose product is at least `size` and close to it."""
    if size <= limits.resize:
        return (size,)
    best: tuple[int, ...] = ()
    for factor in range(2, limits.resize + 1):
        rest = repetitions(-(-size // factor), limits)
        found = (factor, *rest)
        if not best or (len(found), prod(found)) < (len(best), prod(best)):
            best = found
    return best


PLAN = RuntimePlan()
