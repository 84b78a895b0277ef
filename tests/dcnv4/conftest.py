"""What the tests of this folder share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def torch():
    """The module, where it is installed, on one thread: waiting threads slow each other down on a busy machine."""
    module = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    module.set_num_threads(1)
    return module
