"""Pictures for classification: read safely, turned upright, cut and normalised as in the models' evaluation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from orinport.errors import MissingExtraError, OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["MAX_PIXELS", "MEAN", "STD", "Picture", "find_pictures", "normalise", "read_picture", "resize"]

MAX_PIXELS = 1 << 27
"""Pictures of more pixels are refused before they are decoded: 134 million, more than any camera takes."""
_MAX_BYTES = 1 << 29
_SUFFIXES = (".jpg", ".jpeg", ".png")
MEAN = np.array([123.675, 116.28, 103.53], np.float32)
"""Of ImageNet's training pictures, RGB, 0 to 255 (0.485, 0.456, 0.406 of 255, as torchvision publishes them)."""
STD = np.array([58.395, 57.12, 57.375], np.float32)

Mode = Literal["crop", "stretch"]


@dataclass(frozen=True, slots=True)
class Picture:
    """RGB pixels (H, W, 3) of 8 bits, upright, and what had to be done to get there."""

    pixels: NDArray[np.uint8]
    notes: tuple[str, ...] = ()


def read_picture(path: Path) -> Picture:
    """Read a JPEG or PNG file.

    Grey, palette, CMYK and 16-bit pictures are converted to 8-bit RGB, transparency is dropped, the EXIF
    orientation is applied. Raises OrinportError for whatever cannot be read, and for pictures of several frames or
    of more than MAX_PIXELS pixels, which are not even decoded.
    """
    image_module = _pillow()
    shown = repr(str(path))
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise OrinportError(f"{shown} is no file.")
        if size == 0:
            raise OrinportError(f"{shown} is empty.")
        if size > _MAX_BYTES:
            raise OrinportError(f"{shown} has {size} bytes, more than the {_MAX_BYTES} that are read.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", image_module.DecompressionBombWarning)
            with image_module.open(path) as probe:
                _require_still(probe, shown)
                probe.verify()
            with image_module.open(path) as image:
                return _decode(image)
    except image_module.DecompressionBombError as error:
        raise OrinportError(f"{shown} has more than the {MAX_PIXELS} pixels that are read.") from error
    except image_module.UnidentifiedImageError as error:
        raise OrinportError(f"{shown} is no picture, or its beginning is damaged.") from error
    except FileNotFoundError as error:
        raise OrinportError(f"There is no file {shown}.") from error
    except (OSError, SyntaxError, ValueError, EOFError, TypeError, IndexError, MemoryError) as error:
        what = "is truncated" if "truncated" in str(error) else "is damaged"
        reason = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            what, reason = "cannot be read", error.strerror
        raise OrinportError(f"{shown} {what}: {reason}.") from error


def find_pictures(folder: Path) -> Iterator[Path]:
    """JPEG and PNG files below `folder`, by name; hidden ones are left out."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.lower() in _SUFFIXES and not hidden and path.is_file():
            yield path


def resize(pixels: NDArray[np.uint8], size: tuple[int, int], mode: Mode) -> NDArray[np.uint8]:
    """`pixels` (H, W, 3) as `size` (height, width), bicubic.

    `crop` scales the shorter side to the larger of the two numbers and cuts out the middle, as the models are
    evaluated; `stretch` scales both sides and changes the proportions.
    """
    image_module = _pillow()
    image = image_module.fromarray(pixels)
    bicubic = image_module.Resampling.BICUBIC
    height, width = size
    if mode == "stretch":
        return np.asarray(image.resize((width, height), bicubic))
    short, shorter = max(size), min(image.size)
    target = tuple(short * side // shorter for side in image.size)
    left, top = round((target[0] - width) / 2), round((target[1] - height) / 2)
    if target[0] * target[1] > MAX_PIXELS:  # a sliver: only the part that stays is scaled
        x, y = image.width / target[0], image.height / target[1]
        box = (left * x, top * y, (left + width) * x, (top + height) * y)
        return np.asarray(image.resize((width, height), bicubic, box=box))
    return np.asarray(image.resize(target, bicubic).crop((left, top, left + width, top + height)))


def normalise(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W, 3) of 8 bits to (3, H, W): mean and standard deviation of ImageNet taken out."""
    result: NDArray[np.float32] = np.ascontiguousarray(((pixels.astype(np.float32) - MEAN) / STD).transpose(2, 0, 1))
    return result


def _require_still(image: Any, shown: str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise OrinportError(f"{shown} has {width} x {height} pixels, more than the {MAX_PIXELS} that are read.")
    if image.format not in ("JPEG", "PNG", "MPO"):
        raise OrinportError(f"{shown} is a picture of type {image.format}; JPEG and PNG are read.")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        raise OrinportError(f"{shown} is an animation of {frames} frames.", "Save the frame that is meant.")


def _decode(image: Any) -> Picture:
    from PIL import ImageOps

    notes = []
    deep = any(";16" in str(tile[3]) for tile in image.tile)
    image.load()
    mode = image.mode
    upright = ImageOps.exif_transpose(image)
    if image.getexif().get(0x0112, 1) in range(2, 9):
        notes.append("turned upright by its EXIF orientation")
    if mode.startswith("I") or mode == "F":
        notes.append("16-bit grey, scaled to 8 bits")
        grey = np.asarray(upright).astype(np.float64) * (255 / 65535)
        flat = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
        return Picture(np.repeat(flat[..., None], 3, axis=2), tuple(notes))
    if deep:
        notes.append("16 bits a channel, of which the upper 8 are read")
    if mode == "CMYK":
        notes.append("CMYK, converted without a colour profile")
    elif mode in ("L", "1", "LA"):
        notes.append("grey, all three channels are equal")
    if mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        notes.append("transparency is dropped")
    return Picture(np.asarray(upright.convert("RGB")), tuple(notes))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "image", "Reading pictures") from error
    return Image
