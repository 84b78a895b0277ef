"""What of the CUDA front works without a GPU: launches, caches, choices, checks."""

from __future__ import annotations

import ctypes
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.cuda_compile import CudaUnavailableError, Loaded, _compiler, cache_folder, source_digest
from orinport.dcnv4.cuda_plan import (
    CONFIGURATIONS,
    ElementType,
    Kernel,
    Limits,
    Params,
    candidates,
    choose,
    kernel_name,
    make_params,
    plan,
)
from orinport.errors import OrinportError

HOPPER = Limits(232448, 132)
ORIN = Limits(166912, 16)
F16 = ElementType.F16


def params(batch, height, width, geometry):
    return make_params(
        geometry, (batch, height, width), geometry.output_size(height, width), (geometry.channels, geometry.width)
    )


def test_launch_passes_structs_by_address():
    seen = []

    class Driver:
        def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
            pointers = (ctypes.c_void_p * 2).from_address(arguments)
            copy = Params.from_address(pointers[0])
            seen.append((function, (gx, gy, gz), (bx, by, bz), shared, stream, copy.height, extra))
            return (0,)

    p = params(128, 56, 56, Geometry(4, 16))
    number = choose(p, F16, F16, HOPPER)
    launch = plan(p, F16, F16, CONFIGURATIONS[number - 1], HOPPER)
    Loaded("kernel", 7, Driver()).launch(launch, 11, p, launch.division)
    assert seen == [(7, launch.grid, (*launch.block, 1), launch.shared_bytes, 11, 56, 0)]


def test_launch_beside_the_previous_kernel():
    """On sm_90 the launch carries the attribute that lets it begin early; everything else stays the same."""
    seen = []

    class Record:
        def __init__(self, *values):
            self.values = values

    class Driver:
        CUlaunchConfig = type("CUlaunchConfig", (), {})
        CUlaunchAttributeID = type("Ids", (), {"CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": 6})
        CUstream = Record

        @staticmethod
        def CUlaunchAttribute():
            attribute = Record()
            attribute.value = Record()
            return attribute

        def cuLaunchKernelEx(self, config, function, arguments, extra):
            pointers = (ctypes.c_void_p * 2).from_address(arguments)
            seen.append((config, function, Params.from_address(pointers[0]).height, extra))
            return (0,)

    p = params(1, 56, 56, Geometry(4, 16))
    launch = plan(p, F16, F16, CONFIGURATIONS[choose(p, F16, F16, HOPPER) - 1], HOPPER)
    Loaded("kernel", 7, Driver(), overlaps=True).launch(launch, 11, p, launch.division)
    ((config, *rest),) = seen
    assert rest == [7, 56, 0]
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == launch.grid
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (*launch.block, 1)
    assert (config.sharedMemBytes, config.hStream.values) == (launch.shared_bytes, (11,))
    ((attribute,), count) = config.attrs, config.numAttrs
    assert (attribute.id, attribute.value.programmaticStreamSerializationAllowed, count) == (6, 1, 1)


def test_launch_failure_is_told():
    class Refusal:
        name = "CUDA_ERROR_INVALID_VALUE"

    class Driver:
        def cuLaunchKernel(self, *_):
            return (Refusal(),)

    p = params(1, 7, 7, Geometry(4, 16))
    launch = plan(p, F16, F16, CONFIGURATIONS[3], HOPPER)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        Loaded("kernel", 7, Driver()).launch(launch, 0, p, launch.division)


@pytest.mark.parametrize("limits", [HOPPER, ORIN])
@pytest.mark.parametrize(("size", "group"), [(56, 4), (28, 8), (14, 16), (7, 32)])
def test_choice_is_the_first_candidate(limits, size, group):
    p = params(128, size, size, Geometry(group, 16))
    best = choose(p, F16, F16, limits)
    everything = candidates(p, F16, F16, limits)
    assert everything[0] == best
    assert len(set(everything)) == len(everything) > 5
    assert CONFIGURATIONS[best - 1].kernel is not Kernel.DIRECT


def test_names_follow_the_problem():
    p = params(1, 56, 56, Geometry(4, 16))
    direct, whole = CONFIGURATIONS[3], CONFIGURATIONS[8]
    assert kernel_name(p, F16, F16, True, direct).endswith("F16, 16, 1, 9, true, false>")
    assert kernel_name(p, F16, ElementType.F32, True, direct).endswith("F32, 16, 1, 9, false, false>")
    assert "whole_kernel" in kernel_name(p, F16, F16, False, whole)
    removed = params(1, 56, 56, Geometry(4, 16, remove_center=True))
    assert kernel_name(removed, F16, F16, False, direct).endswith("F16, 16, 1, 0, false, false>")
    huge = params(1, 40000, 40000, Geometry(4, 16))
    assert kernel_name(huge, F16, F16, False, direct).endswith("F16, 16, 1, 0, false, true>")


def test_cache_folder_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path / "cache"))
    folder = cache_folder()
    assert folder == tmp_path / "cache" / "cuda"
    folder.chmod(0o777)
    with pytest.raises(CudaUnavailableError, match="others may write"):
        cache_folder()


