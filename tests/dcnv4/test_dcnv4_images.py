"""Pictures: every kind of file has its own clear answer, and preprocessing is that of the evaluation."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from fractions import Fraction

import numpy as np
import pytest

from orinport.dcnv4.images import MAX_PIXELS, find_pictures, normalise, read_picture, resize
from orinport.errors import MissingExtraError, OrinportError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'orinport[image]'")


def scene(height=60, width=80):
    """A smooth coloured picture without symmetry."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 / (width - 1), y * 255 / (height - 1), (x + 2 * y) * 255 / (width + 2 * height)]
    return np.stack(channels, -1).astype(np.uint8)


def save(path, mode="RGB", **options):
    Image.fromarray(scene()).convert(mode).save(path, **options)
    return path


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "A.JPEG"])
def test_plain_pictures(tmp_path, name):
    picture = read_picture(save(tmp_path / name))
    assert (picture.pixels.shape, picture.pixels.dtype, picture.notes) == ((60, 80, 3), np.uint8, ())
    assert np.abs(picture.pixels.astype(int) - scene()).max() <= (0 if name.endswith("png") else 12)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    """The file holds the picture as the camera lay; it comes back upright."""
    pixels = scene()
    stored = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: np.rot90(pixels),
        7: pixels[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(pixels, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.png"
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif)
    picture = read_picture(path)
    np.testing.assert_array_equal(picture.pixels, pixels)
    assert ("EXIF" in "".join(picture.notes)) == (orientation > 1)


@pytest.mark.parametrize(
    ("mode", "suffix", "words"),
    [("L", "png", "grey"), ("L", "jpg", "grey"), ("LA", "png", "grey"), ("CMYK", "jpg", "CMYK"), ("1", "png", "grey")],
)
def test_other_colour_models_are_converted_and_say_so(tmp_path, mode, suffix, words):
    picture = read_picture(save(tmp_path / f"a.{suffix}", mode))
    assert picture.pixels.shape == (60, 80, 3)
    assert words in picture.notes[0]
    if mode == "L":
        assert np.array_equal(picture.pixels[..., 0], picture.pixels[..., 2])
    if mode == "CMYK":
        assert np.abs(picture.pixels.astype(int) - scene()).mean() < 4


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_transparency_and_palettes(tmp_path, mode):
    picture = read_picture(save(tmp_path / "a.png", mode))
    assert picture.pixels.shape == (60, 80, 3)
    assert ("transparency is dropped" in picture.notes) == (mode in ("RGBA", "LA", "PA"))


def test_16_bits_are_scaled_not_clipped(tmp_path):
    grey = np.linspace(0, 65535, 4800).reshape(60, 80).astype(np.uint16)
    Image.fromarray(grey).save(tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    assert "16-bit" in picture.notes[0]
    assert np.abs(picture.pixels[..., 1] - grey * (255 / 65535)).max() <= 0.5


def test_truncated(tmp_path):
    path = save(tmp_path / "a.jpg")
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(OrinportError, match="is truncated"):
        read_picture(path)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(width, height):
    """A PNG that claims to be enormous and holds next to nothing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(20_000, 20_000), (2**31 - 1, 2**31 - 1), (MAX_PIXELS + 1, 1)])
def test_pixel_bombs_are_not_decoded(tmp_path, size):
    path = tmp_path / "a.png"
    path.write_bytes(bomb(*size))
    with pytest.raises(OrinportError, match="more than the 134217728"):
        read_picture(path)


def test_animations(tmp_path):
    frames = [Image.fromarray(scene()), Image.fromarray(255 - scene())]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    with pytest.raises(OrinportError, match="animation of 2 frames"):
        read_picture(tmp_path / "a.png")
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(OrinportError, match="type GIF; JPEG and PNG are read"):
        read_picture(tmp_path / "a.gif")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello", "is no picture"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "is no picture|is damaged"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 50, "is no picture|is damaged|is truncated"),
    ],
)
def test_no_pictures(tmp_path, content, words):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(OrinportError, match=words):
        read_picture(path)


def test_damaged_in_the_middle(tmp_path):
    path = save(tmp_path / "a.png")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(OrinportError, match=r"is damaged|is truncated"):
        read_picture(path)


def test_missing_and_folder(tmp_path):
    with pytest.raises(OrinportError, match="There is no file"):
        read_picture(tmp_path / "a.jpg")
    with pytest.raises(OrinportError, match="is no file"):
        read_picture(tmp_path)


def test_random_bytes_never_escape(tmp_path):
    """Whatever bytes follow a genuine beginning: a picture or an OrinportError."""
    generator = np.random.default_rng(0)
    for name in ("a.jpg", "a.png"):
        data = save(tmp_path / name).read_bytes()
        for _ in range(60):
            broken = bytearray(data)
            for place in generator.integers(0, len(data), generator.integers(1, 30)):
                broken[place] = generator.integers(256)
            (tmp_path / name).write_bytes(bytes(broken[: generator.integers(20, len(data))]))
            with contextlib.suppress(OrinportError):
                assert read_picture(tmp_path / name).pixels.ndim == 3


def test_without_pillow(tmp_path, monkeypatch):
    import builtins

    real = builtins.__import__

    def refuse(name, *rest, **options):
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"orinport\[image\]"):
        read_picture(tmp_path / "a.jpg")


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


@pytest.mark.parametrize("orientation", [0, 9])
def test_an_orientation_that_does_not_exist_turns_nothing(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (8, 4)).save(tmp_path / "a.jpg", exif=exif)
    assert read_picture(tmp_path / "a.jpg").notes == ()


def test_16_bits_a_channel_are_said(tmp_path):
    """Pillow writes no such file, so it is put together here."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    row = b"\0" + struct.pack(">6H", 65535, 0, 257, 30000, 1, 2)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    picture = read_picture(tmp_path / "a.png")
    assert picture.pixels[0, 0].tolist() == [255, 0, 1]
    assert any("16 bits" in note for note in picture.notes)
