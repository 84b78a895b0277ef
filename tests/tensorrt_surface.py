"""Which classes and members TensorRT's Python package really has: read off the bindings of a wheel, version by version.

The bindings need libnvinfer only to compute. With a shim in its place, which answers every entry point with nothing,
they load on any machine and show their classes. `python tests/tensorrt_surface.py WHEEL...` writes one file a
version to tests/tensorrt_surface/: names alone. The stand-in of the tests has exactly these.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).with_suffix("")
CLASSES = (
    *("Builder", "EngineInspector", "IBuilderConfig", "ICudaEngine", "IExecutionContext", "IHostMemory", "ILayer"),
    *("ILogger", "INetworkDefinition", "IInt8EntropyCalibrator2", "IProgressMonitor", "ITensor", "ITimingCache"),
    *("OnnxParser", "ParserError", "Runtime"),
)
ENUMS = (
    *("BuilderFlag", "DataType", "DeviceType", "EngineCapability", "LayerInformationFormat", "LayerType"),
    *("MemoryPoolType", "NetworkDefinitionCreationFlag", "OnnxParserFlag", "ProfilingVerbosity", "TensorFormat"),
    *("TensorIOMode", "TensorLocation"),
)
_LOAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tensorrt", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["tensorrt"] = module
spec.loader.exec_module(module)
"""
_DUMP = """
import json
classes = {name: sorted(member for member in vars(getattr(module, name)) if not member.startswith("_"))
           for name in json.loads(sys.argv[2]) if hasattr(module, name)}
enums = {name: {member: int(value) for member, value in getattr(module, name).__members__.items()}
         for name in json.loads(sys.argv[3]) if hasattr(module, name)}
functions = sorted(name for name, value in vars(module).items() if type(value).__name__.startswith("builtin_f"))
print(json.dumps({"classes": classes, "enums": enums, "functions": functions}))
"""
_SYMBOL = re.compile(r"^\s+U (\w+)$", re.MULTILINE)


def surface(wheel: Path) -> dict[str, object]:
    """Names in the bindings of a wheel, which is for this Python; needs gcc, nm and readelf."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/tensorrt.so"))
        init = archive.read(name.replace("tensorrt.so", "__init__.py")).decode()
    (version,) = re.findall(r'__version__ = "([\d.]+)"', init)
    with bindings(wheel) as run:
        return {"version": version, **json.loads(run(_DUMP, json.dumps(CLASSES), json.dumps(ENUMS)))}


@contextmanager
def bindings(wheel: Path, library: Path | None = None) -> Iterator[Callable[..., str]]:
    """A function that runs a text in a new Python with the bindings loaded as `tensorrt`, and gives what it prints.

    `library` takes the place of libnvinfer; without it every entry point answers with nothing.
    """
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        folder = Path(scratch)
        (name,) = (name for name in archive.namelist() if name.endswith("/tensorrt.so"))
        (folder / "tensorrt.so").write_bytes(archive.read(name))
        _shim(folder, library)

        def run(text: str, *arguments: str) -> str:
            done = subprocess.run(
                [sys.executable, "-c", _LOAD + text, str(folder / "tensorrt.so"), *arguments],
                env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


def _shim(folder: Path, given: Path | None) -> None:
    """The libraries that the bindings want, beside them: `given` as libnvinfer, and others that do nothing."""
    library = folder / "tensorrt.so"
    undefined = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    wanted = {each for each in _SYMBOL.findall(undefined) if re.search("Infer|Onnx|Plugin|parser", each)}
    if given is not None:
        defined = subprocess.run(["nm", "-D", "--defined-only", given], capture_output=True, text=True, check=True)
        wanted -= set(re.findall(r" T (\w+)$", defined.stdout, re.MULTILINE))
    source = folder / "shim.c"
    source.write_text("".join(f"void* {name}(void) {{ return 0; }}\n" for name in sorted(wanted)))
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"\[(libnv\w+\.so\.\d+)\]", needed):
        if given is not None and name.startswith("libnvinfer.so"):
            (folder / name).write_bytes(given.read_bytes())
            continue
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", folder / name, source], check=True
        )


_ABSTRACT = (
    *("VBuilder", "VBuilderConfig", "VCudaEngine", "VExecutionContext", "VHostMemory", "VLayer", "VNetworkDefinition"),
    *("VRuntime", "VTensor", "VTimingCache"),
)
_FUNCTION = re.compile(
    r"virtual\s+((?:[\w:]+\s+)*?[\w:]+(?:\s+const)?\s*[*&]*)\s*\b(\w+)\(([^)]*)\)\s*(const)?\s*noexcept\s*=\s*0;"
)


def defaults(header: str) -> str:
    """For the abstract classes V* of NvInferImpl.h classes D* whose functions do nothing, as C++."""
    text = re.sub(r"//[^\n]*", "", header)
    text = re.sub(r"#if ENABLE_FEATURE.*?#endif[^\n]*", "", text, flags=re.DOTALL)
    lines = [
        "namespace nvinfer1 {",
        "template <typename T> struct Nothing { static T give() { return T(); } };",
        "template <typename T> struct Nothing<T&> {",
        "  static T& give() { static char place[64]; return reinterpret_cast<T&>(place); }",
        "};",
    ]
    for name in _ABSTRACT:
        found = re.search(rf"class {name} : public VRoot\s*\{{(.*?)\n\}};", text, re.DOTALL)
        assert found is not None, name
        lines.append(f"struct D{name[1:]} : apiv::{name} {{")
        for result, function, arguments, const in _FUNCTION.findall(found.group(1)):
            head = f"{result} {function}({' '.join(arguments.split())}) {const} noexcept override"
            lines.append(f"  {head} {{ return Nothing<{result.strip()}>::give(); }}")
        lines.append("};")
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Write a file for each wheel named on the command line."""
    FOLDER.mkdir(exist_ok=True)
    for argument in sys.argv[1:]:
        found = surface(Path(argument))
        path = FOLDER / f"{'.'.join(str(found['version']).split('.')[:3])}.json"
        path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(path)


if __name__ == "__main__":
    main()
