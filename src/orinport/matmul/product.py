"""The matrix products that are asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from orinport.errors import OrinportError

__all__ = ["Constant", "Product", "parse_product"]

_LARGEST = 1 << 24
_SHAPES = re.compile(r"\s*(\d+)\s*x\s*(\d+)\s*(?:@|\*)\s*(\d+)\s*x\s*(\d+)\s*")


class Constant(str, Enum):
    """Which operand is known when the network is built."""

    RHS = "rhs"
    LHS = "lhs"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Product:
    """`count` products of (m, k) by (k, n).

    With a constant operand all products share it, unless `distinct`: then each has its own.
    """

    m: int
    k: int
    n: int
    count: int = 1
    constant: Constant = Constant.RHS
    distinct: bool = False

    def __post_init__(self) -> None:
        for name in ("m", "k", "n", "count"):
            value = getattr(self, name)
            if not 1 <= value <= _LARGEST:
                raise OrinportError(f"{name} is {value}; it has to be between 1 and {_LARGEST}.")
        if self.distinct and self.constant is Constant.NONE:
            raise OrinportError("Distinct constants need a constant operand.", "Choose --constant rhs or lhs.")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all products."""
        return self.count * self.m * self.k * self.n

    @property
    def turned(self) -> Product:
        """The transposed problem: Y' = B' A'; it has its constant on the other side."""
        other = {Constant.LHS: Constant.RHS, Constant.RHS: Constant.LHS, Constant.NONE: Constant.NONE}
        return Product(self.n, self.k, self.m, self.count, other[self.constant], self.distinct)

    def __str__(self) -> str:
        times = f"{self.count} x " if self.count > 1 else ""
        return f"{times}{self.m}x{self.k} @ {self.k}x{self.n}"


def parse_product(text: str) -> tuple[int, int, int]:
    """M, K, N of `128x1024@1024x128`. Raises OrinportError for another spelling, or shapes that do not fit."""
    found = _SHAPES.fullmatch(text)
    if found is None:
        raise OrinportError(f"{text!r} is no matrix product.", "Write it like 128x1024@1024x128.")
    m, k, other, n = map(int, found.groups())
    if k != other:
        raise OrinportError(f"{m}x{k} and {other}x{n} do not fit: the inner sizes are {k} and {other}.")
    return m, k, n
