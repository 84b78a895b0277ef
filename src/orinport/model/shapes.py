"""Input shapes as users write them, and what they do to a network's inputs.

Three spellings are read: `x:1x3x224x224` (trtexec), `x:1,3,224,224` (onnxsim) and `x:[1,3,224,224]` (polygraphy).
Several inputs come as several strings, or in one string with commas between. Names may hold colons and commas.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.model.structure import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx

__all__ = ["apply_shapes", "parse_shapes"]

_MAX_SPEC = 20_000
_LARGEST = 2**31 - 1
"""No dimension is larger: TensorRT counted in 32 bits before version 10, and no tensor as long fits a board."""
_ANONYMOUS = ("", "?")
"""Names of dimensions that mean only that they are not fixed; two of them need not be equal."""
_DIMS = r"\[[-\d,\s]*\]|-?\d+(?:[xX]-?\d+)+|-?\d+(?:,-?\d+)*"
_ENTRY = re.compile(rf"(?P<name>.+?):(?P<dims>{_DIMS})(?:,|$)", re.DOTALL)
_HINT = "Write --shapes x:1x3x224x224, x:1,3,224,224 or x:[1,3,224,224]."


def parse_shapes(shapes: str | Sequence[str] | Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by input name. Raises OrinportError for a spelling that is none, or an input that is named twice."""
    if shapes is None:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    if isinstance(shapes, Mapping):
        pairs: Iterable[tuple[str, tuple[int, ...]]] = [(name, _dims(name, dims)) for name, dims in shapes.items()]
    else:
        pairs = [pair for text in ([shapes] if isinstance(shapes, str) else shapes) for pair in _entries(text)]
    for name, dims in pairs:
        if found.setdefault(name, dims) != dims:
            raise OrinportError(f"Two shapes are given for the input {quote(name)}.")
        if any(d <= 0 for d in dims):
            raise OrinportError(f"The shape {_shown(dims)} for the input {quote(name)} is not positive.", _HINT)
        if any(d > _LARGEST for d in dims):
            raise OrinportError(f"A dimension given for the input {quote(name)} is larger than {_LARGEST}.")
    return found


def _dims(name: object, dims: object) -> tuple[int, ...]:
    try:
        given = list(dims)  # type: ignore[call-overload]
        whole = tuple(int(d) for d in given)
    except (TypeError, ValueError, OverflowError) as error:
        raise OrinportError(f"The shape {dims!r} for the input {name!r} is no sequence of integers.") from error
    if isinstance(dims, str) or list(whole) != given:
        raise OrinportError(f"The shape {dims!r} for the input {name!r} is no sequence of integers.")
    return whole


def _entries(text: str) -> list[tuple[str, tuple[int, ...]]]:
    text = text.strip()
    if len(text) > _MAX_SPEC:
        raise OrinportError(f"The shapes are {len(text)} characters long.", _HINT)
    found: list[tuple[str, tuple[int, ...]]] = []
    start = 0
    while start < len(text):
        entry = _ENTRY.match(text, start)
        if entry is None:
            raise OrinportError(f"The shape {quote(text[start:])} cannot be read.", _HINT)
        found.append((entry["name"].strip(), tuple(map(_number, re.findall(r"-?\d+", entry["dims"])))))
        start = entry.end()
    if not found:
        raise OrinportError("An empty shape was given.", _HINT)
    return found


def _number(digits: str) -> int:
    """Python does not read thousands of digits; these are too many for any dimension."""
    return int(digits) if len(digits) <= len(str(_LARGEST)) + 1 else _LARGEST + 1


