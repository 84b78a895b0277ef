"""Pictures for classification: found, cut and normalised as in the models' evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from orinport.pictures import MAX_PIXELS, pillow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["MEAN", "STD", "find_pictures", "normalise", "resize"]

_SUFFIXES = (".jpg", ".jpeg", ".png")
MEAN = np.array([123.675, 116.28, 103.53], np.float32)
"""Of ImageNet's training pictures, RGB, 0 to 255 (0.485, 0.456, 0.406 of 255, as torchvision publishes them)."""
STD = np.array([58.395, 57.12, 57.375], np.float32)

Mode = Literal["crop", "stretch"]


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
    image_module = pillow("Scaling pictures")
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
