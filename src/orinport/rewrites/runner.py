"""Running what is proved: in ONNX Runtime, and in onnx.reference where that cannot run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.errors import OrinportError, first_line
from orinport.model.runtime import open_session
from orinport.rewrites.runnable import runnable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

__all__ = ["Arrays", "NotProvableError", "Runner", "runnable_piece"]

Arrays = dict[str, "NDArray[Any]"]


class NotProvableError(Exception):
    """Neither ONNX Runtime nor onnx.reference can run the piece."""


class Runner:
    """A model in ONNX Runtime, nothing optimised; in onnx.reference where that cannot run it.

    `weights` are elements of initializers that the model names without holding them.
    """

    def __init__(
        self,
        source: bytes | str,
        proto: Callable[[], Any] | None = None,
        *,
        threads: int = 1,
        weights: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self._session: Any = None
        self._reference: Any = None
        self._proto = proto
        self.engine = "onnxruntime"
        try:
            self._session = open_session(source, threads=threads, optimise=False, arena=False, weights=weights)
        except Exception as error:
            self._fall_back(error)

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """The outputs by name; NotProvableError if no engine can run the model."""
        if self._session is not None:
            try:
                return list(self._session.run(list(outputs), dict(feeds)))
            except Exception as error:
                self._fall_back(error)
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(array) for array in self._reference.run(list(outputs), dict(feeds))]
        except Exception as error:
            raise NotProvableError(f"no engine runs it: {first_line(error)}") from error

    def fall_back(self) -> None:
        """To onnx.reference, if that is not the engine already."""
        if self._session is not None:
            self._fall_back(NotProvableError("the other piece cannot be run in it"))

    def _fall_back(self, error: Exception) -> None:
        if self._proto is None:
            raise NotProvableError(f"ONNX Runtime cannot run it: {first_line(error)}") from error
        from onnx.reference import ReferenceEvaluator

        try:
            self._reference = ReferenceEvaluator(self._proto())
        except Exception as second:
            raise NotProvableError(
                f"ONNX Runtime cannot run it ({first_line(error)}), nor can onnx.reference ({first_line(second)})"
            ) from second
        self._session = None
        self.engine = "onnx.reference"


def runnable_piece(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`runnable`; raises NotProvableError where that cannot be done."""
    try:
        return runnable(proto)
    except OrinportError as error:
        raise NotProvableError(error.message) from error
