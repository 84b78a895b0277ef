"""Pictures: every kind of file has its own clear answer, the same wherever pictures are read."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from orinport.dcnv4.classifier import read_all
from orinport.errors import MissingExtraError, OrinportError
from orinport.pictures import MAX_PIXELS, read_picture
from orinport.precision.preprocess import Preprocessing

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'orinport[image]'")


def scene(height=60, width=80):
    """A smooth coloured picture without symmetry."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 / (width - 1), y * 255 / (height - 1), (x + 2 * y) * 255 / (width + 2 * height)]
    return np.stack(channels, -1).astype(np.uint8)


def save(path, mode="RGB", **options):
    Image.fromarray(scene()).convert(mode).save(path, **options)
    return path


def both(path):
    """The picture as classification and calibration read it, which is the same."""
    picture = read_picture(path)
    calibrating = Preprocessing(layout="NHWC").read(path, (1, *picture.pixels.shape))
    np.testing.assert_array_equal(calibrating, picture.pixels)
    grey = Preprocessing(layout="NHWC", color="L").read(path, (1, *picture.pixels.shape[:2], 1))
    np.testing.assert_array_equal(grey[..., 0], np.asarray(Image.fromarray(picture.pixels).convert("L")))
    return picture


def refused(path, words):
    """Classification and calibration refuse it in the same words."""
    good, [(_, error)] = read_all([path])
    assert not good
    assert re.search(words, str(error)), str(error)
    with pytest.raises(OrinportError) as other:
        Preprocessing().read(path, (1, 3, 60, 80))
    assert str(other.value) == str(error)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "A.JPEG", "a.bmp", "a.webp", "a.tif", "a.ppm"])
def test_plain_pictures(tmp_path, name):
    exact = {"lossless": True} if name.endswith("webp") else {}
    picture = both(save(tmp_path / name, **exact))
    assert (picture.pixels.shape, picture.pixels.dtype, picture.notes) == ((60, 80, 3), np.uint8, ())
    assert np.abs(picture.pixels.astype(int) - scene()).max() <= (12 if "j" in name.lower() else 0)


@pytest.mark.parametrize(("suffix", "mode"), [("png", "RGB"), ("tif", "RGB"), ("tif", "L"), ("tif", "RGBA")])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation, suffix, mode):
    """The file holds the picture as the camera lay; it comes back upright.

    Pillow 13.0 by itself mixes up grey and transparent TIFF files that lie on a side.
    """
    pixels = np.asarray(Image.fromarray(scene()).convert(mode).convert("RGB"))
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
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(np.ascontiguousarray(stored)).convert(mode).save(path, exif=exif)
    picture = both(path)
    np.testing.assert_array_equal(picture.pixels, pixels)
    assert ("EXIF" in "".join(picture.notes)) == (orientation > 1)


@pytest.mark.parametrize(
    ("mode", "suffix", "words"),
    [("L", "png", "grey"), ("L", "jpg", "grey"), ("LA", "png", "grey"), ("CMYK", "jpg", "CMYK"), ("1", "png", "grey")],
)
def test_other_colour_models_are_converted_and_say_so(tmp_path, mode, suffix, words):
    picture = both(save(tmp_path / f"a.{suffix}", mode))
    assert picture.pixels.shape == (60, 80, 3)
    assert words in picture.notes[0]
    if mode == "L":
        assert np.array_equal(picture.pixels[..., 0], picture.pixels[..., 2])
    if mode == "CMYK":
        assert np.abs(picture.pixels.astype(int) - scene()).mean() < 4


def test_transparency_is_dropped_and_the_colours_below_stay(tmp_path):
    alpha = np.broadcast_to(np.arange(80, dtype=np.uint8), (60, 80))[..., None]
    Image.fromarray(np.concatenate([scene(), alpha], -1)).save(tmp_path / "a.png")
    picture = both(tmp_path / "a.png")
    np.testing.assert_array_equal(picture.pixels, scene())
    assert picture.notes == ("transparency is dropped",)


@pytest.mark.parametrize("transparency", [None, 3, b"\x00\x80\xff"])
@pytest.mark.filterwarnings("error")
def test_palettes(tmp_path, transparency):
    flat = Image.fromarray(scene()).quantize(16)
    expected = np.asarray(flat.convert("RGB"))
    more = {} if transparency is None else {"transparency": transparency}
    for suffix in ("png", "gif") if transparency is None else ("png",):
        flat.save(tmp_path / f"a.{suffix}", **more)
        picture = both(tmp_path / f"a.{suffix}")
        np.testing.assert_array_equal(picture.pixels, expected)
        assert picture.notes == (() if transparency is None else ("transparency is dropped",))


