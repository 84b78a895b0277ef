"""What a plan is: a network of DLA layers, and how the matrices become its inputs and outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from orinport.matmul.product import Product

__all__ = ["Candidate", "Feed", "Layout", "Limits", "PlanKind", "grid"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the DLA allows: sizes of dimensions, stride, kernel, resize factor."""

    dimension: int
    stride: int
    kernel: int
    resize: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How a stack of matrices (products, rows, columns) becomes one network input, or comes from an output.

    board = pad(original.transpose(perm).reshape(expand), pads).reshape(middle).transpose(order).reshape(shape);
    `pads` says how many zeros are appended along each axis. Outputs go the same way back.
    """

    perm: tuple[int, ...]
    expand: tuple[int, ...]
    pads: tuple[int, ...]
    middle: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def to_board(self, array: NDArray[Any]) -> NDArray[Any]:
        """The network's tensor from the stack of matrices."""
        spread = array.transpose(self.perm).reshape(self.expand)
        padded = np.pad(spread, [(0, pad) for pad in self.pads])
        return np.ascontiguousarray(padded.reshape(self.middle).transpose(self.order).reshape(self.shape))

    def from_board(self, array: NDArray[Any], original: Sequence[int]) -> NDArray[Any]:
        """The stack of matrices, of shape `original`, from the network's tensor."""
        ordered = array.reshape([self.middle[axis] for axis in self.order]).transpose(np.argsort(self.order))
        padded = [size + pad for size, pad in zip(self.expand, self.pads, strict=True)]
        kept = tuple(slice(0, size) for size in self.expand)
        turned = [original[axis] for axis in self.perm]
        return np.ascontiguousarray(ordered.reshape(padded)[kept].reshape(turned).transpose(np.argsort(self.perm)))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Feed:
    """What a network input holds: operand `a` or `b`."""

    operand: str
    layout: Layout

    def of(self, a: NDArray[Any] | None, b: NDArray[Any] | None) -> NDArray[Any]:
        """The input's tensor from the stacks a (products, m, k) and b (products, k, n)."""
        stack = a if self.operand == "a" else b
        assert stack is not None
        return self.layout.to_board(stack)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"operand": self.operand, "layout": self.layout.document()}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute products on the DLA.

    `inputs` says what the network's inputs hold; `outputs` maps its outputs to a layout and the columns (or
    rows, of the transposed problem) that they hold.
    """

    name: str
    explanation: str
    products: int
    """Products that one inference computes."""
    model: onnx.ModelProto
    inputs: Mapping[str, Feed]
    outputs: Mapping[str, tuple[Layout, slice]]


class PlanKind(ABC):
    """A family of plans: one file each, found by looking into `matmul/plans`."""

    name: ClassVar[str]

    @abstractmethod
    def candidates(self, product: Product, limits: Limits, constant: NDArray[Any] | None) -> Iterator[Candidate]:
        """Plans for `product`; none where the family does not apply.

        `constant` holds the constant operand: (m, k) or (k, n), or with `distinct` one for each product.
        """


def grid(positions: int, highest: int, widest: int) -> tuple[int, int, int]:
    """Height, width and unused positions of a map of at most `highest` by `widest` that holds `positions`.

    A map that is filled exactly is preferred, rows of a multiple of 32 before others; if none of useful width
    exists, rows of a multiple of 32 with the last ones left empty.
    """
    root = int(positions**0.5)
    exact = [(positions // w, w) for w in range(1, min(positions, widest) + 1) if positions % w == 0]
    fitting = [(h, w) for h, w in exact if h <= highest]
    packed = [(h, w) for h, w in fitting if w % 32 == 0]
    useful = packed or [(h, w) for h, w in fitting if w >= 8 or w == positions]
    if useful:
        height, width = min(useful, key=lambda hw: abs(hw[1] - root))
        return height, width, 0
    width = min(widest, -(-max(root, -(-positions // highest)) // 32) * 32)
    height = -(-positions // width)
    return height, width, height * width - positions
