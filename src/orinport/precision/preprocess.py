"""How a picture becomes a network's input, described in a small TOML file.

    [image]                      # or [inputs.NAME] where the network has several inputs
    layout = "NCHW"              # or NHWC
    color = "RGB"                # RGB, BGR or L (grey)
    resize = "crop"              # stretch, crop (short side, then centre) or letterbox (long side, padded)
    short_side = 256             # for crop only; by default the input's own size
    interpolation = "bilinear"   # nearest, bilinear, bicubic, lanczos
    fill = 114                   # colour of letterbox bars, 0 to 255
    divide = 255.0               # first
    mean = [0.485, 0.456, 0.406] # then subtracted
    std = [0.229, 0.224, 0.225]  # then divided by

Nothing is guessed: without such a file pictures are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.errors import OrinportError
from orinport.pictures import MAX_PIXELS, pillow, read_picture
from orinport.toml import read_toml

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Preprocessing", "read_preprocessing"]

_CHOICES = {
    "layout": ("NCHW", "NHWC"),
    "color": ("RGB", "BGR", "L"),
    "resize": ("stretch", "crop", "letterbox"),
    "interpolation": ("nearest", "bilinear", "bicubic", "lanczos"),
}
_NUMBERS = ("divide", "fill", "short_side")
_LISTS = ("mean", "std")
_RANK = 4
_LARGEST_SIDE = 1 << 14
"""Pixels of a scaled picture's short side: beyond that a picture takes gigabytes."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """One picture to one `(C, H, W)` or `(H, W, C)` array of float32."""

    layout: str = "NCHW"
    color: str = "RGB"
    resize: str = "stretch"
    interpolation: str = "bilinear"
    short_side: int = 0
    fill: float = 0.0
    divide: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Height and width of the input. Raises OrinportError if the shape is not that of pictures."""
        channels = 1 if self.color == "L" else 3
        dims = shape[1:] if self.layout == "NCHW" else (shape[-1], *shape[1:-1])
        if len(shape) != _RANK or dims[0] != channels:
            raise OrinportError(
                f"An input of shape {'x'.join(map(str, shape))} takes no {self.color} pictures in {self.layout}.",
                "Check layout and color in the preprocessing file.",
            )
        return dims[1], dims[2]

    def read(self, path: Path, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The picture at `path` for an input of `shape`, without the batch dimension."""
        image_module = pillow("Calibration with pictures")
        height, width = self.size(shape)
        picture = image_module.fromarray(read_picture(path).pixels)
        if self.color == "L":
            picture = picture.convert("L")
        pixels = np.asarray(self._fitted(picture, height, width, image_module), dtype=np.float32)
        return self._numbers(pixels)

    def _fitted(self, picture: Any, height: int, width: int, image: Any) -> Any:
        how = getattr(image.Resampling, self.interpolation.upper())
        if self.resize == "stretch":
            return picture.resize((width, height), how)
        if self.resize == "crop":
            return self._cropped(picture, height, width, how)
        ratio = min(width / picture.width, height / picture.height)
        size = max(1, round(picture.width * ratio)), max(1, round(picture.height * ratio))
        bars = int(self.fill)
        canvas = image.new(picture.mode, (width, height), bars if self.color == "L" else (bars,) * 3)
        canvas.paste(picture.resize(size, how), ((width - size[0]) // 2, (height - size[1]) // 2))
        return canvas

    def _cropped(self, picture: Any, height: int, width: int, how: Any) -> Any:
        short = self.short_side or max(height, width)
        if short < max(height, width):
            raise OrinportError(
                f"short_side = {short} is smaller than the input, {height}x{width}.", "Make it at least as large."
            )
        ratio = short / min(picture.width, picture.height)
        wide, high = max(1, round(picture.width * ratio)), max(1, round(picture.height * ratio))
        left, top = (wide - width) // 2, (high - height) // 2
        if wide * high > MAX_PIXELS:  # a sliver: only the part that stays is scaled
            x, y = picture.width / wide, picture.height / high
            box = (left * x, top * y, (left + width) * x, (top + height) * y)
            return picture.resize((width, height), how, box=box)
        return picture.resize((wide, high), how).crop((left, top, left + width, top + height))

    def _numbers(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        if self.color == "BGR":
            pixels = pixels[:, :, ::-1]
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        result: NDArray[np.float32] = (pixels / np.float32(self.divide) - mean) / std
        return np.ascontiguousarray(result.transpose(2, 0, 1) if self.layout == "NCHW" else result)


def read_preprocessing(path: Path, inputs: tuple[str, ...]) -> dict[str, Preprocessing]:
    """Preprocessing by input name. Raises OrinportError, naming the key, for whatever the file gets wrong."""
    where = repr(str(path))
    try:
        table = read_toml(path)
    except OSError as error:
        raise OrinportError(f"{where} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise OrinportError(f"{where} is not TOML: {error}.") from error
    if set(table) == {"image"} and len(inputs) == 1:
        return {inputs[0]: _parse(table["image"], where)}
    if set(table) == {"inputs"} and isinstance(table["inputs"], dict) and set(table["inputs"]) == set(inputs):
        return {name: _parse(entry, where) for name, entry in table["inputs"].items()}
    raise OrinportError(
        f"{where} does not describe the inputs {', '.join(inputs)}.",
        "Write [image] for a network with one input, [inputs.NAME] for each of several.",
    )


def _parse(entry: Any, where: str) -> Preprocessing:
    if not isinstance(entry, dict):
        raise OrinportError(f"{where} has no table of settings.")
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key in _CHOICES:
            if value not in _CHOICES[key]:
                raise OrinportError(f"{where}: {key} = {value!r} is none of {', '.join(_CHOICES[key])}.")
            values[key] = value
        elif key in _NUMBERS:
            values[key] = _number(key, value, where)
        elif key in _LISTS:
            items = value if isinstance(value, list) else [value]
            values[key] = tuple(_number(key, each, where) for each in items)
        else:
            known = sorted((*_CHOICES, *_NUMBERS, *_LISTS))
            raise OrinportError(f"{where}: there is no setting {key!r}.", f"There are {', '.join(known)}.")
    made = Preprocessing(**{**values, "short_side": int(values.get("short_side", 0))})
    if made.divide == 0 or 0 in made.std:
        raise OrinportError(f"{where}: divide and std must not be 0.")
    if not 0 <= made.fill <= 255:
        raise OrinportError(f"{where}: fill = {made.fill:g} is no colour.", "Use 0 to 255.")
    if not 0 <= made.short_side <= _LARGEST_SIDE:
        raise OrinportError(f"{where}: short_side = {made.short_side} is not between 1 and {_LARGEST_SIDE}.")
    channels = (1, 1 if made.color == "L" else 3)
    for key in _LISTS:
        if len(getattr(made, key)) not in channels:
            raise OrinportError(f"{where}: {key} has {len(getattr(made, key))} numbers for {channels[1]} channels.")
    return made


def _number(key: str, value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise OrinportError(f"{where}: {key} = {value!r} is not a number.")
    return float(value)