@pytest.mark.parametrize("suffix", ["png", "tif", "ppm"])
def test_of_16_bits_the_upper_8_are_read(tmp_path, suffix):
    """Grey is read as colours are (test_16_bits_a_channel)."""
    grey = np.random.default_rng(1).integers(0, 1 << 16, (60, 80)).astype(np.uint16)
    grey[0, :3] = 0, 65535, 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    if suffix == "ppm":
        (tmp_path / "a.ppm").write_bytes(b"P5 80 60 65535\n" + grey.astype(">u2").tobytes())
    else:
        Image.fromarray(grey).save(tmp_path / f"a.{suffix}", exif=exif)
        grey = np.rot90(grey, -1)
    picture = both(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(picture.pixels, np.repeat((grey >> 8)[..., None], 3, axis=2))
    assert picture.notes[-1] == "16-bit grey, of which the upper 8 are read"


def test_pixels_of_32_bits(tmp_path):
    """Nobody knows whether they reach 1, 255 or more."""
    for number, pixels in enumerate((np.ones((60, 80), np.float32), np.ones((60, 80), np.int32))):
        path = tmp_path / f"{number}.tif"
        Image.fromarray(pixels).save(path)
        refused(path, "has pixels of 32 bits")


def test_colours_that_are_not_converted(tmp_path):
    Image.fromarray(scene()).convert("LAB").save(tmp_path / "a.tif")
    refused(tmp_path / "a.tif", "has colours of type LAB")


def test_bmp_of_5_6_and_5_bits_is_not_deep(tmp_path):
    """Pillow writes no such file: 2 x 1 pixels, red and green, with three masks."""
    header = struct.pack("<IiiHHIIiiII", 40, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0) + struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    start = 14 + len(header)
    body = struct.pack("<2sIHHI", b"BM", start + 4, 0, 0, start) + header + struct.pack("<HH", 0xF800, 0x7E0)
    (tmp_path / "a.bmp").write_bytes(body)
    picture = both(tmp_path / "a.bmp")
    assert picture.pixels.tolist() == [[[255, 0, 0], [0, 255, 0]]]
    assert picture.notes == ()


def test_of_a_camera_s_two_pictures_the_first_is_taken(tmp_path):
    first, second = (Image.new("RGB", (80, 60), (grey,) * 3) for grey in (40, 200))
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second])
    assert np.abs(both(tmp_path / "a.jpg").pixels.astype(int) - 40).max() <= 2


@pytest.mark.parametrize("suffix", ["eps", "png"])
def test_postscript_is_never_run(tmp_path, suffix, monkeypatch):
    """Pillow hands EPS files to a program, by their content and whatever they are called."""
    from PIL import EpsImagePlugin

    content = io.BytesIO()
    Image.fromarray(scene()).save(content, "EPS")
    (tmp_path / f"a.{suffix}").write_bytes(content.getvalue())
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("a program was run"))
    refused(tmp_path / f"a.{suffix}", "no picture of a type that is read")


def test_truncated(tmp_path):
    path = save(tmp_path / "a.jpg")
    path.write_bytes(path.read_bytes()[:-400])
    refused(path, "is truncated")


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
    refused(path, "more than the 134217728")


def test_animations(tmp_path):
    frames = [Image.fromarray(scene()), Image.fromarray(255 - scene())]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    refused(tmp_path / "a.png", "holds 2 frames")
    for suffix in ("gif", "tif", "webp"):
        frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
        refused(tmp_path / f"a.{suffix}", "holds 2 frames")


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
    refused(path, words)


def test_damaged_in_the_middle(tmp_path):
    path = save(tmp_path / "a.png")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    refused(path, r"is damaged|is truncated")


def test_missing_and_folder(tmp_path):
    refused(tmp_path / "a.jpg", "There is no file")
    refused(tmp_path, "is no file")


def test_random_bytes_never_escape(tmp_path):
    """Whatever bytes follow a genuine beginning: a picture or an OrinportError."""
    generator = np.random.default_rng(0)
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "a.png", "a.bmp", "a.gif", "a.ppm", "a.tif", "a.webp"):
        data = save(tmp_path / name, **({"exif": exif} if name in ("a.jpg", "a.png", "a.tif") else {})).read_bytes()
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


@pytest.mark.parametrize("orientation", [0, 9])
def test_an_orientation_that_does_not_exist_turns_nothing(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (8, 4)).save(tmp_path / "a.jpg", exif=exif)
    assert both(tmp_path / "a.jpg").notes == ()


def test_16_bits_a_channel(tmp_path):
    """Pillow writes no such file, so it is put together here."""
    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    row = b"\0" + struct.pack(">6H", 65535, 0, 257, 30000, 1, 2)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    picture = both(tmp_path / "a.png")
    assert picture.pixels.tolist() == [[[255, 0, 1], [30000 >> 8, 0, 0]]]
    assert any("16 bits" in note for note in picture.notes)


def test_large_pictures_are_read_without_a_warning_and_the_filters_stay(tmp_path, monkeypatch):
    """Pillow warns from half its limit on, and filters of warnings are shared by all threads."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    path = save(tmp_path / "a.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with ThreadPoolExecutor(4) as pool:
            assert all(each.pixels.shape == (60, 80, 3) for each in pool.map(read_picture, [path] * 40))
        assert list(warnings.filters) == before
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)
    refused(path, "more than the")


def test_damaged_exif_is_a_note_and_no_warning(tmp_path, recwarn):
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a long description"
    Image.fromarray(scene()).save(tmp_path / "a.jpg", exif=exif.tobytes()[:-10])
    picture = both(tmp_path / "a.jpg")
    assert picture.pixels.shape == scene().shape
    assert picture.notes == ("its EXIF data are damaged, taken as it lies",)
    assert not recwarn.list
