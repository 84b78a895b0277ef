"""The plugin library itself: compiled without warnings, checked by the harness, its symbols, NVIDIA's registry.

TensorRT's headers come from TRT_ROOT, or from a package that carries those of 10.14; where neither can be had, these
tests are skipped. ORINPORT_CACHE keeps what was fetched.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orinport.dcnv4.plugin_build import PluginBuild, build_plugin, find_nvcc, run_harness

_HEADERS = "kernel-lens==2.0.1"
_ENTRIES = {"getCreators", "setLoggerFinder"}


@pytest.fixture(scope="session")
def trt_root(tmp_path_factory):
    """A folder with include/NvInfer*.h."""
    if os.environ.get("TRT_ROOT"):
        return Path(os.environ["TRT_ROOT"])
    cache = os.environ.get("ORINPORT_CACHE")
    root = Path(cache, "tensorrt-10.14") if cache else tmp_path_factory.mktemp("tensorrt")
    if not (root / "include" / "NvInferVersion.h").is_file():
        _fetch_headers(root)
    return root


def _fetch_headers(root: Path) -> None:
    folder = root / "wheel"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "1", "--timeout", "20"]
    done = subprocess.run([*command, "-d", str(folder), _HEADERS], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"no TensorRT headers: TRT_ROOT is not set, and {_HEADERS} cannot be fetched")
    (root / "include").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheels[0]) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"kernel_lens/include/tensorrt/\w+\.h", name):
                (root / "include" / Path(name).name).write_bytes(archive.read(name))


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def _cuda_headers() -> bool:
    nvcc = find_nvcc()
    folders = [Path(home, "include") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    folders += [nvcc.resolve().parents[1] / "include"] if nvcc else []
    return any((folder / "cuda_runtime_api.h").is_file() for folder in folders)


@pytest.fixture(scope="session")
def build(trt_root, tmp_path_factory):
    """Plugin (without kernels) and harness, with address and undefined-behaviour sanitizers."""
    _need("cmake", "c++", "make")
    if not _cuda_headers():
        pytest.skip("cuda_runtime_api.h is not installed")
    plan = PluginBuild(
        trt_root,
        tmp_path_factory.mktemp("plugin"),
        kernels=False,
        sanitize="address,undefined",
        jobs=os.cpu_count() or 1,
    )
    build_plugin(plan)
    return plan


@pytest.mark.parametrize("registry", [False, True], ids=["dlopen", "registry"])
def test_all_checks_of_the_harness_pass(build, registry):
    passed, text = run_harness(build, registry=registry, fuzz=1000)
    assert passed, text
    assert text.count("\nok ") == 1 + 3 * 11, text
    assert "FAILED" not in text
    assert text.rstrip().endswith("0 failed")


def test_the_harness_fails_where_there_are_no_plugins(build):
    stub = next((build.folder / "stub").glob("libnvinfer.so.*"))
    done = subprocess.run([build.harness, stub], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILED library: registered once" in done.stdout
    assert "0 creators instead of 3" in done.stdout


def test_the_harness_refuses_what_it_cannot_load(build):
    for arguments in ([], ["missing.so"], [build.library, "--seed"], [build.library, "--unknown", "1"]):
        done = subprocess.run([build.harness, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2, arguments


def test_cases_need_a_gpu(build, tmp_path):
    passed, text = run_harness(build, fuzz=0, cases=tmp_path)
    assert not passed
    assert "FAILED cases: there is no GPU" in text


def _symbols(*arguments: str) -> list[str]:
    _need("nm")
    listed = subprocess.run(["nm", *arguments], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in listed.splitlines() if line.strip()]


def test_only_the_entries_of_the_registry_are_exported(build):
    assert set(_symbols("-D", "--defined-only", str(build.library))) == _ENTRIES


def test_nothing_in_the_plugins_can_throw_exit_or_print(build):
    objects = list(build.folder.glob("CMakeFiles/orinport_plugins.dir/**/*.o"))
    assert len(objects) >= 6
    wanted = {symbol for file in objects for symbol in _symbols("-u", str(file))}
    assert "vsnprintf" in wanted  # the list is not empty
    forbidden = re.compile(
        r"__cxa_(throw|rethrow|allocate_exception)|_?exit|abort|f?printf|f?puts|fwrite|_ZSt4c(out|err).*"
    )
    assert [symbol for symbol in wanted if forbidden.fullmatch(symbol)] == []


def test_the_library_asks_for_tensorrt_and_has_no_search_path(build):
    _need("readelf")
    told = subprocess.run(["readelf", "-d", build.library], capture_output=True, text=True, check=True).stdout
    assert re.search(r"NEEDED.*libnvinfer\.so\.\d+", told)
    assert "RPATH" not in told
    assert "RUNPATH" not in told


def test_a_built_plugin_is_tested_by_the_command(build, capsys):
    from orinport.cli.dcnv4_plugin import plugin_test

    assert plugin_test(output=build.folder, gpu=False, fuzz=10) == 0
    text = capsys.readouterr().out
    assert "loaded by dlopen" in text
    assert "loaded through the registry" in text


@pytest.mark.slow
def test_fuzzing_for_longer(build):
    for seed in range(5):
        passed, text = run_harness(build, seed=seed, fuzz=50000)
        assert passed, text


@pytest.fixture(scope="session")
def build_with_kernels(trt_root, tmp_path_factory):
    """Plugin with kernels for Orin, and harness."""
    _need("cmake", "c++", "make")
    if find_nvcc() is None:
        pytest.skip("nvcc is not installed")
    plan = PluginBuild(trt_root, tmp_path_factory.mktemp("kernels"), strict=True)
    build_plugin(plan)
    return plan


@pytest.mark.slow
def test_kernels_compile_without_warnings_and_pass_the_harness(build_with_kernels):
    assert "warning" not in (build_with_kernels.folder / "build.log").read_text().lower()
    for registry in (False, True):
        passed, text = run_harness(build_with_kernels, registry=registry)
        assert passed, text
    assert set(_symbols("-D", "--defined-only", str(build_with_kernels.library))) == _ENTRIES


@pytest.mark.slow
def test_the_plugins_of_aarch64_pass_the_harness(trt_root, tmp_path):
    _need("cmake", "make", "aarch64-linux-gnu-g++", "qemu-aarch64")
    build = PluginBuild(trt_root, tmp_path, toolchain="jetson", kernels=False, strict=True)
    build_plugin(build)
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", build.harness, build.library, "--fuzz", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("0 failed")


@pytest.mark.gpu
@pytest.mark.slow
def test_every_tactic_is_right_on_this_gpu(trt_root, tmp_path):
    from orinport.cli.dcnv4_plugin import plugin_test

    build_plugin(PluginBuild(trt_root, tmp_path / "build", ("native",)))
    assert plugin_test(output=tmp_path / "build", gpu=True) == 0


_REGISTRY_SCRIPT = """
import ctypes, sys
import tensorrt_rtx as trt

