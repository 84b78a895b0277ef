"""Calibration data: what is taken, and the sentence for each kind of bad data."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from builders import network, node
from orinport.emulation import open_samples
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.precision.calibrate import CalibrationOptions, calibrate, collect
from orinport.precision.data import DataSpec, InputSpec, Samples, _Loader, open_data
from orinport.precision.preprocess import Preprocessing, read_preprocessing

IMAGE = InputSpec("x", (1, 3, 8, 8), "float32")
PAIR = InputSpec("x", (2, 3, 8, 8), "float32")
TOML = '[image]\nlayout = "NCHW"\ncolor = "RGB"\nresize = "stretch"\ndivide = 255.0\n'


def opened(path: Path | str, *inputs: InputSpec, preprocess: Path | str = "") -> Samples:
    return open_data(DataSpec(str(path), inputs or (IMAGE,), str(preprocess)))


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "number"), [((5, 3, 8, 8), 5), ((1, 3, 8, 8), 1), ((3, 8, 8), 1), ((4, 1, 3, 8, 8), 4)]
)
def test_npy(tmp_path: Path, shape: tuple[int, ...], number: int) -> None:
    array = ramp(*shape)
    np.save(tmp_path / "a.npy", array)
    samples = opened(tmp_path / "a.npy")
    assert len(samples) == number
    assert (np.concatenate([samples[i]["x"] for i in range(number)]) == array.reshape(number, 3, 8, 8)).all()


def test_batches_and_types(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8)).astype(np.uint8)
    np.save(tmp_path / "a.npy", array)
    samples = opened(tmp_path / "a.npy", PAIR)
    assert len(samples) == 2
    assert samples[1]["x"].dtype == np.float32
    assert (samples[1]["x"] == array[2:4]).all()


def test_files_of_arrays_are_known_by_their_content(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ramp(2, 3, 8, 8))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", ramp(2, 3, 8, 8))
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    for name in ("a.npy", "b.npz"):
        samples = opened(tmp_path / name)
        assert len(samples) == 2
        np.testing.assert_array_equal(samples[1]["x"], ramp(2, 3, 8, 8)[1:])


def test_npz_of_several_inputs_and_folders_of_them(tmp_path: Path) -> None:
    mask = InputSpec("m", (1, 4), "int64")
    for index in range(3):
        np.savez(tmp_path / f"{index}.npz", x=ramp(2, 3, 8, 8) + index, m=ramp(2, 4) + index)
    samples = opened(tmp_path, IMAGE, mask)
    assert len(samples) == 6
    assert samples[3]["m"].tolist() == [[5, 6, 7, 8]]
    assert samples[3]["m"].dtype == np.int64


def test_a_python_function(tmp_path: Path) -> None:
    path = tmp_path / "loader.py"
    path.write_text(
        "import numpy as np\n"
        "def listed():\n    return [np.full((3, 8, 8), i, np.float32) for i in range(4)]\n"
        "def streamed():\n    for i in range(4):\n        yield {'x': np.full((1, 3, 8, 8), i)}\n"
        "def empty():\n    return []\n"
        "def fails():\n    raise KeyError('k')\n"
        "def two():\n    return [(np.zeros((1, 3, 8, 8)), np.zeros(1))]\n"
    )
    for name in ("listed", "streamed"):
        samples = opened(f"{path}:{name}")
        assert [float(samples[i]["x"].mean()) for i in (0, 1, 3, 2, 0)] == [0, 1, 3, 2, 0]
        assert len(samples) == 4
    for name, message in [("empty", "no samples"), ("none", "no function 'none'"), ("fails", "fails: KeyError")]:
        with pytest.raises(OrinportError, match=message):
            opened(f"{path}:{name}")
    with pytest.raises(OrinportError, match="2 arrays for 1 input"):
        opened(f"{path}:two")[0]
    with pytest.raises(OrinportError, match="does not exist"):
        opened(f"{tmp_path / 'other.py'}:f")
    (tmp_path / "broken.py").write_text("import nothing_like_this\n")
    with pytest.raises(OrinportError, match="fails: ModuleNotFoundError"):
        opened(f"{tmp_path / 'broken.py'}:f")


def endless(tmp_path: Path) -> str:
    """A function that yields without end, and gives up long after the limits of the tests."""
    path = tmp_path / "endless.py"
    path.write_text(
        "import numpy as np\n"
        "def samples():\n"
        "    for i in range(100):\n        yield np.full((1, 4, 8, 8), i, np.float32)\n"
        "    raise RuntimeError('read to the end')\n"
    )
    return f"{path}:samples"


def test_a_function_is_read_no_further_than_asked(tmp_path: Path) -> None:
    source = endless(tmp_path)
    samples = open_data(DataSpec(source, (InputSpec("x", (1, 4, 8, 8), "float32"),), most=8))
    assert len(samples) == 8
    assert float(samples[7]["x"].mean()) == 7
    with pytest.raises(OrinportError, match="read to the end"):
        open_data(DataSpec(source, (InputSpec("x", (1, 4, 8, 8), "float32"),)))


def test_calibration_and_comparison_read_no_further_than_asked(tmp_path: Path) -> None:
    source = endless(tmp_path)
    proto = network([node("Relu", ["x"], "y")], {"x": (1, 4, 8, 8)}, ["y"])
    collected = collect(load(proto), source, options=CalibrationOptions(samples=8, method="min-max"))
    assert (collected.samples, collected.histograms["x"].high) == (8, 7.0)
    fed, _ = open_samples(load(proto), data=source, cases=3)
    assert [float(each["x"].mean()) for each in fed] == [0, 1, 2]


def test_what_a_function_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loader.py"
    path.write_text(
        "import numpy as np\nprint('module')\n"
        "class Listed:\n"
        "    def __len__(self):\n        return 2\n"
        "    def __getitem__(self, index):\n        print('item')\n        return np.zeros((3, 8, 8))\n"
        "def listed():\n    print('function')\n    return Listed()\n"
        "def streamed():\n    for _ in range(2):\n        print('streamed')\n        yield np.zeros((3, 8, 8))\n"
    )
    for name, printed in [("listed", "module function item item"), ("streamed", "module" + " streamed" * 4)]:
        samples = opened(f"{path}:{name}")
        assert [samples[i]["x"].shape for i in range(2)] == [(1, 3, 8, 8)] * 2
        assert sys.stdout is not sys.stderr
        captured = capsys.readouterr()
        assert (captured.out, captured.err.split()) == ("", printed.split())


def test_threads_that_read_side_by_side_leave_stdout_as_it_was(tmp_path: Path) -> None:
    """The first to come in is the first to leave here, so that each could take the other's stderr for stdout."""
    path = tmp_path / "loader.py"
    path.write_text(
        "from threading import Event, Semaphore\nimport numpy as np\n"
        "begun, first, second = Semaphore(0), Event(), Event()\n"
        "class Listed:\n"
        "    def __len__(self):\n        return 2\n"
        "    def __getitem__(self, index):\n"
        "        begun.release()\n        (first if index else second).wait(5)\n        return np.zeros((3, 8, 8))\n"
        "def samples():\n    return Listed()\n"
    )
    before = sys.stdout
    samples = opened(f"{path}:samples")
    assert isinstance(samples, _Loader)
    events = samples.function.__globals__
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(samples.load, 0)
        assert events["begun"].acquire(timeout=5)
        two = pool.submit(samples.load, 1)
        assert events["begun"].acquire(timeout=5)
        events["second"].set()
        one.result(5)
        events["first"].set()
        two.result(5)
    assert sys.stdout is before


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "returns nothing in place of samples"),
        ("return {'x': np.zeros((4, 3, 8, 8))}", "returns one dictionary in place of samples"),
        ("raise SystemExit(1)", "fails: SystemExit: 1"),
        ("return [NoArray()]", "'x' is no array: detach it first"),
    ],
)
def test_what_a_function_gets_wrong(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "loader.py"
    kind = "class NoArray:\n    def __array__(self, *_, **__):\n        raise RuntimeError('detach it first')\n"
    path.write_text(f"import numpy as np\n{kind}def samples():\n    {body}\n")
    with pytest.raises(OrinportError, match=message):
        opened(f"{path}:samples")[0]


def test_a_file_that_ends_the_process_fails(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(1)\n")
    with pytest.raises(OrinportError, match="fails: SystemExit: 1"):
        opened(f"{tmp_path / 'script.py'}:samples")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((5, 3, 9, 8), np.float32), "has the shape 5x3x9x8, and the network takes 1x3x8x8"),
        (np.zeros((5, 3, 8), np.float32), "has the shape 5x3x8"),
        (np.zeros((0, 3, 8, 8), np.float32), "no whole sample"),
        (np.float32(1), "has the shape"),
    ],
)
def test_wrong_shapes(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(OrinportError, match=message):
        opened(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "1 element of 'x' is NaN or infinite"), (np.inf, "NaN or infinite")]
)
def test_nan_in_a_sample(tmp_path: Path, value: float, message: str) -> None:
    array = ramp(4, 3, 8, 8)
    array[2, 1, 1, 1] = value
    np.save(tmp_path / "a.npy", array)
    samples = opened(tmp_path / "a.npy")
    assert samples[1]["x"].shape == (1, 3, 8, 8)
    with pytest.raises(OrinportError, match=f"Sample 2 of .*{message}"):
        samples[2]


