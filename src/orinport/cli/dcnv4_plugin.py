"""`orinport dcnv4 plugin build|test`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from orinport.cli.options import require_seed

__all__ = ["app", "plugin_build", "plugin_test"]

_FOLDER = Path("build/orinport-plugins")

app = App(
    name="plugin",
    help="Build and check the TensorRT plugins (DCNv4_Plugin, DCNv4FuseOffset_Plugin, FlashDeformAttn).",
    help_format="markdown",
)

TrtRoot = Annotated[
    Path | None,
    Parameter(name="--trt-root", help="TensorRT, with include/ (and lib/); default: TRT_ROOT, then /usr."),
]
Folder = Annotated[Path, Parameter(name=["--output", "-o"], help="Folder for the build.")]


@app.command(name="build")
def plugin_build(
    *,
    trt_root: TrtRoot = None,
    output: Folder = _FOLDER,
    arch: Annotated[
        tuple[str, ...],
        Parameter(
            name="--arch", negative="", consume_multiple=False, help="CUDA architecture; may be given several times."
        ),
    ] = ("87",),
    toolchain: Annotated[
        str, Parameter(name="--toolchain", help="Cross-compile: jetson, drive, or a CMake toolchain file.")
    ] = "",
    kernels: Annotated[
        bool, Parameter(name="--kernels", negative="--no-kernels", help="Compile the CUDA kernels (needs nvcc).")
    ] = True,
    strict: Annotated[
        bool, Parameter(name="--strict", negative="", help="Treat the compilers' warnings as errors.")
    ] = False,
    jobs: Annotated[int, Parameter(name=["--jobs", "-j"], help="Compilers at once.")] = 2,
    dry_run: Annotated[
        bool, Parameter(name="--dry-run", negative="", help="Print the commands instead of running them.")
    ] = False,
) -> int:
    """Build liborinport_plugins.so against the TensorRT headers of the board's software."""
    import sys

    from orinport.dcnv4.plugin_build import PluginBuild, build_plugin, shell_script

    plan = PluginBuild(_root(trt_root), output, arch, toolchain, kernels, strict=strict, jobs=jobs)
    sys.stdout.write(shell_script(plan) if dry_run else f"{build_plugin(plan)}\n")
    return 0


@app.command(name="test")
def plugin_test(
    *,
    output: Folder = _FOLDER,
    gpu: Annotated[
        bool | None,
        Parameter(
            name="--gpu",
            negative="--no-gpu",
            help="Run the kernels too and compare with the float64 reference; default: if nvidia-smi finds a GPU.",
        ),
    ] = None,
    full: Annotated[
        bool, Parameter(name="--full", negative="", help="Large batches and images too: minutes, and 2 GB of files.")
    ] = False,
    write_cases: Annotated[
        Path | None,
        Parameter(name="--write-cases", help="Only write the reference data, for a board without Python."),
    ] = None,
    seed: Annotated[int, Parameter(name="--seed", help="Seed of data and fuzzing.")] = 1,
    fuzz: Annotated[int, Parameter(name="--fuzz", help="Rounds of damaged serialized data for each plugin.")] = 2000,
) -> int:
    """Load the built plugins as TensorRT would, without TensorRT, and check them."""
    import sys
    from tempfile import TemporaryDirectory

    from orinport.dcnv4.plugin_build import PluginBuild, has_gpu, run_harness
    from orinport.dcnv4.plugin_cases import write_cases as write
    from orinport.errors import OrinportError

    require_seed(seed, bits=32)
    if not 0 <= fuzz <= 10**9:
        raise OrinportError(f"--fuzz must be a number of rounds from 0 to 1000000000, not {fuzz}.")
    if write_cases is not None:
        number = write(write_cases, full=full, seed=seed)
        print(f"{write_cases / 'cases.txt'}: {number} cases")
        return 0
    plan = PluginBuild(Path(), output)
    fine = True
    with TemporaryDirectory(prefix="orinport-cases-") as scratch:
        cases = Path(scratch) if (has_gpu() if gpu is None else gpu) else None
        if cases is not None:
            write(cases, full=full, seed=seed)
        for registry in (False, True):
            passed, text = run_harness(plan, registry=registry, seed=seed, fuzz=fuzz, cases=None if registry else cases)
            sys.stdout.write(text)
            fine = fine and passed
    return 0 if fine else 1


def _root(named: Path | None) -> Path:
    from orinport.dcnv4.plugin_build import default_trt_root
    from orinport.errors import OrinportError

    root = named or default_trt_root()
    if root is None:
        raise OrinportError(
            "It is not known where TensorRT is.", "Set --trt-root or TRT_ROOT to the folder that holds its include/."
        )
    return root
