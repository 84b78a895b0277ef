"""Names of TensorRT's layers taken apart: what a fused or wrapped name stands for.

Forms on record in public logs, profiles and layer information of TensorRT 7 to 10, and in cuDLA's layer statistics:
`a + b`, `a+b`, `a || b` (products side by side), `PWN(PWN(a), b)` (point-wise layers fused), `{ForeignNode[a...b]}`
(a region of the DLA or of Myelin, from its first to its last layer) and `{a,b,c}` (a region before TensorRT 8).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from orinport.model.layer import Layer

__all__ = ["by_name", "parts"]

T = TypeVar("T")

_JOIN = re.compile(r" \+ |(?<=[\w)\]}])\+(?=[\w({\[/])|\.\.\.| ?\|\| ?")
_FUSED = re.compile(r"PWN\((.*)\)", re.DOTALL)
_COMMA = re.compile(r", ?")
_REGION = re.compile(r"\{?ForeignNode\[(.*)\]\}?", re.DOTALL)
_LONGEST = 64
"""Pieces that are tried together as one name."""
_DEEPEST = 200


def by_name(layers: Iterable[tuple[Layer, T]]) -> dict[str, list[T]]:
    """What belongs to each layer, by names that TensorRT may call it: its own, or else those of its ONNX nodes.

    A node becomes several layers, of which one may have the node's name: that name means this layer alone.
    """
    own: dict[str, list[T]] = {}
    of_nodes: dict[str, list[T]] = {}
    for layer, value in layers:
        own.setdefault(layer.name, []).append(value)
        for node in dict.fromkeys(layer.nodes):
            of_nodes.setdefault(node, []).append(value)
    return {**of_nodes, **own}


def parts(name: str, known: Container[str] = ()) -> list[str]:
    """The layers in a fused or wrapped name. A name in `known` stays whole, whatever it holds."""
    text = name.strip()
    if text in known:
        return [text]
    if region := _REGION.fullmatch(text):
        return _split(region.group(1), _JOIN, known)
    if text.startswith("{") and text.endswith("}"):
        return _split(text[1:-1], _COMMA, known)
    return _split(text, _JOIN, known)


def _split(text: str, separator: re.Pattern[str], known: Container[str]) -> list[str]:
    """The pieces between separators that stand in no parentheses; the longest run that is a known name stays whole."""
    cuts = [found.span() for found in separator.finditer(text) if _is_outside(text, found.start())]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)]
    pieces: list[str] = []
    number = 0
    while number < len(starts):
        last = min(number + _LONGEST, len(ends)) - 1
        while last > number and text[starts[number] : ends[last]].strip() not in known:
            last -= 1
        piece = text[starts[number] : ends[last]].strip()
        fused = None if piece in known or piece.count("PWN(") > _DEEPEST else _FUSED.fullmatch(piece)
        if fused:
            for inner in _split(fused.group(1), _COMMA, known):
                pieces += parts(inner, known)
        elif piece:
            pieces.append(piece)
        number = last + 1
    return pieces


def _is_outside(text: str, position: int) -> bool:
    """No parenthesis is open at `position`, unless the text has parentheses that do not match."""
    if text.count("(") != text.count(")"):
        return True
    return text.count("(", 0, position) == text.count(")", 0, position)