def test_files_that_hold_no_samples(tmp_path: Path) -> None:
    with pytest.raises(OrinportError, match="does not exist"):
        opened(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OrinportError, match="is empty"):
        opened(tmp_path / "empty")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    with pytest.raises(OrinportError, match="neither pictures nor"):
        opened(tmp_path / "notes")
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(OrinportError, match="no kind of data"):
        opened(tmp_path / "a.bin")
    (tmp_path / "a.npy").write_bytes(b"nothing")
    with pytest.raises(OrinportError, match="no plain arrays"):
        opened(tmp_path / "a.npy")
    (tmp_path / "g.npy").write_bytes(b"PK\x03\x04garbage")
    with pytest.raises(OrinportError, match="no plain arrays"):
        opened(tmp_path / "g.npy")
    np.savez(tmp_path / "b.npz", u=ramp(1, 3, 8, 8), v=ramp(1, 4))
    with pytest.raises(OrinportError, match="no array for the input 'x'; it has u, v"):
        opened(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", x=ramp(2, 3, 8, 8), m=ramp(3, 4))
    with pytest.raises(OrinportError, match="different numbers of samples: 2 of 'x', 3 of 'm'"):
        opened(tmp_path / "c.npz", IMAGE, InputSpec("m", (1, 4), "float32"))
    np.save(tmp_path / "d.npy", np.array([["a"]]))
    with pytest.raises(OrinportError, match="has the shape"):
        opened(tmp_path / "d.npy")
    with pytest.raises(OrinportError, match="holds no numbers"):
        opened(tmp_path / "d.npy", InputSpec("x", (1, 1), "float32"))[0]


def test_pickled_arrays_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(OrinportError, match="no plain arrays"):
        opened(tmp_path / "a.npy")


def test_the_identity_changes_with_the_data(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ramp(2, 3, 8, 8))
    first = opened(tmp_path / "a.npy").identity
    assert opened(tmp_path / "a.npy").identity == first
    np.save(tmp_path / "a.npy", ramp(3, 3, 8, 8))
    assert opened(tmp_path / "a.npy").identity != first


# --------------------------------------------------------------------------------------------- pictures


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index, size in enumerate([(16, 8), (8, 16), (8, 8), (40, 30)]):
        image.fromarray(rng.integers(0, 256, (*size, 3)).astype(np.uint8)).save(folder / f"{index}.png")
    (tmp_path / "p.toml").write_text(TOML)
    return folder


def test_pictures(pictures: Path) -> None:
    from PIL import Image

    samples = opened(pictures, preprocess=pictures.parent / "p.toml")
    assert len(samples) == 4
    expected = np.asarray(Image.open(pictures / "2.png"), np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(samples[2]["x"][0], expected, rtol=1e-6)
    assert len(opened(pictures, PAIR, preprocess=pictures.parent / "p.toml")) == 2
    assert len(opened(pictures / "0.png", preprocess=pictures.parent / "p.toml")) == 1


def test_pictures_that_fill_no_batch_are_told(pictures: Path) -> None:
    three = InputSpec("x", (3, 3, 8, 8), "float32")
    samples = opened(pictures, three, preprocess=pictures.parent / "p.toml")
    assert len(samples) == 1
    assert samples.left_out == "without the last 1 of 4 pictures, too few for a batch of 3"
    assert not opened(pictures, preprocess=pictures.parent / "p.toml").left_out


def test_arrays_that_fill_no_batch_are_told(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ramp(5, 3, 8, 8))
    np.save(tmp_path / "b.npy", ramp(4, 3, 8, 8))
    np.save(tmp_path / "c.npy", ramp(3, 2, 3, 8, 8))
    told = "without the last 1 of 5 entries of 'x' in 'a.npy', too few for a batch of 2"
    assert opened(tmp_path / "a.npy", PAIR).left_out == told
    assert not opened(tmp_path / "b.npy", PAIR).left_out
    assert not opened(tmp_path / "c.npy", PAIR).left_out
    assert opened(tmp_path, PAIR).left_out == told


def test_reports_say_what_fills_no_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ramp(9, 4, 8, 8))
    model = load(network([node("Relu", ["x"], "y")], {"x": (4, 4, 8, 8)}, ["y"]))
    data = str(tmp_path / "a.npy")
    told = "without the last 1 of 9 entries of 'x' in 'a.npy', too few for a batch of 4"
    assert open_samples(model, data=data, cases=3)[1] == f"{data}, {told}"
    assert open_samples(model, data=data, cases=1)[1] == data
    assert calibrate(model, data).method == f"percentile 99.99 on 2 samples, {told}"
    assert calibrate(model, data, options=CalibrationOptions(samples=1)).method == "percentile 99.99 on 1 sample"


def test_hidden_folders_are_left_out_and_links_to_nothing_refused(pictures: Path) -> None:
    toml = pictures.parent / "p.toml"
    for folder in (".thumbnails", "more"):
        (pictures / folder).mkdir()
        (pictures / folder / "a.png").write_bytes((pictures / "0.png").read_bytes())
    assert len(opened(pictures, preprocess=toml)) == 5
    (pictures / "lost.png").symlink_to(pictures / "gone.png")
    with pytest.raises(OrinportError, match="is a link to nothing"):
        opened(pictures, preprocess=toml)


def test_bad_pictures(pictures: Path) -> None:
    toml = pictures.parent / "p.toml"
    with pytest.raises(OrinportError, match="is not known"):
        opened(pictures)
    with pytest.raises(OrinportError, match="takes no RGB pictures"):
        opened(pictures, InputSpec("x", (1, 1, 8, 8), "float32"), preprocess=toml)
    with pytest.raises(OrinportError, match="feeds one input"):
        opened(pictures, IMAGE, InputSpec("m", (1, 4), "float32"), preprocess=toml)
    with pytest.raises(OrinportError, match="do not fill one batch"):
        opened(pictures, InputSpec("x", (8, 3, 8, 8), "float32"), preprocess=toml)
    (pictures / "9.jpg").write_bytes(b"\xff\xd8 broken")
    with pytest.raises(OrinportError, match=r"9\.jpg' is no picture"):
        opened(pictures, preprocess=toml)[4]
    np.save(pictures / "a.npy", ramp(1, 3, 8, 8))
    with pytest.raises(OrinportError, match="both pictures and arrays"):
        opened(pictures, preprocess=toml)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float32", 1e300), ("float16", 1e5), ("uint8", 300), ("int64", 0.5), ("uint8", -1)]
)
@pytest.mark.filterwarnings("error")
def test_values_that_the_input_cannot_hold(tmp_path: Path, dtype: str, value: float) -> None:
    np.save(tmp_path / "a.npy", np.full((1, 4), value))
    with pytest.raises(OrinportError, match=f"holds values that {dtype}"):
        opened(tmp_path / "a.npy", InputSpec("x", (1, 4), dtype))[0]


