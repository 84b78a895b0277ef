"""cuDLA: our structures against NVIDIA's header, and the order of our calls against a library that checks it.

There is no DLA here: the library of the second half is a stand-in that computes nothing but max(x, 0) and tests our
plumbing only. Where a DLA is, the last test runs.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from orinport.device import cudla_api as api
from orinport.device.cuda_driver import CudaDriver
from orinport.device.cudla_session import CudlaSession
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = Path(__file__).parent / "native"
PACKAGE = "nvidia-cudla==13.5.25"
STRUCTURES = {
    "cudlaModuleTensorDescriptor": api.CudlaTensorDescriptor,
    "cudlaModuleAttribute": api.CudlaModuleAttribute,
    "cudlaDevAttribute": api.CudlaDeviceAttribute,
    "CudlaFence": api.CudlaFence,
    "cudlaWaitEvents": api.CudlaWaitEvents,
    "cudlaSignalEvents": api.CudlaSignalEvents,
    "cudlaTask": api.CudlaTask,
    "cudlaTranslateCsvAttribute": api.CudlaTranslateAttribute,
}
CONSTANTS = {
    "CUDLA_CUDA_DLA": api.Mode.HYBRID,
    "CUDLA_STANDALONE": api.Mode.STANDALONE,
    "CUDLA_TASK_STATISTICS": api.TASK_STATISTICS,
    "CUDLA_RUNTIME_TENSOR_DESC_NAME_MAX_LEN": api.DESCRIPTOR_NAME_LENGTH,
    "CUDLA_LOADABLE_TENSOR_DESC_NUM_STRIDES": 8,
    **{f"CUDLA_{each.name}": each for each in api.ModuleAttribute},
    **{f"CUDLA_{each.name}": each for each in api.DeviceAttribute},
    **{f"CUDLA_DATA_FORMAT_{each.name.replace('X', 'x')}": each for each in api.DataFormat},
    **{f"CUDLA_DATA_TYPE_{each.name}": each for each in api.DataType},
    **{f"CUDLA_DATA_CATEGORY_{each.name}": each for each in api.DataCategory},
    "CUDLA_GET_CSV_LENGTH": api.TranslateAttribute.CSV_LENGTH,
    "CUDLA_GET_CSV_STATS": api.TranslateAttribute.CSV_STATISTICS,
    **{name: status for status, name in api._STATUS.items()},
}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler on this machine")


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cudla.h and cudlaExternalEtbl.hpp: the machine's, or the package's, which is for aarch64 only."""
    for folder in (*map(Path, os.environ.get("CUDLA_INCLUDE", "").split()), *Path("/usr/local").glob("cuda*/include")):
        if (folder / "cudla.h").is_file() and (folder / "cudlaExternalEtbl.hpp").is_file():
            return folder
    scratch = tmp_path_factory.mktemp("cudla")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries", "0"]
    where = ["--python-version", "3.12", "--platform", "manylinux_2_17_aarch64", "--dest", str(scratch), PACKAGE]
    done = subprocess.run([*command, "--timeout", "20", *where], capture_output=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        pytest.skip(f"no cudla.h on this machine, and {PACKAGE} cannot be downloaded (CUDLA_INCLUDE names a folder)")
    with zipfile.ZipFile(wheels[0]) as archive:
        for name in archive.namelist():
            if name.endswith(("cudla.h", "cudlaExternalEtbl.hpp", "libcudla.so.1")):
                (scratch / Path(name).name).write_bytes(archive.read(name))
    return scratch


def probe(folder: Path, include: list[str], headers: list[str], constants: list[str]) -> dict[str, int]:
    """Sizes, offsets and constants, as a C compiler has them."""
    lines = [f'#include "{name}"' for name in headers]
    lines += ["#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in structure._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
    lines += [f'printf("{name} %lld\\n", (long long)({name}));' for name in constants]
    (folder / "probe.c").write_text("\n".join([*lines, "return 0; }"]))
    options = [f"-I{each}" for each in include]
    subprocess.run(["gcc", "-o", folder / "probe", folder / "probe.c", *options], check=True)
    out = subprocess.run([folder / "probe"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in out.splitlines())}


def ours(constants: dict[str, Any]) -> dict[str, int]:
    found = {name: ctypes.sizeof(structure) for name, structure in STRUCTURES.items()}
    for name, structure in STRUCTURES.items():
        found |= {f"{name}.{field}": getattr(structure, field).offset for field, *_ in structure._fields_}
    return found | {name: int(value) for name, value in constants.items()}


@needs_gcc
def test_structures_and_constants_are_those_of_nvidias_header(headers: Path, tmp_path: Path) -> None:
    found = probe(tmp_path, [str(headers)], ["cudla.h", "cudlaExternalEtbl.hpp"], list(CONSTANTS))
    assert found == ours(CONSTANTS)
    assert len(found) == 97


@needs_gcc
def test_our_own_declarations_have_the_same_layout(tmp_path: Path) -> None:
    """Runs everywhere: the declarations in tests, written after the reference, against the ctypes structures."""
    assert probe(tmp_path, [str(NATIVE)], ["cudla_declarations.h"], []) == ours({})


@needs_gcc
def test_the_stand_in_has_the_prototypes_of_nvidias_header(headers: Path, tmp_path: Path) -> None:
    options = ["-shared", "-fPIC", "-Wall", "-Werror", f"-I{headers}", f"-I{NATIVE}"]
    real = ['-DREAL_HEADER="cudla.h"', '-DREAL_TABLE="cudlaExternalEtbl.hpp"']
    subprocess.run(["gcc", *options, *real, "-o", tmp_path / "x.so", NATIVE / "standin_cudla.c"], check=True)


def test_the_library_exports_what_is_called(headers: Path) -> None:
    library = headers / "libcudla.so.1"
    if not library.is_file() or shutil.which("nm") is None:
        pytest.skip("no libcudla.so.1 beside the header, or no nm")
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    assert {*api.FUNCTIONS, "cudlaGetExternalExportTable"} <= exported


def test_structures_are_those_of_cuda_pythons_generated_bindings() -> None:
    """`cuda.bindings.cudla` is generated from the header, independently of us; CUDA 13.5 has it."""
    cudla = pytest.importorskip("cuda.bindings.cudla", reason="cuda-bindings 13.5 is not installed")
    generated = {
        "module_tensor_descriptor": api.CudlaTensorDescriptor,
        "module_attribute": api.CudlaModuleAttribute,
        "dev_attribute": api.CudlaDeviceAttribute,
        "fence": api.CudlaFence,
        "wait_events": api.CudlaWaitEvents,
        "signal_events": api.CudlaSignalEvents,
        "task": api.CudlaTask,
    }
    for name, structure in generated.items():
        dtype = getattr(cudla, f"{name}_dtype")
        assert dtype.itemsize == ctypes.sizeof(structure), name
        offsets = [dtype.fields[field][1] for field in dtype.names]
        assert offsets == [getattr(structure, field).offset for field, *_ in structure._fields_], name


# ---------------------------------------------------------------------------------------------- the stand-in


class Libraries:
    """The stand-ins for libcuda and libcudla."""

    def __init__(self, cuda: Path, cudla: Path) -> None:
        self.cuda, self.cudla = ctypes.CDLL(str(cuda)), ctypes.CDLL(str(cudla))
        for library in (self.cuda, self.cudla):
            library.standin_live.restype = ctypes.c_long
        self.cudla.standin_violations.restype = self.cudla.standin_submitted.restype = ctypes.c_long

    @property
    def live(self) -> int:
        """What was taken and not given back."""
        return int(self.cuda.standin_live() + self.cudla.standin_live())


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Libraries]:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine")
    paths = []
    for name in ("cuda", "cudla"):
        path = tmp_path / f"libstandin_{name}.so"
        source = NATIVE / f"standin_{name}.c"
        subprocess.run(["gcc", "-shared", "-fPIC", f"-I{NATIVE}", "-o", path, source], check=True)
        monkeypatch.setenv(f"ORINPORT_LIB{name.upper()}", str(path))
        paths.append(path)
    found = Libraries(*paths)
    yield found
    assert found.live == 0, "something was not given back"


LOADABLE = b"in x 64 1 32 1 2 3 4 2\nout y 64 1 32 1 2 3 4 2\nstat s 128 1 1 1 128 1 4 2\n"


def test_a_task_in_hybrid_mode(libraries: Libraries) -> None:
    data = np.arange(64, dtype=np.uint8) * 4
    with CudaDriver() as cuda, CudlaSession(cuda, LOADABLE, core=1) as session:
        assert (session.version, session.hardware) == ("1.5.2", "2")
        assert [tensor.name for tensor in session.inputs] == ["x"]
        assert session.inputs[0].shape == (1, 32, 1, 2)
        assert (session.inputs[0].data_format, session.inputs[0].data_type) == ("NCXHWX", "INT8")
        outputs, times = session.run({"x": data}, warm_up=2, repeat=3)
        assert libraries.cudla.standin_submitted() == 5
    assert len(times) == 3
    assert all(time >= 0 for time in times)
    np.testing.assert_array_equal(outputs["y"].view(np.int8), np.maximum(data.view(np.int8), 0))
    assert libraries.cudla.standin_violations() == 0
    assert libraries.cuda.standin_bad_calls() == 0


def test_statistics(libraries: Libraries) -> None:
    with CudaDriver() as cuda, CudlaSession(cuda, LOADABLE, statistics=True) as session:
        session.run({"x": np.zeros(64, np.uint8)})
        (text,) = session.statistics_csv(1152)
    assert text.splitlines()[0] == "layer_name,start_ms,end_ms"
    assert libraries.cudla.standin_violations() == 0


def test_a_loadable_without_statistics_is_told(libraries: Libraries) -> None:
    plain = LOADABLE.rsplit(b"stat", 1)[0]
    with CudaDriver() as cuda, pytest.raises(OrinportError, match="no layer statistics"):
        CudlaSession(cuda, plain, statistics=True)
    assert libraries.cudla.standin_violations() == 0


@pytest.mark.parametrize(
    ("status", "name"),
    [(0x40000006, "cudlaErrorDlaErrEngineTimeout"), (7, "cudlaErrorUmd"), (99, "status 99")],
)
def test_a_refusal_is_named_and_everything_given_back(libraries: Libraries, status: int, name: str) -> None:
    libraries.cudla.standin_fail_submit(status)
    with (
        pytest.raises(OrinportError, match=name),
        CudaDriver() as cuda,
        CudlaSession(cuda, LOADABLE) as session,
    ):
        session.run({"x": np.zeros(64, np.uint8)})
    assert libraries.cudla.standin_violations() == 0


def test_what_is_no_loadable(libraries: Libraries) -> None:
    with CudaDriver() as cuda, pytest.raises(OrinportError, match=r"cudlaErrorUmd.*loadable"):
        CudlaSession(cuda, b"ftrt of another kind")
    assert libraries.cudla.standin_violations() == 0


def test_another_number_of_bytes_never_reaches_the_device(libraries: Libraries) -> None:
    with CudaDriver() as cuda, CudlaSession(cuda, LOADABLE) as session:
        with pytest.raises(OrinportError, match="64 bytes"):
            session.run({"x": np.zeros(63, np.uint8)})
        assert libraries.cudla.standin_submitted() == 0


def test_a_core_that_is_not_there(libraries: Libraries) -> None:
    with CudaDriver() as cuda, pytest.raises(OrinportError, match="no DLA core 2"):
        CudlaSession(cuda, LOADABLE, core=2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_gives_everything_back(libraries: Libraries, error: type[BaseException]) -> None:
    with pytest.raises(error), CudaDriver() as cuda, CudlaSession(cuda, LOADABLE):
        raise error


def test_without_the_libraries_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORINPORT_LIBCUDA", "libnothing-of-the-kind.so")
    monkeypatch.setenv("ORINPORT_LIBCUDLA", "libnothing-of-the-kind.so")
    with pytest.raises(OrinportError, match="no CUDA driver") as failure:
        CudaDriver()
    assert failure.value.hint
    with pytest.raises(OrinportError, match="no cuDLA") as failure:
        api.load_cudla()
    assert failure.value.hint


def test_a_real_dla_takes_a_device_and_gives_it_back() -> None:
    try:
        library = api.load_cudla()
    except OrinportError as error:
        pytest.skip(f"no DLA on this machine: {error.message}")
    count = ctypes.c_uint64()
    api.call(library, "cudlaDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        pytest.skip("cuDLA finds no DLA core")
    with CudaDriver() as cuda, pytest.raises(OrinportError):
        CudlaSession(cuda, b"no loadable")