def apply_shapes(inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Make every dimension of `inputs` concrete, in place; return the values of the named dimensions.

    A named dimension that one input fixes is fixed for the others too. Dimensions of 0 or below have to be given
    like dynamic ones. Raises OrinportError if a dimension stays dynamic or a given shape does not fit.
    """
    names = [info.name for info in inputs]
    for name in shapes:
        if name not in names:
            shown = ", ".join(quote(n) for n in names[:20]) or "none"
            raise OrinportError(f"The network has no input {quote(name)}; its inputs are {shown}.")
    for info in inputs:
        if info.type.WhichOneof("value") != "tensor_type":
            raise OrinportError(f"The input {quote(info.name)} is no tensor.", "TensorRT takes tensors only.")
        if not info.type.tensor_type.elem_type:
            raise OrinportError(f"The input {quote(info.name)} has no element type.")
    symbols: dict[str, int] = {}
    for info in inputs:
        if info.name in shapes:
            _bind(info, shapes[info.name], symbols)
    for info in inputs:
        if info.name not in shapes:
            _fill(info, symbols)
    return symbols


def _bind(info: onnx.ValueInfoProto, dims: tuple[int, ...], symbols: dict[str, int]) -> None:
    tensor = info.type.tensor_type
    if tensor.HasField("shape") and len(tensor.shape.dim) != len(dims):
        raise OrinportError(
            f"The input {quote(info.name)} has {len(tensor.shape.dim)} dimensions ({_declared(info)}), "
            f"and the shape {_shown(dims)} has {len(dims)}."
        )
    if not tensor.HasField("shape"):
        tensor.shape.SetInParent()
        for _ in dims:
            tensor.shape.dim.add()
    for dim, value in zip(tensor.shape.dim, dims, strict=True):
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0 and dim.dim_value != value:
            raise OrinportError(
                f"The input {quote(info.name)} has the fixed shape {_declared(info)}, and {_shown(dims)} was given.",
                "Export the network with dynamic dimensions, or leave them as they are.",
            )
        if dim.dim_param not in _ANONYMOUS and symbols.setdefault(dim.dim_param, value) != value:
            raise OrinportError(
                f"The dimension {quote(dim.dim_param)} is {symbols[dim.dim_param]} for one input and {value} for "
                f"{quote(info.name)}."
            )
        dim.dim_value = value


def _fill(info: onnx.ValueInfoProto, symbols: Mapping[str, int]) -> None:
    tensor = info.type.tensor_type
    declared = _declared(info)
    for dim in tensor.shape.dim:
        if dim.dim_param not in _ANONYMOUS and dim.dim_param in symbols:
            dim.dim_value = symbols[dim.dim_param]
    if not tensor.HasField("shape") or any(dim.dim_value <= 0 for dim in tensor.shape.dim):
        example = "x".join(_example(tensor.shape.dim)) or "1x3x224x224"
        hint = f"Give it with --shapes, for example --shapes {_argument(f'{info.name}:{example}')}."
        if any(_is_empty(dim) for dim in tensor.shape.dim):
            raise OrinportError(
                f"The input {quote(info.name)} has the shape {declared}: with a dimension of 0 it holds nothing, unless"
                " its exporter wrote 0 for a dynamic one.",
                hint,
            )
        raise OrinportError(
            f"The input {quote(info.name)} has the dynamic shape {declared}, and the DLA needs fixed ones.", hint
        )


def _example(dims: Sequence[onnx.TensorShapeProto.Dimension]) -> list[str]:
    """A shape for a hint: 1 for what is not given, but 224 for height and width of pictures."""
    sides = (2, 3) if len(dims) == 4 else ()
    return [str(d.dim_value if d.dim_value > 0 else 224 if i in sides else 1) for i, d in enumerate(dims)]


def _is_empty(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """A dimension that says 0, not one that says nothing."""
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value == 0)


def _argument(text: str) -> str:
    """`text` as one word of a shell command, on one line; a placeholder if it cannot be that."""
    return shlex.quote(text) if text.isprintable() and len(text) < 300 else "NAME:1x3x224x224"


def _declared(info: onnx.ValueInfoProto) -> str:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return "(unknown rank)"
    shown = (
        d.dim_param[:40] or (str(d.dim_value) if d.dim_value > 0 or _is_empty(d) else "?") for d in tensor.shape.dim
    )
    return "x".join(shown) or "()"


def _shown(dims: Iterable[int]) -> str:
    return "x".join(str(d) for d in dims) or "()"
