"""External data: tensors in files beside the model, and nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.model.structure import quote

if TYPE_CHECKING:
    import onnx

__all__ = ["ExternalData"]


class ExternalData:
    """The files that a model in `folder` may take its tensors from; None if there is no folder (bytes, a proto)."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else folder.resolve()
        self._sizes: dict[str, int] = {}

    def check(self, tensor: onnx.TensorProto, nbytes: int) -> None:
        """Raise OrinportError unless the data of `tensor` are `nbytes` bytes inside a plain file of the folder."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        self.check_place(
            tensor.name,
            entries.get("location", ""),
            _number(tensor.name, "offset", entries.get("offset")),
            _number(tensor.name, "length", entries.get("length")),
            nbytes,
        )

    def check_place(self, name: str, location: str, offset: int | None, length: int | None, nbytes: int) -> None:
        """As `check`, for a place that is already taken apart."""
        if self.folder is None:
            raise OrinportError(
                f"The data of {quote(name)} are in the file {quote(location)}, and the model came without a folder.",
                "Give the path of the model instead.",
            )
        if location not in self._sizes:
            self._sizes[location] = self._size(name, location)
        if length is not None and length != nbytes:
            raise OrinportError(f"The data of {quote(name)} are {length} bytes long; its shape needs {nbytes}.")
        if (offset or 0) + nbytes > self._sizes[location]:
            raise OrinportError(
                f"The data of {quote(name)} end at byte {(offset or 0) + nbytes} of {quote(location)}, which has "
                f"{self._sizes[location]} bytes.",
                "Is the file complete?",
            )

    def _size(self, name: str, location: str) -> int:
        """Size in bytes of the file at `location`, which has to be a plain file in the folder."""
        assert self.folder is not None
        refusal = f"The data of {quote(name)} are in {quote(location)}"
        inside = "External data have to lie in the model's folder."
        if not location or "\0" in location or len(location) > 4096:
            raise OrinportError(f"{refusal}, which is no file name.")
        if location.startswith(("/", "\\")) or location[1:2] == ":":
            raise OrinportError(f"{refusal}, an absolute path.", inside)
        if ".." in location.replace("\\", "/").split("/"):
            raise OrinportError(f"{refusal}, which leaves the model's folder.", inside)
        try:
            real = (self.folder / location).resolve()
            if not real.is_relative_to(self.folder):
                raise OrinportError(f"{refusal}, a link that leaves the model's folder.", inside)
            status = real.stat()
        except (OSError, RuntimeError) as error:
            raise OrinportError(
                f"{refusal}, which cannot be read: {getattr(error, 'strerror', error)}.",
                "Put the data file beside the model.",
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise OrinportError(f"{refusal}, which is no plain file.")
        if status.st_nlink > 1:
            raise OrinportError(
                f"{refusal}, a file with several hard links.", "Copy it, so that it is a file of its own."
            )
        return status.st_size


def _number(name: str, key: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise OrinportError(f"The {key} of the external data of {quote(name)} is no number: {quote(text)}.")
    return int(text)
