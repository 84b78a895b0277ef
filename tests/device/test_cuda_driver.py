"""CUDA memory, stream and events: on the driver where there is one, and on a stand-in everywhere."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from orinport.device.cuda_driver import CudaDriver, CudaError, DeviceBuffer
from orinport.errors import OrinportError

NATIVE = Path(__file__).parent / "native"


@pytest.fixture(params=["driver", "stand-in"])
def driver(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "stand-in":
        if shutil.which("gcc") is None:
            pytest.skip("no C compiler on this machine")
        path = tmp_path / "libstandin_cuda.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, NATIVE / "standin_cuda.c"], check=True)
        monkeypatch.setenv("ORINPORT_LIBCUDA", str(path))
    else:
        try:
            CudaDriver().close()
        except OrinportError as error:
            pytest.skip(f"no CUDA device: {error.message}")
    return str(request.param)


@pytest.mark.parametrize("size", [1, 31, 4096, 1_000_003])
def test_bytes_go_and_come_back(driver: str, size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    back = np.zeros(size, np.uint8)
    with CudaDriver() as cuda:
        assert cuda.device_name
        assert cuda.stream
        buffer = cuda.allocate(size)
        assert buffer.address % 256 == 0
        cuda.upload(content, buffer)
        cuda.download(buffer, back)
        cuda.synchronize()
        np.testing.assert_array_equal(back, content)
        cuda.clear(buffer)
        cuda.download(buffer, back)
        cuda.synchronize()
        assert not back.any()


def test_many_buffers_keep_apart(driver: str) -> None:
    with CudaDriver() as cuda:
        buffers = [cuda.allocate(1000 + number) for number in range(64)]
        for number, buffer in enumerate(buffers):
            cuda.upload(np.full(buffer.size, number, np.uint8), buffer)
        for number, buffer in enumerate(buffers):
            back = np.empty(buffer.size, np.uint8)
            cuda.download(buffer, back)
            cuda.synchronize()
            assert (back == number).all()


def test_events_order_and_time(driver: str) -> None:
    with CudaDriver() as cuda:
        buffer = cuda.allocate(1 << 26)
        start, end = cuda.event(), cuda.event()
        cuda.record(start)
        for _ in range(20):
            cuda.clear(buffer)
        cuda.record(end)
        cuda.synchronize()
        assert 0 < cuda.elapsed_us(start, end) < 1e7


def test_refusals_are_named(driver: str) -> None:
    with CudaDriver() as cuda:
        if driver == "driver":
            with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
                cuda.allocate(1 << 50)
        with pytest.raises(AssertionError):
            cuda.upload(np.zeros(3, np.uint8), DeviceBuffer(256, 4))


def test_closing_twice_is_fine_and_a_new_one_works(driver: str) -> None:
    for _ in range(3):
        cuda = CudaDriver()
        assert cuda.allocate(128).address
        cuda.event()
        cuda.close()
        cuda.close()


def test_nothing_stays_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine")
    path = tmp_path / "libstandin_cuda.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, NATIVE / "standin_cuda.c"], check=True)
    monkeypatch.setenv("ORINPORT_LIBCUDA", str(path))
    library = ctypes.CDLL(str(path))
    library.standin_live.restype = ctypes.c_long
    with CudaDriver() as cuda:
        cuda.allocate(10)
        cuda.event()
        assert library.standin_live() == 4  # memory, event, stream, context
    assert library.standin_live() == 0
    assert library.standin_bad_calls() == 0
