"""The trtexec command: options by version, names quoted for the shell, and a script that really runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from boards import write_program
from orinport.device.bundle import build_script, parts_script
from orinport.device.trtexec import BuildOptions, build_arguments, has_option, shell_command
from orinport.model.layer import DType
from orinport.placement.placement import IOFormat, Placement, Region
from orinport.targets.target import Precision
from orinport.targets.version import Version
from values import HOSTILE, target

ALL_DLA = Placement(
    (Region("dla", (), (), ()),),
    (IOFormat("x", DType.FP16, "dla_hwc4", ""),),
    (IOFormat("y", DType.FP16, "chw16", ""),),
    0,
)
MIXED = Placement((*ALL_DLA.regions, Region("gpu", (), (), ())), ALL_DLA.inputs, ALL_DLA.outputs, 1)


def arguments(
    version: str, placement: Placement = ALL_DLA, precision: Precision = Precision.FP16, **options: object
) -> list[str]:
    return build_arguments(
        target(version),
        precision,
        placement,
        BuildOptions(**options),
        engine="model.engine",  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("version", ["8.5.2", "8.6.2", "10.3.0", "10.16.2"])
def test_weakly_typed_versions_ask_for_precision(version: str) -> None:
    assert "--fp16" in arguments(version)
    assert "--int8" not in arguments(version)
    assert "--int8" in arguments(version, precision=Precision.INT8)
    assert "--inputIOFormats=fp16:dla_hwc4" in arguments(version)


def test_version_11_has_no_precision_flags_and_no_types_in_formats() -> None:
    given = arguments("11.4.1")
    assert not {"--fp16", "--int8", "--directIO"} & set(given)
    assert "--inputIOFormats=dla_hwc4" in given
    assert "--outputIOFormats=chw16" in given


@pytest.mark.parametrize(
    ("version", "skip", "standalone"),
    [
        ("8.5.2", "--buildOnly", "--safe"),
        ("8.6.2", "--skipInference", "--buildDLAStandalone"),
        ("8.6.12", "--skipInference", "--buildDLAStandalone"),
        ("10.3.0", "--skipInference", "--buildDLAStandalone"),
        ("11.4.1", "--skipInference", "--buildDLAStandalone"),
    ],
)
def test_options_that_changed_their_name(version: str, skip: str, standalone: str) -> None:
    assert skip in arguments(version)
    assert standalone in arguments(version, standalone=True)


@pytest.mark.parametrize("version", ["8.5.2", "8.6.2", "10.3.0", "10.16.2", "11.4.1"])
def test_fallback_only_where_something_falls_back(version: str) -> None:
    assert "--allowGPUFallback" not in arguments(version)
    assert "--allowGPUFallback" in arguments(version, MIXED)
    assert "--allowGPUFallback" not in arguments(version, MIXED, standalone=True)


@pytest.mark.parametrize("version", ["8.5.2", "8.6.2", "10.3.0", "10.16.2", "11.4.1"])
def test_timings_and_layer_information_are_kept_where_there_is_an_engine(version: str) -> None:
    assert {"--timingCacheFile=timing.cache", "--exportLayerInfo=layers.json"} <= set(arguments(version))
    standalone = arguments(version, standalone=True)
    assert "--timingCacheFile=timing.cache" in standalone
    assert not any(argument.startswith("--exportLayerInfo") for argument in standalone)


def test_the_parsers_own_adjustment_from_10_16() -> None:
    assert "--adjustForDLA" not in arguments("10.3.0")
    assert "--adjustForDLA" in arguments("10.16.2")
    assert "--adjustForDLA" not in arguments("10.16.2", MIXED)


def test_an_end_of_a_version_range_includes_its_patches() -> None:
    assert has_option("fp16", Version.parse("10.16.2"))
    assert not has_option("fp16", Version.parse("11.1"))
    assert has_option("buildOnly", Version.parse("8.5.2"))
    assert not has_option("buildOnly", Version.parse("8.6.1"))


def test_shell_command_gives_its_arguments_back() -> None:
    given = [f"--x={HOSTILE}", "--plain", "--empty="]
    done = subprocess.run(["/bin/sh", "-c", shell_command("printf '%s\\0'", given)], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == given


@pytest.mark.parametrize("name", [HOSTILE, "it's", "a b", "$(touch pwned)", "-o", "x\\"])
def test_build_sh_hands_every_argument_to_trtexec_as_it_is(tmp_path: Path, name: str) -> None:
    placement = Placement(ALL_DLA.regions, (IOFormat(name, DType.FP16, "chw16", name),), ALL_DLA.outputs, 0)
    script = build_script(target(), Precision.FP16, placement, BuildOptions())
    (tmp_path / "build.sh").write_text(script.text, encoding="utf-8")
    fake = tmp_path / "trtexec"
    fake.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done\n', encoding="utf-8")
    fake.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "build.sh"), "--verbose", "two words"],
        env={**os.environ, "TRTEXEC": str(fake)},
        capture_output=True,
        check=True,
        cwd="/",
    )
    got = done.stdout.decode().split("\0")[:-1]
    assert got[0] == "--onnx=model.onnx"
    assert got[-2:] == ["--verbose", "two words"]
    assert f"--saveEngine={script.engine}" in got
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build.sh", "trtexec"]


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("build.sh", {"TRTEXEC": "bin/trtexec"}),
        ("build.sh", {"PATH": "bin:/usr/bin:/bin"}),
        ("build_parts.sh", {"TRTEXEC": "bin/trtexec"}),
    ],
)
def test_a_relative_path_is_one_from_the_callers_folder(tmp_path: Path, script: str, given: dict[str, str]) -> None:
    bundle = tmp_path / "net.orin"
    for folder in (bundle, bundle / "parts" / "0-dla0"):
        folder.mkdir(parents=True)
        text = build_script(target(), Precision.FP16, ALL_DLA, BuildOptions()).text
        (folder / "build.sh").write_text(text, encoding="utf-8")
    (bundle / "build_parts.sh").write_text(parts_script(["0-dla0"]), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin" / "trtexec", "#!/bin/sh\npwd\n")
    done = subprocess.run(
        ["/bin/sh", f"net.orin/{script}"],
        env={"PATH": "/usr/bin:/bin", "CDPATH": "/tmp:/", **given},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == f"{bundle if script == 'build.sh' else bundle / 'parts/0-dla0'}\n", done.stderr


def test_build_sh_says_when_trtexec_is_missing(tmp_path: Path) -> None:
    script = build_script(target(), Precision.FP16, ALL_DLA, BuildOptions())
    (tmp_path / "build.sh").write_text(script.text, encoding="utf-8")
    done = subprocess.run(
        ["/bin/sh", "build.sh"],
        env={"PATH": "/usr/bin:/bin", "TRTEXEC": "/nowhere/trtexec"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert "trtexec was not found" in done.stderr
