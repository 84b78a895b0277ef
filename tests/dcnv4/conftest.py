"""What the tests of this folder share."""

from __future__ import annotations

import pytest


def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def pytest_collection_modifyitems(items):
    """Tests marked `torch` skip, with the reason, where PyTorch is missing."""
    if _has_torch():
        return
    skip = pytest.mark.skip(reason="PyTorch is not installed: pip install 'orinport[torch]'")
    for item in items:
        if item.get_closest_marker("torch"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def torch():
    """The module, where it is installed, on one thread: waiting threads slow each other down on a busy machine."""
    module = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'orinport[torch]'")
    module.set_num_threads(1)
    return module
