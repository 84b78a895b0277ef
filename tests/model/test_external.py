"""External data: beside the model and nowhere else, complete, and not read before somebody asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from builders import network, node, small_cnn
from orinport.errors import OrinportError
from orinport.model import load, save

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_model(folder: Path, location: str = "weights.bin", **entries: str) -> Path:
    """A network of one MatMul whose 16x16 weights are said to be at `location`."""
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (1, 16)}, ["y"], {"w": np.zeros((16, 16), np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def refusal(path: object) -> str:
    with pytest.raises(OrinportError) as caught:
        load(path)
    text = str(caught.value)
    assert text.isprintable()
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with complete weights, and the same outside of it."""
    inside = tmp_path / "model"
    inside.mkdir()
    weights = np.arange(256, dtype=np.float32).tobytes()
    (inside / "weights.bin").write_bytes(weights)
    (tmp_path / "outside.bin").write_bytes(weights)
    return inside


def test_weights_beside_the_model(folder: Path) -> None:
    model = load(write_model(folder))
    weights = model.graph.initializers["w"]
    assert isinstance(weights.const_value, ir.ExternalTensor)
    array = model.constant(weights)
    assert array is not None
    np.testing.assert_array_equal(array.reshape(-1), np.arange(256))


def test_weights_in_a_folder_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data").mkdir()
    (folder / "weights.bin").rename(folder / "data" / "w.bin")
    write_model(folder, "data/w.bin")
    monkeypatch.chdir(folder)
    assert load("net.onnx").constant(load("net.onnx").graph.initializers["w"]) is not None


def test_small_constants_in_a_file_take_part_in_shape_arithmetic(folder: Path) -> None:
    (folder / "shape.bin").write_bytes(np.array([2, 8], np.int64).tobytes())
    proto = network([node("Reshape", ["x", "s"], "y")], {"x": (1, 16)}, ["y"], {"s": np.array([2, 8])})
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    proto.graph.initializer[0].external_data.add(key="location", value="shape.bin")
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    assert load(folder / "net.onnx").outputs[0].shape == (2, 8)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("../outside.bin", "leaves the model's folder"),
        ("data/../../outside.bin", "leaves the model's folder"),
        ("..\\outside.bin", "leaves the model's folder"),
        ("/etc/passwd", "an absolute path"),
        ("C:\\weights.bin", "an absolute path"),
        ("\\\\server\\share", "an absolute path"),
        ("", "no file name"),
        ("a\0b", "no file name"),
        ("n" * 5000, "no file name"),
        ("missing.bin", "No such file"),
        (".", "no plain file"),
        ("<script>\n", "No such file"),
    ],
)
def test_places_that_are_refused(folder: Path, location: str, reason: str) -> None:
    assert reason in refusal(write_model(folder, location))


def test_absolute_path_of_the_right_file(folder: Path) -> None:
    assert "an absolute path" in refusal(write_model(folder, str(folder / "weights.bin")))


def test_links(folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "outside.bin")
    assert "a link that leaves" in refusal(write_model(folder, "link.bin"))
    (folder / "way").symlink_to(folder.parent)
    assert "a link that leaves" in refusal(write_model(folder, "way/outside.bin"))
    (folder / "ring").symlink_to(folder / "ring")
    assert "cannot be read" in refusal(write_model(folder, "ring"))
    (folder / "inner.bin").symlink_to(folder / "weights.bin")
    assert load(write_model(folder, "inner.bin")).inputs[0].shape == (1, 16)
    (folder / "hard.bin").hardlink_to(folder.parent / "outside.bin")
    assert "hard links" in refusal(write_model(folder, "hard.bin"))


