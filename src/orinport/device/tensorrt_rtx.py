"""NVIDIA's own ONNX parser and builder (package tensorrt-rtx, x86-64, no GPU) as a reference.

It is TensorRT 11 in kind: strongly typed, with layers that older versions lack. It says how a graph is
parsed and whether it builds; it knows nothing of the DLA, and its engines do not run on Orin. The libraries
live in a child process, which may die of a model without harm to the caller.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orinport.errors import MissingExtraError
from orinport.model.layer import DType
from orinport.targets.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from orinport.model.model import Model

__all__ = [
    "REFERENCE_VERSION",
    "BuildCheck",
    "ParsedLayer",
    "ParsedNetwork",
    "ParsedTensor",
    "ParserError",
    "Session",
    "available",
    "build_check",
    "parse",
]

REFERENCE_VERSION = Version((11, 0))
"""The TensorRT version whose lowering this parser shows."""
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ParsedTensor:
    """A tensor of the parsed network; dynamic dimensions are -1, an unknown rank is None."""

    name: str
    shape: tuple[int, ...] | None
    dtype: DType


@dataclass(frozen=True, slots=True)
class ParsedLayer:
    """A layer as TensorRT's API shows it; `attributes` has the keys of `model.layer.ATTRIBUTES`."""

    index: int
    name: str
    kind: str
    inputs: tuple[ParsedTensor | None, ...]
    outputs: tuple[ParsedTensor | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParserError:
    """What the parser says against a node; `node` is its index, -1 if it is about no single node."""

    node: int
    name: str
    operator: str
    message: str


@dataclass(frozen=True, slots=True)
class ParsedNetwork:
    """The network that the parser made, or as much of it as came before the first error."""

    parsed: bool
    layers: tuple[ParsedLayer, ...]
    errors: tuple[ParserError, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The layers' kinds, in order."""
        return tuple(layer.kind for layer in self.layers)


@dataclass(frozen=True, slots=True)
class BuildCheck:
    """Whether TensorRT builds an engine of the model, for compute capability 8.6."""

    built: bool
    seconds: float
    errors: tuple[ParserError, ...]
    messages: tuple[str, ...]
    """What TensorRT logged as errors."""


def available() -> bool:
    """Whether the extra is installed."""
    return find_spec("tensorrt_rtx") is not None


class Session:
    """A child process with the parser, for many models; a context manager.

    A model that kills the child, or on which it spends more than `timeout` seconds, gets an answer that says
    so, and the next model a new child. Raises MissingExtraError if tensorrt-rtx is not installed.
    """

    def __init__(self, *, timeout: float = 120.0) -> None:
        if not available():
            raise MissingExtraError("tensorrt-rtx-cu13", "tensorrt", "Comparison with NVIDIA's parser")
        self.timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="orinport-")
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove its files."""
        self._stop()
        self._folder.cleanup()

    def parse(self, model: Model | Any) -> ParsedNetwork:
        """Parse a model: a `Model`, a path, bytes or an `onnx.ModelProto`."""
        answer = self._ask("parse", model)
        layers = tuple(_layer(index, entry) for index, entry in enumerate(answer.get("layers", ())))
        return ParsedNetwork(bool(answer["parsed"]), layers, _errors(answer))

    def build(self, model: Model | Any) -> BuildCheck:
        """Parse and build a model."""
        answer = self._ask("build", model)
        seconds = float(answer.get("seconds", 0.0))
        return BuildCheck(bool(answer.get("built")), seconds, _errors(answer), tuple(answer.get("messages", ())))

    # --- the child -------------------------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        child = subprocess.Popen(  # our own interpreter and module
            [sys.executable, "-m", "orinport.device.tensorrt_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        self._child = child
        lines: queue.Queue[str | None] = queue.Queue()
        self._lines = lines

        def pump() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=pump, daemon=True).start()
        self._read(_START_SECONDS)
        return child

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _read(self, timeout: float) -> dict[str, Any]:
        """The next answer. Raises TimeoutError or BrokenPipeError."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            raise BrokenPipeError
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _ask(self, what: str, model: Any) -> dict[str, Any]:
        path = self._file(model)
        try:
            child = self._child or self._start()
            assert child.stdin is not None
            child.stdin.write(json.dumps({"do": what, "path": str(path)}) + "\n")
            child.stdin.flush()
            return self._read(self.timeout)
        except TimeoutError:
            self._stop()
            return _failure(f"TensorRT did not answer within {self.timeout:g} s.")
        except (BrokenPipeError, OSError):
            self._stop()
            return _failure("TensorRT ended its process on this model.")
        finally:
            if path.parent == Path(self._folder.name):
                path.unlink(missing_ok=True)

    def _file(self, model: Any) -> Path:
        """The model as a file that the child can read."""
        if isinstance(model, (str, os.PathLike)):
            return Path(model).resolve()
        path = Path(self._folder.name) / "model.onnx"
        path.write_bytes(_serialized(model))
        return path


def _serialized(model: Any) -> bytes:
    if isinstance(model, (bytes, bytearray)):
        return bytes(model)
    if hasattr(model, "SerializeToString"):
        return bytes(model.SerializeToString())
    from orinport.model.save import to_proto

    return bytes(to_proto(model).SerializeToString())


def _failure(message: str) -> dict[str, Any]:
    error = {"node": -1, "name": "", "operator": "", "message": message}
    return {"parsed": False, "layers": [], "errors": [error], "messages": [message]}


def _errors(answer: Mapping[str, Any]) -> tuple[ParserError, ...]:
    return tuple(
        ParserError(e["node"], e["name"] or "", e["operator"] or "", e["message"] or "") for e in answer["errors"]
    )


def _tensor(entry: Mapping[str, Any] | None) -> ParsedTensor | None:
    if entry is None:
        return None
    shape = entry["shape"]
    return ParsedTensor(entry["name"], None if shape is None else tuple(shape), DType(entry["dtype"]))


def _layer(index: int, entry: Mapping[str, Any]) -> ParsedLayer:
    attributes = {key: tuple(v) if isinstance(v, list) else v for key, v in entry["attributes"].items()}
    return ParsedLayer(
        index,
        entry["name"],
        entry["kind"],
        tuple(_tensor(t) for t in entry["inputs"]),
        tuple(_tensor(t) for t in entry["outputs"]),
        attributes,
    )


def parse(model: Model | Any, *, timeout: float = 120.0) -> ParsedNetwork:
    """Parse one model with NVIDIA's parser, in a process of its own."""
    with Session(timeout=timeout) as session:
        return session.parse(model)


def build_check(model: Model | Any, *, timeout: float = 600.0) -> BuildCheck:
    """Build one model with NVIDIA's builder, in a process of its own."""
    with Session(timeout=timeout) as session:
        return session.build(model)
