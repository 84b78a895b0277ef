"""PP-OCR and nudenet, and pictures for them.

The networks come with the packages rapidocr-onnxruntime and nudenet: install them, or name folders that hold their
unpacked wheels in ORINPORT_TEST_MODELS.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.model.model import Model
    from orinport.precision.emulate import Arithmetic
    from orinport.precision.scales import Scales

_PP_OCR = "rapidocr_onnxruntime/models/ch_"
NETWORKS = {
    "nudenet": ("nudenet/320n.onnx", (1, 3, 320, 320)),
    "pp-ocr detection": (f"{_PP_OCR}PP-OCRv4_det_infer.onnx", (1, 3, 320, 320)),
    "pp-ocr recognition": (f"{_PP_OCR}PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
    "pp-ocr classification": (f"{_PP_OCR}ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
}
TARGET = "orin-agx-64gb/jp6.2"


class MissingNetworkError(Exception):
    """The package that brings the network is not to be had."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained network: file, name of its input, and the shape to give that."""

    path: Path
    given: str
    shape: tuple[int, ...]

    @property
    def shapes(self) -> str:
        """As the commands spell it."""
        return f"{self.given}:{'x'.join(map(str, self.shape))}"

    def normalised(self, pixels: np.ndarray) -> np.ndarray:
        """RGB of 0 to 255 (N, H, W, 3) as the package gives it to the network (N, 3, H, W).

        nudenet: RGB, 0 ... 1. PP-OCR: BGR, -1 ... 1, for classification turned by 180 degrees every other time.
        """
        planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32)
        if self.path.parent.name == "nudenet":
            return planes / 255
        if "cls" in self.path.name:
            planes[1::2] = planes[1::2, :, ::-1, ::-1]
        return np.ascontiguousarray(planes[:, ::-1]) / 127.5 - 1

    def rendered(self, count: int, seed: int) -> np.ndarray:
        """Pictures of text over gradients, (N, 3, H, W), as the network takes them. Needs Pillow."""
        return self.normalised(rendered(count, self.shape, seed))

    def crops(self, files: Sequence[Path], count: int, seed: int) -> np.ndarray:
        """Random crops of pictures, each file in turn, (N, 3, H, W), as the network takes them. Needs Pillow.

        A crop has the network's proportions and half to all of the size that fits.
        """
        from PIL import Image

        rng = np.random.default_rng(seed)
        _, _, height, width = self.shape
        made = []
        for number in range(count):
            with Image.open(files[number % len(files)]) as file:
                picture = file.convert("RGB")
            scale = min(picture.width / width, picture.height / height) * rng.uniform(0.5, 1)
            size = max(1, int(width * scale)), max(1, int(height * scale))
            left, top = (int(rng.integers(0, most - side + 1)) for most, side in zip(picture.size, size, strict=True))
            cut = picture.resize((width, height), box=(left, top, left + size[0], top + size[1]))
            made.append(np.asarray(cut))
        return self.normalised(np.stack(made))


def find(name: str) -> Trained:
    """Raises MissingNetworkError if it is not installed."""
    file, shape = NETWORKS[name]
    folders = [Path(folder) for folder in os.environ.get("ORINPORT_TEST_MODELS", "").split(os.pathsep) if folder]
    package = importlib.util.find_spec(file.split("/")[0])
    if package is not None and package.origin is not None:
        folders.append(Path(package.origin).parents[1])
    for folder in folders:
        if (folder / file).is_file():
            session = onnxruntime.InferenceSession(folder / file, providers=["CPUExecutionProvider"])
            return Trained(folder / file, session.get_inputs()[0].name, shape)
    raise MissingNetworkError(f"{file} is not installed, and ORINPORT_TEST_MODELS names no folder that holds it")


def rendered(count: int, shape: Sequence[int], seed: int) -> np.ndarray:
    """Pictures of text over gradients for an input of `shape`: RGB of 0 to 255, (N, H, W, 3). Needs Pillow."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    _, _, height, width = shape
    made = []
    for _ in range(count):
        ramp = np.linspace(0, 1, width)[None, :, None] * rng.integers(0, 200, 3) + rng.integers(0, 55, 3)
        picture = Image.fromarray(np.broadcast_to(ramp, (height, width, 3)).astype(np.uint8))
        draw = ImageDraw.Draw(picture)
        for _ in range(max(1, height // 60)):
            text = "".join(chr(each) for each in rng.integers(65, 91, 12))
            place = (int(rng.integers(0, width // 3)), int(rng.integers(0, max(1, height - 40))))
            draw.text(place, text, fill=tuple(map(int, rng.integers(0, 256, 3))), font=ImageFont.load_default(28))
        made.append(np.asarray(picture))
    return np.stack(made)


def setting(bundle: Path) -> tuple[Model, Mapping[str, Arithmetic], Scales]:
    """The network of a bundle, what each of its nodes computes in, and its scales."""
    from orinport.checking import as_target, check_model
    from orinport.model.load import load
    from orinport.precision.cache import read_scales
    from orinport.precision.emulate import arithmetic_of
    from orinport.rules.finding import Verdict
    from orinport.targets.target import Precision

    model, scales = load(bundle / "model.onnx"), read_scales(bundle / "scales.json")
    checked = check_model(model, as_target(TARGET), Precision.INT8)
    dla = {row.layer.index for row in checked.layers if row.verdict is Verdict.DLA}
    return model, arithmetic_of([row.layer for row in checked.layers], dla, scales), scales