def test_arrays_that_cannot_be_made(tmp_path: Path) -> None:
    import zipfile

    loader = tmp_path / "loader.py"
    loader.write_text("def ragged():\n    return [[[1, 2], [3]]]\n")
    with pytest.raises(OrinportError, match="its rows differ in length"):
        opened(f"{loader}:ragged")[0]
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000000, 3, 8, 8)}"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00v\x00" + text.ljust(117) + b"\n")
    with pytest.raises(OrinportError, match="larger than the memory"):
        opened(tmp_path / "a.npz")


@pytest.mark.parametrize("size", [(60000, 1), (1, 60000)])
def test_slivers_take_no_more_memory_than_others(tmp_path: Path, size: tuple[int, int]) -> None:
    """Scaled as a whole they would have three thousand million pixels."""
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    image.fromarray(np.full((*size, 3), 77, np.uint8)).save(tmp_path / "a.png")
    found = Preprocessing(resize="crop").read(tmp_path / "a.png", (1, 3, 224, 224))
    assert found.shape == (3, 224, 224)
    assert (found == 77).all()


def test_a_sliver_s_middle_is_what_the_whole_would_be(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orinport.precision import preprocess

    crop = Preprocessing(resize="crop")
    whole = crop.read(pictures / "0.png", (1, 3, 8, 8))
    monkeypatch.setattr(preprocess, "MAX_PIXELS", 10)
    assert np.abs(crop.read(pictures / "0.png", (1, 3, 8, 8)) - whole).max() <= 1


def test_resizing(pictures: Path) -> None:
    wide = pictures / "0.png"
    shape = (1, 3, 8, 8)
    crop = Preprocessing(resize="crop").read(wide, shape)
    assert crop.shape == (3, 8, 8)
    boxed = Preprocessing(resize="letterbox", fill=114).read(wide, shape)
    assert (boxed[:, :, :2] == 114).all()
    assert (boxed[:, :, -2:] == 114).all()
    assert not (boxed[:, :, 2:6] == 114).all()
    larger = Preprocessing(resize="crop", short_side=16).read(wide, shape)
    assert not np.array_equal(crop, larger)
    with pytest.raises(OrinportError, match="smaller than the input"):
        Preprocessing(resize="crop", short_side=4).read(wide, shape)
    last = Preprocessing(layout="NHWC").read(wide, (1, 8, 8, 3))
    assert np.array_equal(last.transpose(2, 0, 1), Preprocessing().read(wide, shape))
    assert np.array_equal(Preprocessing(color="BGR").read(wide, shape)[::-1], Preprocessing().read(wide, shape))
    assert Preprocessing(color="L").read(wide, (1, 1, 8, 8)).shape == (1, 8, 8)


def test_numbers_are_divided_then_normalised(pictures: Path) -> None:
    plain = Preprocessing().read(pictures / "2.png", (1, 3, 8, 8))
    made = Preprocessing(divide=255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)).read(pictures / "2.png", (1, 3, 8, 8))
    mean, std = np.array([0.5, 0.4, 0.3]).reshape(3, 1, 1), np.array([0.2, 0.3, 0.4]).reshape(3, 1, 1)
    np.testing.assert_allclose(made, (plain / 255 - mean) / std, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[image", "is not TOML"),
        ("[picture]\n", "does not describe the inputs x"),
        ("[image]\nresize = 'squash'\n", "resize = 'squash' is none of"),
        ("[image]\nmeans = [1.0]\n", "no setting 'means'"),
        ("[image]\nmean = [1.0, 2.0]\n", "mean has 2 numbers for 3 channels"),
        ("[image]\nstd = [1.0, 0.0, 1.0]\n", "must not be 0"),
        ("[image]\ndivide = 'a'\n", "divide = 'a' is not a number"),
        ("[image]\nfill = 256\n", "fill = 256 is no colour"),
        ("[image]\nshort_side = 100000000\n", "short_side = 100000000 is not between"),
        ("[image]\nshort_side = -5\n", "short_side = -5 is not between"),
        ("image = 3\n", "no table of settings"),
        ("[inputs.y]\n", "does not describe the inputs x"),
    ],
)
def test_bad_preprocessing(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(OrinportError, match=message):
        read_preprocessing(tmp_path / "p.toml", ("x",))


def test_preprocessing_by_input(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[inputs.a]\ncolor = 'L'\n[inputs.b]\nfill = 3\n")
    made = read_preprocessing(tmp_path / "p.toml", ("a", "b"))
    assert made["a"].color == "L"
    assert made["b"].fill == 3
    with pytest.raises(OrinportError, match="cannot be read"):
        read_preprocessing(tmp_path / "none.toml", ("a",))
