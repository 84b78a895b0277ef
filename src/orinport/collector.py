"""Garbage collection while large graphs are built."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collection_paused"]


@contextmanager
def collection_paused() -> Iterator[None]:
    """No collection passes inside: hundreds of thousands of objects are made there and none dies.

    At the end all objects move to the oldest generation, as if they had survived the passes that they were
    spared. Nested uses do nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