class Logger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
    def log(self, severity, message):
        if severity <= trt.ILogger.Severity.ERROR and "cudaError" not in message and "Cuda Runtime" not in message:
            print("error", message)

logger = Logger()
builder = trt.Builder(logger)
registry = trt.get_plugin_registry()
way, library = sys.argv[1:]
if way == "static":
    ctypes.CDLL(library)
elif way == "dynamic":
    print("loaded", registry.load_library(library) is not None)
else:
    print("loaded", builder.get_plugin_registry().load_library(library) is not None)
shown = builder.get_plugin_registry().all_creators_recursive if way == "builder" else registry.all_creators
ours = [c for c in shown if "DCN" in c.name or c.name == "FlashDeformAttn"]
print("creators", sorted((c.name, c.plugin_version, c.plugin_namespace) for c in ours))
del builder
print("after", sum("DCN" in c.name for c in registry.all_creators))
"""


@pytest.mark.tensorrt
@pytest.mark.parametrize("way", ["static", "dynamic", "builder"])
def test_nvidias_own_registry_takes_the_library(way, tmp_path):
    root = os.environ.get("TRT_ROOT", "")
    version = Path(root, "include", "NvInferVersion.h")
    if not root or not re.search(r"MAJOR(_ENTERPRISE)? 11", version.read_text() if version.is_file() else ""):
        pytest.skip("needs TRT_ROOT with headers of TensorRT 11, whose registry TensorRT-RTX shares")
    _need("cmake", "c++", "make")
    folder = Path(importlib.util.find_spec("tensorrt_rtx_libs").submodule_search_locations[0])
    real = folder / "libtensorrt_rtx.so.1"
    source = Path(build_plugin.__code__.co_filename).parent / "plugin"
    options = [f"-DTRT_ROOT={root}", f"-DTRT_LIBRARY={real}", "-DORINPORT_KERNELS=OFF", "-DORINPORT_HARNESS=OFF"]
    for command in (["cmake", "-S", source, "-B", tmp_path, *options], ["cmake", "--build", tmp_path]):
        subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-c", _REGISTRY_SCRIPT, way, str(tmp_path / "liborinport_plugins.so")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    names = ("DCNv4FuseOffset_Plugin", "DCNv4_Plugin", "FlashDeformAttn")
    assert f"creators {[(name, '1', '') for name in names]}" in done.stdout
    assert "error" not in done.stdout
    if way != "static":
        assert "loaded True" in done.stdout
    # a library that the builder's registry has unloaded leaves nothing behind
    assert f"after {0 if way == 'builder' else 2}" in done.stdout