def test_digest_covers_the_sources():
    assert len(source_digest()) == 64


def test_choices_are_remembered(tmp_path, monkeypatch):
    from orinport.dcnv4.cuda_tune import measured_choice, problem_key, remember

    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))

    class Device:
        identity = "a GPU, its driver and compiler"

    p = params(2, 14, 14, Geometry(16, 16))
    assert measured_choice(Device(), p, F16, F16, False) == 0
    path = remember(Device(), {problem_key(p, F16, F16, False): 5})
    assert path.parent == tmp_path / "cuda"
    assert measured_choice(Device(), p, F16, F16, False) == 5
    assert measured_choice(Device(), p, F16, F16, True) == 0
    remember(Device(), {"other": 3})
    assert measured_choice(Device(), p, F16, F16, False) == 5


@pytest.mark.torch
@pytest.mark.parametrize("number", [0, -1, len(CONFIGURATIONS) + 1, "many", None])
def test_choices_that_are_none_are_not_read(tmp_path, monkeypatch, number):
    from orinport.dcnv4.cuda_tune import measured_choice, problem_key, remember

    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))
    device = type("Device", (), {"identity": f"made up for {number}"})()
    p = params(2, 56, 56, Geometry(4, 16))
    path = remember(device, {"another": 3})
    path.write_text(json.dumps({"choices": {problem_key(p, F16, F16, False): number}}), encoding="utf-8")
    assert measured_choice(device, p, F16, F16, False) == 0


def test_why_not_and_refusals(torch):
    from orinport.dcnv4 import cuda

    tensor = torch.zeros(1, 4, 4, 32)
    assert "not on a GPU" in cuda.why_not(tensor, tensor)
    with pytest.raises(OrinportError, match="exact or fast"):
        cuda.set_accuracy("best")
    with pytest.raises(OrinportError, match="dense and channels last"):
        cuda.prepare_forward(tensor.permute(0, 2, 1, 3), torch.zeros(1, 4, 4, 56), tensor, Geometry(2, 16))


@pytest.mark.torch
def test_bench_without_a_gpu(torch):
    from orinport.cli.dcnv4_cuda import bench

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(OrinportError, match="PyTorch finds none"):
        bench()


@pytest.mark.torch
@pytest.mark.parametrize("variant", ["t", "s", "b", "l"])
def test_bench_knows_every_model(torch, monkeypatch, variant):
    """Up to the first measurement, which needs a GPU."""
    from orinport.cli.dcnv4_cuda import bench
    from orinport.dcnv4 import cuda_bench, cuda_compile

    class ReachedError(Exception):
        pass

    def measure():
        raise ReachedError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_compile, "cuda_device", lambda ordinal: ordinal)
    monkeypatch.setattr(cuda_bench, "copy_bandwidth", measure)
    with pytest.raises(ReachedError):
        bench(variant=variant)


@pytest.mark.torch
def test_tensors_of_two_memories_are_refused(torch):
    """Before their addresses go to a kernel."""
    from orinport.dcnv4 import cuda

    value, vectors = torch.zeros(1, 4, 4, 32), torch.zeros(1, 4, 4, 56, device="meta")
    geometry = Geometry(2, 16)
    with pytest.raises(OrinportError, match="one device"):
        cuda.prepare_forward(value, vectors, torch.zeros_like(value), geometry)
    with pytest.raises(OrinportError, match="one device"):
        cuda.dcnv4_backward_cuda(value, value, vectors, geometry)
    shapes, starts = torch.tensor([[4, 4]]), torch.tensor([0])
    with pytest.raises(OrinportError, match="one device"):
        cuda.flash_deform_attn_cuda(torch.zeros(1, 16, 2, 8), shapes, starts, vectors, 4)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(2, 5, 2, 12), (1, 5, 3, 12), (1, 5, 2, 15), (1, 5, 24)])
