"""Measured choices: per GPU, driver and kernel sources, a file with the fastest configuration of each problem."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from orinport.dcnv4.cuda_compile import CudaDevice, cache_folder, source_digest
from orinport.dcnv4.cuda_plan import CONFIGURATIONS
from orinport.errors import OrinportError
from orinport.files import write_whole

if TYPE_CHECKING:
    from orinport.dcnv4.cuda_plan import ElementType, Params

__all__ = ["measured_choice", "problem_key", "remember"]


def problem_key(p: Params, value: ElementType, offset: ElementType, fast: bool) -> str:
    """Everything that the speed of a configuration depends on."""
    numbers = [p.batch, p.height, p.width, p.groups, p.group_channels, p.value_stride, p.offset_stride]
    numbers += [p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.dilation_h, p.dilation_w]
    return f"{value.name}/{offset.name}/{'fast' if fast else 'exact'}/{'x'.join(map(str, numbers))}/{p.offset_scale:g}"


def measured_choice(device: CudaDevice, p: Params, value: ElementType, offset: ElementType, fast: bool) -> int:
    """The id that `dcnv4 bench --tune` found fastest on this GPU; 0 if it was not asked."""
    choices = _choices(str(_path(device)))
    return choices.get(problem_key(p, value, offset, fast), 0) if choices else 0


def remember(device: CudaDevice, choices: dict[str, int]) -> Path:
    """Add measured choices to the GPU's file and return it. Raises OrinportError if it cannot be written."""
    path = _path(device)
    merged = {**_read(path), **choices}
    try:
        write_whole(path, json.dumps({"device": device.identity, "choices": merged}, indent=1))
    except OSError as error:
        raise OrinportError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    _choices.cache_clear()
    return path


def _path(device: CudaDevice) -> Path:
    import hashlib

    digest = hashlib.sha256(f"{device.identity}\0{source_digest()}".encode()).hexdigest()[:24]
    return cache_folder() / f"choices-{digest}.json"


@lru_cache(maxsize=8)
def _choices(path: str) -> dict[str, int]:
    return _read(Path(path))


def _read(path: Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["choices"]
        return {str(key): int(number) for key, number in content.items() if 0 < int(number) <= len(CONFIGURATIONS)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
