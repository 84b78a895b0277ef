"""Building in parts with NVIDIA's own parser and builder, and how a network is cut without them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from boards import SCRIPT
from builders import network, node, small_cnn
from orinport.cli import main
from orinport.device.build_check import build_parts
from orinport.device.tensorrt_rtx import BuildCheck, ParserError, Session
from orinport.model import load

if TYPE_CHECKING:
    from orinport.model.model import Model

SHAPE = (1, 8, 16, 16)


def chain() -> Model:
    """relu0 -> Mystery -> relu1 -> add, to which relu0 goes past the mystery; sqrt stands alone beside it."""
    proto = network(
        [
            node("Relu", ["x"], "a", name="relu0"),
            node("Mystery", ["a"], "b", name="mystery", domain="custom"),
            node("Relu", ["b"], "c", name="relu1"),
            node("Add", ["c", "a"], "y", name="add"),
            node("Abs", ["u"], "z", name="abs"),
        ],
        {"x": SHAPE, "u": SHAPE},
        {"y": SHAPE, "z": SHAPE},
    )
    proto.opset_import.append(onnx.helper.make_opsetid("custom", 1))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, SHAPE))
    return load(proto)


class Refusing:
    """A builder that refuses operators, and fails on others."""

    def __init__(self, refused: str = "", failing: str = "") -> None:
        self._refused, self._failing = refused, failing
        self.given: list[onnx.ModelProto] = []

    def build(self, proto: onnx.ModelProto) -> BuildCheck:
        self.given.append(proto)
        onnx.checker.check_model(proto) if not self._has(proto, "Mystery") else None
        for index, each in enumerate(proto.graph.node):
            if each.op_type == self._refused:
                return BuildCheck(False, 0.0, (ParserError(index, each.name, each.op_type, "no\nsuch plugin"),), ())
        if self._has(proto, self._failing):
            return BuildCheck(False, 0.0, (), ("it does not build",))
        return BuildCheck(True, 1.0, (), ())

    @staticmethod
    def _has(proto: onnx.ModelProto, kind: str) -> bool:
        return any(each.op_type == kind for each in proto.graph.node)


def built(model: Model, session: Any) -> tuple[list[tuple[tuple[str, ...], bool]], list[str]]:
    found = build_parts(model, session)
    return [(part.nodes, part.built) for part in found.parts], [each.name for each in found.refused]


def test_a_network_that_is_taken_is_one_part() -> None:
    found = build_parts(load(small_cnn()), Refusing())  # type: ignore[arg-type]
    assert found.built
    assert len(found.parts) == 1


def test_what_is_refused_is_left_out_and_the_rest_is_built_in_parts_that_can_run() -> None:
    session = Refusing("Mystery")
    parts, refused = built(chain(), session)
    assert refused == ["mystery"]
    assert parts == [(("relu0",), True), (("relu1", "add"), True), (("abs",), True)]
    after = session.given[2].graph
    assert {info.name for info in after.input} == {"b", "a"}
    assert [info.name for info in after.output] == ["y"]


def test_a_part_that_fails_says_why() -> None:
    found = build_parts(chain(), Refusing("Mystery", failing="Add"))  # type: ignore[arg-type]
    assert [(part.nodes, part.message) for part in found.parts if not part.built] == [
        (("relu1", "add"), "it does not build")
    ]
    assert not found.built
    assert found.refused[0].message == "no such plugin"


def test_without_the_shape_of_an_edge_nothing_is_guessed() -> None:
    proto = network(
        [node("Mystery", ["x"], "b", name="mystery", domain="custom"), node("Relu", ["b"], "y", name="relu")],
        {"x": SHAPE},
        {"y": SHAPE},
    )
    proto.opset_import.append(onnx.helper.make_opsetid("custom", 1))
    found = build_parts(load(proto), Refusing("Mystery"))  # type: ignore[arg-type]
    assert [(part.nodes, part.built, part.message) for part in found.parts] == [
        (("relu",), False, "the type or rank of a tensor at its edge is unknown")
    ]


def write(folder: Path, model: Any) -> Path:
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    (folder / "build.sh").write_text(SCRIPT)
    return folder


@pytest.mark.tensorrt
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from orinport.model.save import to_proto

    assert main(["build", str(write(tmp_path / "a", small_cnn())), "--check"]) == 0
    out = capsys.readouterr().out
    assert "built in" in out
    assert "know nothing of the DLA" in out
    folder = write(tmp_path / "b", to_proto(chain()))
    assert main(["build", str(folder), "--check"]) == 1
    out = capsys.readouterr().out
    assert "refused: mystery (Mystery): " in out
    assert "2 nodes, relu1 to add: built in" in out
    assert sorted(path.name for path in folder.iterdir()) == ["build.sh", "model.onnx"]
    assert main(["build", str(folder), "--check", "--host", "user@board"]) == 2


@pytest.mark.tensorrt
def test_nvidias_builder_takes_the_parts() -> None:
    with Session(timeout=60) as session:
        parts, refused = built(chain(), session)
    assert refused == ["mystery"]
    assert [made for _, made in parts] == [True, True, True]


def test_without_the_extra_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("orinport.device.tensorrt_rtx.available", lambda: False)
    assert main(["build", str(write(tmp_path / "a", small_cnn())), "--check"]) == 2
    err = capsys.readouterr().err
    assert "orinport[tensorrt]" in err
    assert len(err.splitlines()) == 1
