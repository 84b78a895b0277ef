"""Building `liborinport_plugins.so` with CMake, and running its harness.

The sources lie in `plugin/` beside this file, the kernels in `kernels/`. TensorRT's headers are the user's: they
are found below `TRT_ROOT` and never copied.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from orinport.errors import OrinportError

__all__ = [
    "PluginBuild",
    "build_plugin",
    "commands",
    "default_trt_root",
    "find_nvcc",
    "harness_command",
    "has_gpu",
    "run_harness",
    "shell_script",
]

_SOURCE = Path(__file__).parent / "plugin"
_TOOLCHAINS = {"jetson": "aarch64-jetson.cmake", "drive": "aarch64-drive.cmake"}
_NOT_FOR_CMAKE = re.compile(r'[";\\\n]')
_ARCHITECTURE = re.compile(r"[1-9][0-9]+[af]?(-real|-virtual)?|native|all|all-major")


@dataclass(frozen=True, slots=True)
class PluginBuild:
    """What is built, for what, and where.

    `architectures` are CUDA architectures as CMake spells them (`87` is Orin's); `toolchain` is `jetson`, `drive` or a
    CMake toolchain file, empty for a native build. Without `kernels` everything but the launches works, and no nvcc is
    needed. `sanitize` names sanitizers (`address,undefined`) for plugin and harness; `strict` makes warnings errors.
    """

    trt_root: Path
    folder: Path
    architectures: tuple[str, ...] = ("87",)
    toolchain: str = ""
    kernels: bool = True
    sanitize: str = ""
    strict: bool = False
    jobs: int = 2

    def __post_init__(self) -> None:
        if not self.architectures:
            raise OrinportError("No CUDA architecture is named.", "87 is that of Orin.")
        for name in self.architectures:
            if not _ARCHITECTURE.fullmatch(name):
                raise OrinportError(
                    f"{name!r} is no CUDA architecture.", "87 is that of Orin, 90 that of H100 and H200."
                )
        if self.jobs < 1:
            raise OrinportError(f"The number of jobs must be at least 1, not {self.jobs}.")

    @property
    def library(self) -> Path:
        """The plugin library."""
        return self.folder / "liborinport_plugins.so"

    @property
    def harness(self) -> Path:
        """The program that checks it."""
        return self.folder / "orinport_plugin_harness"

    @property
    def toolchain_file(self) -> Path | None:
        """The CMake toolchain file; None for a native build."""
        if not self.toolchain:
            return None
        return (
            _SOURCE / "cmake" / _TOOLCHAINS[self.toolchain] if self.toolchain in _TOOLCHAINS else Path(self.toolchain)
        )


def default_trt_root() -> Path | None:
    """TRT_ROOT, or where Debian packages put TensorRT, if its headers are there."""
    named = os.environ.get("TRT_ROOT")
    if named:
        return Path(named)
    usual = Path("/usr")
    return usual if _headers(usual) else None


def find_nvcc() -> Path | None:
    """The CUDA compiler: CUDACXX, PATH, CUDA_HOME or /usr/local/cuda."""
    named = os.environ.get("CUDACXX") or shutil.which("nvcc")
    candidates = [Path(named)] if named else []
    candidates += [Path(home, "bin", "nvcc") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    return next((path for path in candidates if path.is_file()), None)


def has_gpu() -> bool:
    """Whether nvidia-smi lists a GPU, or this is a Jetson or DRIVE board."""
    if Path("/dev/nvhost-gpu").exists() or Path("/dev/nvgpu").exists():
        return True
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)  # noqa: S603
    return "GPU" in listed.stdout


def commands(build: PluginBuild) -> tuple[tuple[str, ...], ...]:
    """The commands that configure and build, as argument lists."""
    configure = [
        "cmake",
        "-S",
        str(_SOURCE),
        "-B",
        str(build.folder),
        f"-DTRT_ROOT={build.trt_root}",
        f"-DORINPORT_KERNELS={'ON' if build.kernels else 'OFF'}",
        f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(build.architectures)}",
    ]
    if build.toolchain_file is not None:
        configure.append(f"-DCMAKE_TOOLCHAIN_FILE={build.toolchain_file}")
    if build.kernels and (nvcc := find_nvcc()) is not None:
        configure.append(f"-DCMAKE_CUDA_COMPILER={nvcc}")
    if build.strict:
        configure.append("-DORINPORT_WERROR=ON")
    if build.sanitize:
        configure += [f"-DORINPORT_SANITIZE={build.sanitize}", "-DCMAKE_BUILD_TYPE=Debug"]
    return tuple(configure), ("cmake", "--build", str(build.folder), "--parallel", str(build.jobs))


def shell_script(build: PluginBuild) -> str:
    """The same commands for a shell, one a line, every word quoted."""
    return "".join(f"{shlex.join(command)}\n" for command in commands(build))


def build_plugin(build: PluginBuild) -> Path:
    """Configure and build; return the library.

    Raises OrinportError if a tool or TensorRT's headers are missing, or a step fails: the first error of the tool in
    one line, and the log that holds the rest.
    """
    _check_tools(build)
    log = build.folder / "build.log"
    try:
        build.folder.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
    except OSError as error:
        raise OrinportError(f"{str(build.folder)!r} cannot be written: {error.strerror}.") from error
    for command in commands(build):
        with log.open("a", encoding="utf-8") as stream:
            stream.write(f"{shlex.join(command)}\n")
            stream.flush()
            status = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False).returncode  # noqa: S603
        if status != 0:
            raise OrinportError(f"The build of the plugin failed: {_first_error(log)}.", f"All of it is in {log}.")
    return build.library


def harness_command(build: PluginBuild, *, registry: bool, seed: int, fuzz: int, cases: Path | None) -> tuple[str, ...]:
    """The harness' argument list. `registry`: load the library through TensorRT's registry instead of by dlopen."""
    command = [str(build.harness), str(build.library), "--seed", str(seed), "--fuzz", str(fuzz)]
    if registry:
        command.append("--registry")
    if cases is not None:
        command += ["--cases", str(cases)]
    return tuple(command)


def run_harness(
    build: PluginBuild, *, registry: bool = False, seed: int = 1, fuzz: int = 2000, cases: Path | None = None
) -> tuple[bool, str]:
    """Whether all checks passed, and what the harness said. Raises OrinportError if it is not built or cannot run."""
    if not build.harness.is_file() or not build.library.is_file():
        raise OrinportError(f"There is no built plugin in {str(build.folder)!r}.", "Run orinport dcnv4 plugin build.")
    command = harness_command(build, registry=registry, seed=seed, fuzz=fuzz, cases=cases)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise OrinportError(f"{str(build.harness)!r} cannot be run: {error.strerror}.") from error
    if done.returncode == 2:
        raise OrinportError(f"The harness cannot start: {' '.join(done.stderr.split())}.")
    ended = "" if done.returncode in (0, 1) else f"FAILED the harness ended with status {done.returncode}\n"
    return done.returncode == 0, done.stdout + done.stderr + ended


def _check_tools(build: PluginBuild) -> None:
    if shutil.which("cmake") is None:
        raise OrinportError("cmake is not installed.", "It is needed in version 3.18 or newer: pip install cmake.")
    for path in (build.trt_root, build.folder):
        if found := _NOT_FOR_CMAKE.search(str(path.absolute())):
            raise OrinportError(f"CMake cannot build with {found[0]!r} in a path: {str(path)!r}.")
    if not _headers(build.trt_root):
        raise OrinportError(
            f"There are no TensorRT headers (NvInferVersion.h) below {str(build.trt_root)!r}.",
            "Set --trt-root or TRT_ROOT to the folder of TensorRT that holds include/.",
        )
    if build.toolchain_file is not None and not build.toolchain_file.is_file():
        raise OrinportError(
            f"{build.toolchain!r} is no toolchain.", f"Name {' or '.join(_TOOLCHAINS)}, or a CMake toolchain file."
        )
    if build.kernels and find_nvcc() is None:
        raise OrinportError(
            "nvcc, the CUDA compiler, was not found.",
            "Put it on PATH or set CUDACXX; --no-kernels builds all but the kernels, to check a model's plugin nodes.",
        )


def _headers(root: Path) -> bool:
    folders = (root, root / "include", *root.glob("include/*-linux-gnu"))
    return any((folder / "NvInferVersion.h").is_file() for folder in folders)


def _first_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("CMake Error at"):
            return " ".join(takewhile(bool, lines[number + 1 :]))[:300].rstrip(".")
        if re.search(r"\berror\b[: ]", line, re.IGNORECASE):
            return line[:300].rstrip(".")
    return (lines[-1] if lines else "nothing was said").rstrip(".")
