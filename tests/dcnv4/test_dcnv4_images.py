"""Pictures for classification: which are found, and preprocessing as in the evaluation."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from orinport.dcnv4.images import find_pictures, normalise, resize

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'orinport[image]'")


def scene(height=60, width=80):
    """A smooth coloured picture without symmetry."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 / (width - 1), y * 255 / (height - 1), (x + 2 * y) * 255 / (width + 2 * height)]
    return np.stack(channels, -1).astype(np.uint8)


def test_folders(tmp_path):
    for name in ("b/2.png", "a/1.jpg", "a/note.txt", ".hidden/3.png", "c.JPG"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    assert [str(path.relative_to(tmp_path)) for path in find_pictures(tmp_path)] == ["a/1.jpg", "b/2.png", "c.JPG"]


@pytest.mark.parametrize(("height", "width"), [(60, 80), (80, 60), (300, 400), (500, 333), (224, 224), (7, 900)])
def test_the_evaluations_crop(height, width):
    """Short side to 224, long side in proportion, rounded down, the middle cut out; as torchvision does."""
    pixels = scene(height, width)
    short, long = min(height, width), max(height, width)
    scaled_long = int(224 * long / short)
    size = (224, scaled_long) if height >= width else (scaled_long, 224)
    if height == width:
        size = (224, 224)
    scaled = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))
    top, left = round((scaled.shape[0] - 224) / 2), round((scaled.shape[1] - 224) / 2)
    got = resize(pixels, (224, 224), "crop")
    np.testing.assert_array_equal(got, scaled[top : top + 224, left : left + 224])


def test_crop_keeps_proportions_and_stretch_does_not():
    """A disc stays round, or becomes an ellipse."""
    y, x = np.mgrid[0:200, 0:400]
    disc = (((x - 200) ** 2 + (y - 100) ** 2 < 80**2) * 255).astype(np.uint8)
    pixels = np.repeat(disc[..., None], 3, axis=2)
    for mode, ratio in (("crop", 1.0), ("stretch", 0.5)):
        inside = resize(pixels, (224, 224), mode)[..., 0] > 127
        wide, high = inside.any(0).sum(), inside.any(1).sum()
        assert wide / high == pytest.approx(ratio, abs=0.02)


def test_oblong_networks():
    assert resize(scene(300, 400), (64, 96), "crop").shape == (64, 96, 3)
    assert resize(scene(300, 400), (64, 96), "stretch").shape == (64, 96, 3)


def test_normalise():
    pixels = np.array([[[0, 128, 255]]], np.uint8)
    expected = np.array([-123.675 / 58.395, (128 - 116.28) / 57.12, (255 - 103.53) / 57.375])
    np.testing.assert_allclose(normalise(pixels)[:, 0, 0], expected, rtol=1e-6)
    assert normalise(scene()).shape == (3, 60, 80)
    assert normalise(scene()).flags.c_contiguous


@pytest.mark.parametrize("side", [224, 384])
def test_the_long_side_is_the_evaluations(side):
    """The floor of side * long / short, as in torchvision's Resize, also where side / short is no binary fraction."""
    rng = np.random.default_rng(0)
    for width, height in [(107, 214), (306, 612), (330, 220), (612, 306), (255, 257), (100, 1099)]:
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        short, long = min(width, height), max(width, height)
        scaled = Fraction(side * long, short).__floor__()
        size = (side, scaled) if width < height else (scaled, side)
        image = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
        left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
        np.testing.assert_array_equal(
            resize(pixels, (side, side), "crop"), np.asarray(image.crop((left, top, left + side, top + side)))
        )


@pytest.mark.parametrize("shape", [(60000, 1), (1, 60000), (65000, 2)])
def test_slivers_take_no_more_memory_than_others(shape):
    """Scaled as a whole they would have three thousand million pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    tracemalloc.start()
    got = resize(pixels, (224, 224), "crop")
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()
    low, high = (n // 2 - 1 if n > 2 else 0 for n in shape), (n // 2 + 1 if n > 2 else n for n in shape)
    middle = pixels[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    assert got.shape == (224, 224, 3)
    assert abs(got.mean() - middle.mean()) < 40


def test_a_box_is_what_the_whole_would_be(monkeypatch):
    from orinport.dcnv4 import images

    pixels = np.random.default_rng(0).integers(0, 256, (90, 40, 3), np.uint8)
    whole = resize(pixels, (64, 64), "crop").astype(int)
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    assert np.abs(resize(pixels, (64, 64), "crop") - whole).mean() < 0.5
