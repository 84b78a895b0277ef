"""`constant_findings`: constants of DLA layers that their number format cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.model import display_name
from orinport.precision.findings import infinite_constant, large_constant, vanishing_constant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.rules.finding import Finding

__all__ = ["HALF_LARGEST", "HALF_ZERO", "constant_findings"]

HALF_LARGEST = 65504.0
"""The largest finite FP16."""
HALF_ZERO = 2.0**-25
"""What is no larger is rounded to 0 in FP16: half of its smallest number."""

_FACTORS = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1, "PRelu": 1, "Mul": 0, "Div": 0}
"""Operators, and the input from which on constants may stand; all of these multiply, or divide."""
_TERMS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "Add": 0, "Sub": 0, "Sum": 0, "Concat": 0}
"""The same for what is added, or handed on."""


def constant_findings(model: Model, layers: Iterable[Layer], *, half: bool) -> list[Finding]:
    """Findings on the constants that `layers`, which the DLA runs, have of `model`.

    With `half` the layers compute in FP16. Without, constants get scales of their own, and only those that are not
    finite are found. Bounds of Clip, Max and Min are left out: one beyond FP16 bounds nothing.
    """
    of_node: dict[str, Layer] = {}
    for layer in layers:
        for name in layer.nodes:
            of_node.setdefault(name, layer)
    findings: dict[tuple[str, str], Finding] = {}
    for node in model.graph:
        reader = of_node.get(display_name(node))
        if reader is None or node.domain not in ("", "ai.onnx"):
            continue
        for name, array, multiplies in _constants(model, node):
            found = _finding(name, array, reader, multiplies=multiplies, half=half)
            if found is not None:
                findings.setdefault((found.code, name), found)
    return list(findings.values())


def _constants(model: Model, node: ir.Node) -> Iterator[tuple[str, NDArray[np.floating], bool]]:
    """Name and elements of the constants of `node`, and whether they multiply."""
    if node.op_type == "BatchNormalization":
        yield from _normalisation(model, node)
        return
    if node.op_type == "LeakyRelu":
        yield f"slope of {display_name(node)}", np.asarray([node.attributes.get_float("alpha", 0.01)]), False
    first_factor, first_term = _FACTORS.get(node.op_type), _TERMS.get(node.op_type)
    for position, value in enumerate(node.inputs):
        multiplies = first_factor is not None and position >= first_factor
        adds = first_term is not None and position >= first_term
        if value is None or not (multiplies or adds):
            continue
        array = model.constant(value, limit=None)
        if array is not None and array.size and array.dtype.kind == "f":
            yield value.name or "", array, not adds


def _normalisation(model: Model, node: ir.Node) -> Iterator[tuple[str, NDArray[np.floating], bool]]:
    """What TensorRT makes of a batch normalisation: a factor and a term for each channel."""
    parts = [model.constant(value, limit=None) for value in node.inputs[1:5]]
    if any(part is None for part in parts) or len(parts) < 4:
        return
    gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    with np.errstate(all="ignore"):
        factor = gamma / np.sqrt(variance + epsilon)
        yield f"factor of {display_name(node)}", factor, True
        yield f"term of {display_name(node)}", beta - mean * factor, False


def _finding(name: str, array: NDArray[np.floating], layer: Layer, *, multiplies: bool, half: bool) -> Finding | None:
    low, high = float(array.min()), float(array.max())  # NaN if any element is
    largest = max(-low, high)
    if not np.isfinite(largest) or np.isnan(low):
        bad = np.isnan(array) if half and not multiplies else ~np.isfinite(array)
        number = int(np.count_nonzero(bad))
        return infinite_constant(layer, name, number) if number else None
    if half and largest > HALF_LARGEST:
        return large_constant(layer, name, low if -low > high else high, HALF_LARGEST)
    if half and multiplies and 0 < largest <= HALF_ZERO:
        return vanishing_constant(layer, name, largest, HALF_ZERO)
    return None
