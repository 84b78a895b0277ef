"""Pictures from strangers: read safely, in 8 bits, upright."""

from __future__ import annotations

import struct
import threading
import warnings
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.errors import MissingExtraError, OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["FORMATS", "MAX_PIXELS", "Picture", "pillow", "read_picture"]

MAX_PIXELS = 1 << 27
"""Pictures of more pixels are refused before they are decoded: 134 million."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, by Pillow's names, whatever a file is called (a camera's MPO is a JPEG there). Of the others some
run programs (EPS), and many are rarely tested."""
_MAX_BYTES = 1 << 29
_ORIENTATION = 0x0112
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr")
"""Pillow's modes of 8 bits and less that it converts to RGB."""
_FILTERS = threading.Lock()
"""Filters of warnings belong to the process, and pictures are read by several threads."""
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    TypeError,
    IndexError,
    KeyError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What Pillow raises over damaged files."""


@dataclass(frozen=True, slots=True)
class Picture:
    """RGB pixels (H, W, 3) of 8 bits, upright, and what had to be done to get there."""

    pixels: NDArray[np.uint8]
    notes: tuple[str, ...] = ()


def read_picture(path: Path) -> Picture:
    """Read a picture file of one of FORMATS.

    Grey, palette and CMYK pictures are converted to RGB, of 16-bit ones the upper 8 bits are taken (as Pillow and
    OpenCV do with 16-bit colours), transparency is dropped, the EXIF orientation is applied, and of a camera's
    several pictures in one file (MPO) the first is taken. Raises OrinportError for whatever cannot be read, for other
    files of several frames, for pixels of 32 bits, whose range is not known, and for pictures of more than MAX_PIXELS
    pixels, which are not even decoded.
    """
    image_module = pillow("Reading pictures")
    shown = repr(str(path))
    try:
        _require_file(path, shown)
        with _opened(path, image_module) as (probe, _):
            _require_still(probe, shown)
            probe.verify()
        with _opened(path, image_module) as (image, said):
            return _decoded(image, said, shown)
    except image_module.DecompressionBombError as error:
        raise OrinportError(f"{shown} has more than the {MAX_PIXELS} pixels that are read.") from error
    except image_module.UnidentifiedImageError as error:
        raise OrinportError(
            f"{shown} is no picture of a type that is read, or its beginning is damaged.",
            f"Types that are read: {', '.join(FORMATS)}.",
        ) from error
    except FileNotFoundError as error:
        raise OrinportError(f"There is no file {shown}.") from error
    except _DAMAGED as error:
        what = "is truncated" if "truncated" in str(error) else "is damaged"
        reason = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            what, reason = "cannot be read", error.strerror
        raise OrinportError(f"{shown} {what}: {reason.rstrip('.')}.") from error


def pillow(needed_for: str) -> Any:
    """`PIL.Image`. Raises MissingExtraError, which says what it is `needed_for`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "image", needed_for) from error
    return Image


def _require_file(path: Path, shown: str) -> None:
    size = path.stat().st_size
    if not path.is_file():
        raise OrinportError(f"{shown} is no file.")
    if size == 0:
        raise OrinportError(f"{shown} is empty.")
    if size > _MAX_BYTES:
        raise OrinportError(f"{shown} has {size} bytes, more than the {_MAX_BYTES} that are read.")


@contextmanager
def _unwarned(said: list[warnings.WarningMessage]) -> Iterator[None]:
    """Pillow's warnings of large pictures and of damaged metadata are added to `said` instead of printed."""
    with _FILTERS, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    said += caught


@contextmanager
def _opened(path: Path, image_module: Any) -> Iterator[tuple[Any, list[warnings.WarningMessage]]]:
    """The picture with its header read, and what Pillow warned of, such as many pixels still within MAX_PIXELS.

    Given a name, Pillow (13.0) maps the pixels of plain TIFF files into memory, and mixes up those that lie on a side.
    """
    with path.open("rb") as file:
        said: list[warnings.WarningMessage] = []
        with _unwarned(said):
            image = image_module.open(file, formats=FORMATS)
        with image:
            yield image, said


def _require_still(image: Any, shown: str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise OrinportError(f"{shown} has {width} x {height} pixels, more than the {MAX_PIXELS} that are read.")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        raise OrinportError(f"{shown} holds {frames} frames.", "Save the frame that is meant.")


def _decoded(image: Any, said: list[warnings.WarningMessage], shown: str) -> Picture:
    from PIL import ImageOps

    notes = []
    deep = image.format != "BMP" and any(";16" in str(tile[3]) for tile in image.tile)  # a BMP's BGR;16 is 5 + 6 + 5
    tiff = image.format == "TIFF"  # which Pillow turns by itself when it is loaded, and version 10.0 then turns again
    with _unwarned(said):
        turned = image.tag_v2.get(_ORIENTATION) if tiff else None
    image.load()
    mode = image.mode
    with _unwarned(said):
        turned = turned if tiff else image.getexif().get(_ORIENTATION)
        upright = image if tiff else ImageOps.exif_transpose(image)
    if turned in range(2, 9):
        notes.append("turned upright by its EXIF orientation")
    elif any(issubclass(each.category, UserWarning) for each in said):
        notes.append("its EXIF data are damaged, taken as it lies")
    if mode.startswith("I;16") or (mode == "I" and image.format in ("PNG", "PPM")):
        notes.append("16-bit grey, of which the upper 8 are read")
        grey = (np.asarray(upright) >> 8).astype(np.uint8)
        return Picture(np.repeat(grey[..., None], 3, axis=2), tuple(notes))
    if mode in ("I", "F"):
        raise OrinportError(f"{shown} has pixels of 32 bits, and which range they use is not known.")
    if mode not in _MODES:
        raise OrinportError(f"{shown} has colours of type {mode}, which is not read.", "Save it as RGB.")
    if deep:
        notes.append("16 bits a channel, of which the upper 8 are read")
    if mode == "CMYK":
        notes.append("CMYK, converted without a colour profile")
    elif mode in ("L", "1", "LA"):
        notes.append("grey, all three channels are equal")
    if mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        notes.append("transparency is dropped")
    colours = upright.convert("RGBA") if mode == "P" and "transparency" in image.info else upright
    return Picture(np.asarray(colours.convert("RGB")), tuple(notes))