def test_the_folder_itself_may_be_a_link(folder: Path) -> None:
    write_model(folder)
    (folder.parent / "alias").symlink_to(folder)
    model = load(folder.parent / "alias" / "net.onnx")
    assert model.constant(model.graph.initializers["w"]) is not None


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"offset": "1"}, "end at byte 1025 of 'weights.bin', which has 1024"),
        ({"offset": str(2**63)}, "end at byte"),
        ({"offset": "-4"}, "offset of the external data of 'w' is no number: '-4'"),
        ({"offset": "x"}, "is no number"),
        ({"offset": "٣"}, "is no number"),
        ({"offset": "9" * 40}, "is no number"),
        ({"length": "1020"}, "are 1020 bytes long; its shape needs 1024"),
        ({"length": "2048"}, "are 2048 bytes long"),
        ({"length": ""}, "is no number"),
    ],
)
def test_offsets_and_lengths(folder: Path, entries: dict[str, str], reason: str) -> None:
    assert reason in refusal(write_model(folder, **entries))


def test_other_files_than_plain_ones(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "no plain file" in refusal(write_model(folder, "pipe"))


def test_a_cut_file(folder: Path) -> None:
    path = write_model(folder)
    os.truncate(folder / "weights.bin", 1000)
    text = refusal(path)
    assert "which has 1000 bytes" in text
    assert "Is the file complete?" in text


def test_models_without_a_folder(folder: Path) -> None:
    data = write_model(folder).read_bytes()
    for source in (data, onnx.ModelProto.FromString(data)):
        text = refusal(source)
        assert "without a folder" in text
        assert "path of the model" in text


def test_onnx_ir_models_keep_their_own_folder(folder: Path) -> None:
    model = load(ir.load(write_model(folder)))
    assert model.constant(model.graph.initializers["w"]) is not None


def test_onnx_ir_models_whose_data_are_gone(folder: Path) -> None:
    source = ir.load(write_model(folder))
    (folder / "weights.bin").unlink()
    assert "No such file" in refusal(source)


def test_loading_a_loaded_model_keeps_its_name_and_path(folder: Path) -> None:
    path = write_model(folder)
    again = load(load(path))
    assert (again.name, again.path) == ("net.onnx", path)
    assert again.constant(again.graph.initializers["w"]) is not None


BIG = (1 << 31) + (64 << 20)


def big_model(folder: Path) -> Path:
    """A valid network with more than 2 GiB of weights in a sparse file."""
    columns = 1 << 14
    rows = BIG // 4 // columns
    proto = network([node("MatMul", ["x", "w"], "y")], {"x": (1, rows)}, ["y"], {"w": np.zeros((1, 1), np.float32)})
    tensor = proto.graph.initializer[0]
    del tensor.dims[:]
    tensor.dims.extend([rows, columns])
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="big.bin")
    (folder / "big.bin").touch()
    os.truncate(folder / "big.bin", rows * columns * 4)
    (folder / "big.onnx").write_bytes(proto.SerializeToString())
    return folder / "big.onnx"


def run_limited(lines: Sequence[str], *arguments: str) -> str:
    """Run Python with 1.5 GiB of data memory; the big weights do not fit."""
    code = "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (3 << 29, 3 << 29))\n" + "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_more_than_two_gigabytes_are_not_read(tmp_path: Path) -> None:
    printed = run_limited(
        [
            "import sys",
            "from orinport.model import load, copy_model",
            "model = load(sys.argv[1])",
            "copy_model(model)",
            "assert model.graph.initializers['w'].const_value.nbytes > 2**31",
            "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))",
            "print(model.outputs[0].shape, int(peak.split()[1]) // 1024)",
        ],
        str(big_model(tmp_path)),
    )
    assert printed.startswith("(1, 16384) ")
    assert int(printed.split()[-1]) < 400


@pytest.mark.slow
def test_more_than_two_gigabytes_are_written(tmp_path: Path) -> None:
    model = load(big_model(tmp_path))
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "copy.onnx"
    files = save(model, target)
    assert files == (target, tmp_path / "out" / "copy.onnx.data")
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["copy.onnx", "copy.onnx.data"]
    again = load(target)
    assert again.outputs == model.outputs
    assert target.stat().st_size < 10_000
    assert files[1].stat().st_size >= BIG - 4 * (1 << 14)


def test_small_networks_stay_in_one_file(tmp_path: Path) -> None:
    assert save(load(small_cnn()), tmp_path / "a.onnx") == (tmp_path / "a.onnx",)