def test_attention_that_does_not_fit_is_refused_before_the_launch(torch, shape):
    from orinport.dcnv4 import cuda

    shapes, starts = torch.tensor([[4, 4]]), torch.tensor([0])
    with pytest.raises(OrinportError, match="sampling_loc_attn"):
        cuda.flash_deform_attn_cuda(torch.zeros(1, 16, 2, 8), shapes, starts, torch.zeros(shape), 4)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Writes a package `cuda.core` that is imported instead of the installed one, if any."""
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "cuda"}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "cuda" / "core"
    folder.mkdir(parents=True)
    (tmp_path / "cuda" / "__init__.py").write_text("")
    yield folder / "__init__.py"
    for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
        del sys.modules[name]


def test_threads_that_compile_at_once_import_the_compiler_once(packages):
    packages.write_text(
        "import sys, time, types\n"
        "module = sys.modules['cuda.core'] = types.ModuleType('cuda.core.cu13')\n"
        "time.sleep(0.2)\n"
        "module.Program, module.ProgramOptions = 1, 2\n"
    )
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: _compiler(), range(4))) == [(1, 2)] * 4


def test_a_compiler_that_cannot_be_imported_says_why(packages):
    packages.write_text("raise ImportError('libnvrtc is missing')")
    with pytest.raises(CudaUnavailableError, match=r"cannot be imported \(libnvrtc is missing\)"):
        _compiler()


@pytest.mark.torch
@pytest.mark.parametrize("content", ['{"choices": {"KEY": 1e999}}', "[" * 100000, "\x00", '{"choices": 5}', "[]"])
def test_a_damaged_file_of_choices_is_none(tmp_path, monkeypatch, content):
    from orinport.dcnv4.cuda_tune import measured_choice, problem_key, remember

    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))
    device = type("Device", (), {"identity": f"made up for {content[:30]}"})()
    p = params(2, 56, 56, Geometry(4, 16))
    key = problem_key(p, F16, F16, False)
    path = remember(device, {"another": 3})
    path.write_text(content.replace("KEY", key), encoding="utf-8")
    assert measured_choice(device, p, F16, F16, False) == 0
    remember(device, {key: 2})
    assert measured_choice(device, p, F16, F16, False) == 2


@pytest.mark.torch
def test_choices_that_cannot_be_written_say_so(tmp_path, monkeypatch):
    from orinport.dcnv4 import cuda_tune

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda_tune, "write_whole", full)
    with pytest.raises(OrinportError, match="cannot be written: No space left"):
        cuda_tune.remember(type("Device", (), {"identity": "a full disk"})(), {"key": 3})


def test_a_kernel_that_cannot_be_kept_is_used_all_the_same(tmp_path, monkeypatch):
    from orinport.dcnv4 import cuda_compile

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("ORINPORT_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda_compile, "compile_kernel", lambda header, name, architecture: ("symbol", b"code"))
    device = type("Device", (), {"identity": "a GPU", "architecture": (9, 0)})()
    with monkeypatch.context() as patch:
        patch.setattr(cuda_compile, "write_whole", full)
        assert cuda_compile.CudaDevice._cubin(device, "forward.cuh", "kernel") == ("symbol", b"code")
    assert list((tmp_path / "cuda").iterdir()) == []
    assert cuda_compile.CudaDevice._cubin(device, "forward.cuh", "kernel") == ("symbol", b"code")
    (kept,) = (tmp_path / "cuda").iterdir()
    assert kept.read_bytes() == b"symbol\ncode"


class _RecordingDevice:
    """Stands for a GPU: remembers which kernels are launched, computes nothing."""

    def __init__(self):
        self.names = []

    def kernel(self, header, name):
        self.names.append(name)
        return self

    def launch(self, launch, stream, params):
        pass


@pytest.fixture
def recording(torch, monkeypatch):
    from contextlib import nullcontext

    from orinport.dcnv4 import cuda

    device = _RecordingDevice()
    monkeypatch.setattr(cuda, "cuda_device", lambda ordinal: device)
    monkeypatch.setattr(torch.cuda, "device", lambda which: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda which: type("Stream", (), {"cuda_stream": 0})())
    return device


@pytest.mark.torch
@pytest.mark.parametrize(("offsets", "kernel"), [("float16", "F16"), ("float32", "F32")])
def test_kernels_of_one_type_get_tensors_of_one_type(torch, recording, offsets, kernel):
    """A float16 value may come with float32 offsets; these kernels would read them as float16."""
    from orinport.dcnv4 import cuda

    numbers = getattr(torch, offsets)
    value, vectors = torch.zeros(1, 4, 4, 32).half(), torch.zeros(1, 4, 4, 56, dtype=numbers)
    gradients = cuda.dcnv4_backward_cuda(value, value, vectors, Geometry(2, 16))
    assert [each.dtype for each in gradients] == [torch.float16, numbers]
    rows, samples = torch.zeros(1, 16, 2, 8).half(), torch.zeros(1, 5, 2, 12, dtype=numbers)
    output = cuda.flash_deform_attn_cuda(rows, torch.tensor([[4, 4]]), torch.tensor([0]), samples, 4)
    assert output.dtype == torch.float16
    backward, attention = recording.names
    assert f"<orinport::dcnv4::{kernel}, orinport::dcnv4::{kernel}," in backward
    assert f"<orinport::dcnv4::{kernel}," in attention


@pytest.mark.torch
def test_gradients_that_do_not_fit_are_refused_before_the_launch(torch, recording):
    from orinport.dcnv4 import cuda

    value, vectors = torch.zeros(1, 4, 4, 32), torch.zeros(1, 4, 4, 56)
    for gradient in (value[:, :1], value.half()):
        with pytest.raises(OrinportError, match="the gradient must be"):
            cuda.dcnv4_backward_cuda(gradient, value, vectors, Geometry(2, 16))
    with pytest.raises(CudaUnavailableError, match="int8"):
        cuda.dcnv4_backward_cuda(value.char(), value.char(), vectors, Geometry(2, 16))
    shapes, starts = torch.tensor([[4, 4]]), torch.tensor([0])
    with pytest.raises(CudaUnavailableError, match="int8"):
        cuda.flash_deform_attn_cuda(torch.zeros(1, 16, 2, 8).char(), shapes, starts, torch.zeros(1, 5, 2, 12), 4)
    assert recording.names == []
