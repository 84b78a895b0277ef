"""PP-OCR and nudenet on rendered pictures: coverage is complete, or each gap is a finding.

The networks come with the packages rapidocr-onnxruntime and nudenet: install them, or name a folder that holds
their unpacked wheels in ORINPORT_TEST_MODELS.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

import orinport
from orinport.model.load import load
from orinport.precision.cache import parse_cache
from orinport.precision.calibrate import CalibrationOptions
from orinport.quantization import write_scales

if TYPE_CHECKING:
    from collections.abc import Sequence

NETWORKS = {
    "nudenet": ("nudenet/320n.onnx", (1, 3, 320, 320)),
    "pp-ocr detection": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320)),
    "pp-ocr recognition": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
}


def trained(name: str) -> tuple[Path, str, tuple[int, ...]]:
    """File, name of the input and shape of a trained network; skips where it is not to be had."""
    file, shape = NETWORKS[name]
    folders = [Path(folder) for folder in os.environ.get("ORINPORT_TEST_MODELS", "").split(os.pathsep) if folder]
    package = importlib.util.find_spec(file.split("/")[0])
    if package is not None and package.origin is not None:
        folders.append(Path(package.origin).parents[1])
    for folder in folders:
        if (folder / file).is_file():
            session = onnxruntime.InferenceSession(folder / file, providers=["CPUExecutionProvider"])
            return folder / file, session.get_inputs()[0].name, shape
    pytest.skip(f"{file} is not installed, and ORINPORT_TEST_MODELS names no folder that holds it")


def rendered(count: int, shape: Sequence[int], seed: int) -> np.ndarray:
    """Pictures of text over gradients, normalised as both packages do, to -1 ... 1."""
    image = pytest.importorskip("PIL.Image", reason="rendering needs Pillow")
    from PIL import ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    _, _, height, width = shape
    made = []
    for _ in range(count):
        ramp = np.linspace(0, 1, width)[None, :, None] * rng.integers(0, 200, 3) + rng.integers(0, 55, 3)
        picture = image.fromarray(np.broadcast_to(ramp, (height, width, 3)).astype(np.uint8))
        draw = ImageDraw.Draw(picture)
        for _ in range(max(1, height // 60)):
            text = "".join(chr(each) for each in rng.integers(65, 91, 12))
            place = (int(rng.integers(0, width // 3)), int(rng.integers(0, max(1, height - 40))))
            draw.text(place, text, fill=tuple(map(int, rng.integers(0, 256, 3))), font=ImageFont.load_default(28))
        made.append(np.asarray(picture, np.float32).transpose(2, 0, 1) / 127.5 - 1)
    return np.stack(made)


def spell(name: str, shape: Sequence[int]) -> str:
    return f"{name}:{'x'.join(map(str, shape))}"


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_coverage(name: str, tmp_path: Path) -> None:
    path, given, shape = trained(name)
    np.save(tmp_path / "d.npy", rendered(8, shape, seed=0))
    report = orinport.quantize(path, data=tmp_path / "d.npy", shapes=spell(given, shape), target="orin-agx-64gb/jp6.2")
    gaps = {row.tensor.name for row in report.coverage.tensors if row.scale is None}
    told = " ".join(f.message for f in report.coverage.findings)
    assert report.coverage.tensors
    assert all(repr(gap) in told for gap in gaps)
    assert len(gaps) <= 0.02 * len(report.coverage.tensors)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nudenet", "pp-ocr recognition"])
def test_prepared_bundles(name: str, tmp_path: Path) -> None:
    path, given, shape = trained(name)
    np.save(tmp_path / "d.npy", rendered(4, shape, seed=0))
    report = orinport.prepare(
        path, precision="int8", data=tmp_path / "d.npy", shapes=spell(given, shape), output=tmp_path / "b"
    )
    scales = parse_cache((tmp_path / "b" / "calibration.cache").read_text())
    told = " ".join(f.message for f in report.after.findings if f.code == "Q001")
    regions = [region for region in report.after.placement.regions if region.device == "dla"]
    tensors = {t.name for r in regions for each in r.layers for t in (*each.inputs, *each.outputs) if t.dtype.is_float}
    assert tensors
    assert {t for t in tensors if t not in scales and repr(t) not in told} == set()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "least"), [("min-max", 6.0), ("entropy", 3.0), ("percentile", 9.0), ("mse", 9.0)])
def test_int8_keeps_the_answer(method: str, least: float, tmp_path: Path) -> None:
    """Text detection with explicit Q/DQ in ONNX Runtime against FP32, on other pictures than those calibrated on.

    `least` is a signal-to-noise ratio in dB.
    """
    path, given, shape = trained("pp-ocr detection")
    np.save(tmp_path / "d.npy", rendered(8, shape, seed=0))
    options = CalibrationOptions(method=method)
    report = orinport.quantize(
        path, data=tmp_path / "d.npy", shapes=spell(given, shape), calibration=options, ties="except-products"
    )
    write_scales(report, tmp_path / "q.onnx")
    exact = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours = onnxruntime.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"])
    noise = signal = 0.0
    for each in rendered(4, shape, seed=99):
        want, have = (session.run(None, {given: each[None]})[0] for session in (exact, ours))
        signal += float((want**2).sum())
        noise += float(((want - have) ** 2).sum())
    ratio = 10 * np.log10(signal / noise)
    assert ratio > least, f"{ratio:.1f} dB"
    assert load(tmp_path / "q.onnx").outputs[0].shape == (1, 1, *shape[2:])
