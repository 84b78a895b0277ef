"""NVIDIA's own parser and builder in a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from builders import light_path, network, node, small_cnn
from orinport.device import tensorrt_rtx
from orinport.device.tensorrt_rtx import REFERENCE_VERSION, Session, build_check, parse
from orinport.errors import MissingExtraError
from orinport.model import load
from orinport.model.layer import DType

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_tensorrt = pytest.mark.tensorrt
SHAPE = (1, 3, 8, 8)


def relu() -> onnx.ModelProto:
    return network([node("Relu", ["x"], "y")], {"x": SHAPE}, {"y": SHAPE})


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(timeout=60) as made:
        yield made


@needs_tensorrt
def test_the_layers_of_a_network(session: Session) -> None:
    parsed = session.parse(onnx.shape_inference.infer_shapes(small_cnn()))
    assert parsed.parsed
    assert parsed.errors == ()
    assert parsed.kinds[:3] == ("CONVOLUTION", "ACTIVATION", "POOLING")
    conv = parsed.layers[0]
    assert conv.name == "Conv_c1"
    assert conv.index == 0
    assert conv.attributes["kernel"] == (3, 3)
    assert conv.attributes["pre_padding"] == (1, 1)
    assert conv.attributes["output_maps"] == 8
    assert conv.inputs[0] is not None
    assert conv.inputs[0].name == "x"
    assert conv.outputs[0] is not None
    assert conv.outputs[0].shape == (1, 8, 16, 16)
    assert conv.outputs[0].dtype is DType.FP32


@needs_tensorrt
@pytest.mark.parametrize("form", ["path", "bytes", "proto", "Model"])
def test_every_form_of_a_model(session: Session, form: str) -> None:
    path = light_path("squeezenet")
    source = {
        "path": lambda: path,
        "bytes": path.read_bytes,
        "proto": lambda: onnx.load_model_from_string(path.read_bytes()),
        "Model": lambda: load(path),
    }[form]()
    assert "CONVOLUTION" in session.parse(source).kinds


@needs_tensorrt
def test_an_operator_that_the_parser_does_not_know(session: Session) -> None:
    custom = network([node("Foo", ["x"], "y", domain="custom")], {"x": SHAPE}, {"y": SHAPE}, domains={"custom": 1})
    parsed = session.parse(custom)
    assert not parsed.parsed
    assert parsed.errors[0].operator == "Foo"
    assert parsed.errors[0].name == "Foo_y"
    assert parsed.errors[0].node == 0
    assert "lugin" in parsed.errors[0].message


@needs_tensorrt
def test_what_comes_before_the_error_is_there(session: Session) -> None:
    nodes = [node("Relu", ["x"], "r"), node("Foo", ["r"], "y", domain="custom")]
    parsed = session.parse(network(nodes, {"x": SHAPE}, {"y": SHAPE}, domains={"custom": 1}))
    assert not parsed.parsed
    assert parsed.kinds == ("ACTIVATION",)
    assert parsed.errors[0].node == 1


@needs_tensorrt
@pytest.mark.parametrize("garbage", [b"", b"garbage", b"\x08\x08\x12\x00" * 50])
def test_garbage_is_an_answer_not_a_crash(session: Session, garbage: bytes) -> None:
    parsed = session.parse(garbage)
    assert not parsed.parsed or parsed.layers == ()


@needs_tensorrt
def test_a_shape_that_cannot_be_is_an_error(session: Session) -> None:
    kernel = np.ones((1, 3, 20, 20), np.float32)
    parsed = session.parse(network([node("Conv", ["x", "w"], "y")], {"x": SHAPE}, {"y": (1, 1, 1, 1)}, {"w": kernel}))
    assert not parsed.parsed
    assert parsed.errors
    assert "negative" in parsed.errors[0].message


@needs_tensorrt
def test_a_child_that_dies_is_reported_and_replaced() -> None:
    with Session() as session:
        assert session.parse(relu()).parsed
        assert session._child is not None
        os.kill(session._child.pid, signal.SIGKILL)
        session._child.wait()
        parsed = session.parse(relu())
        assert not parsed.parsed
        assert "ended its process" in parsed.errors[0].message
        assert session.parse(relu()).parsed


@needs_tensorrt
def test_a_model_that_takes_too_long_is_reported() -> None:
    with Session(timeout=0.0) as session:
        parsed = session.parse(light_path("densenet121"))
        assert not parsed.parsed
        assert "did not answer" in parsed.errors[0].message
        session.timeout = 60.0
        assert session.parse(relu()).parsed


@needs_tensorrt
def test_a_child_ends_with_its_session() -> None:
    with Session() as session:
        session.parse(relu())
        child = session._child
        folder = session._folder.name
    assert child is not None
    assert child.poll() is not None
    assert not os.path.exists(folder)  # noqa: PTH110 - a string


@needs_tensorrt
def test_nothing_of_tensorrt_is_loaded_here() -> None:
    """In a process of its own, because other tests may load it into this one."""
    code = (
        "import sys; from orinport.device.tensorrt_rtx import Session\n"
        "with Session(timeout=60) as session: parsed = session.parse(sys.stdin.buffer.read())\n"
        "print(parsed.parsed, 'tensorrt_rtx' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=relu().SerializeToString(), capture_output=True, check=True
    )
    assert done.stdout.split() == [b"True", b"False"]


@needs_tensorrt
def test_a_network_that_builds() -> None:
    check = build_check(relu())
    assert check.built
    assert check.seconds > 0
    assert check.errors == ()


@needs_tensorrt
def test_a_network_that_does_not_build() -> None:
    custom = network([node("Foo", ["x"], "y", domain="custom")], {"x": SHAPE}, {"y": SHAPE}, domains={"custom": 1})
    check = build_check(custom)
    assert not check.built
    assert check.errors[0].operator == "Foo"
    assert check.messages


@needs_tensorrt
def test_parse_in_a_process_of_its_own() -> None:
    assert parse(relu()).kinds == ("ACTIVATION",)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_rtx, "available", lambda: False)
    with pytest.raises(MissingExtraError) as caught:
        parse(relu())
    assert caught.value.extra == "tensorrt"
    assert "pip install 'orinport[tensorrt]'" in str(caught.value)


def test_the_reference_is_a_strongly_typed_tensorrt() -> None:
    assert REFERENCE_VERSION.parts[0] == 11
