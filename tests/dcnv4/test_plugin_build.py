"""Building the plugins: commands, quoting, missing tools; and the cases that the harness reads."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from orinport.dcnv4 import plugin_cases
from orinport.dcnv4.plugin_build import (
    PluginBuild,
    build_plugin,
    commands,
    default_trt_root,
    harness_command,
    run_harness,
    shell_script,
)
from orinport.dcnv4.plugin_cases import write_cases
from orinport.errors import OrinportError


@pytest.fixture
def trt(tmp_path):
    """A folder that looks like TensorRT to everything but a compiler."""
    root = tmp_path / "Tensor RT's $(HOME)"
    (root / "include").mkdir(parents=True)
    (root / "include" / "NvInferVersion.h").write_text("#define NV_TENSORRT_MAJOR 7\n#define NV_TENSORRT_MINOR 2\n")
    return root


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """The quick cases, and how many there are."""
    folder = tmp_path_factory.mktemp("cases")
    return folder, write_cases(folder)


def one_line(error):
    return "\n" not in str(error.value)


def test_every_word_of_the_script_is_quoted(trt, tmp_path):
    build = PluginBuild(trt, tmp_path / "out put", ("87", "90"), kernels=False)
    lines = shell_script(build).splitlines()
    assert [shlex.split(line) for line in lines] == [list(command) for command in commands(build)]
    assert f"-DTRT_ROOT={trt}" in shlex.split(lines[0])
    assert "-DCMAKE_CUDA_ARCHITECTURES=87;90" in shlex.split(lines[0])
    assert "'" in lines[0]


def test_warnings_are_errors_only_if_asked_for(trt, tmp_path):
    assert "-DORINPORT_WERROR=ON" in commands(PluginBuild(trt, tmp_path, strict=True))[0]
    assert "-DORINPORT_WERROR=ON" not in commands(PluginBuild(trt, tmp_path))[0]


def test_toolchains_are_files_that_exist(trt, tmp_path):
    for name in ("jetson", "drive"):
        build = PluginBuild(trt, tmp_path, toolchain=name)
        assert build.toolchain_file.is_file()
        assert f"-DCMAKE_TOOLCHAIN_FILE={build.toolchain_file}" in commands(build)[0]
    assert PluginBuild(trt, tmp_path).toolchain_file is None


def test_an_unknown_toolchain_is_refused(trt, tmp_path):
    with pytest.raises(OrinportError, match="'orin' is no toolchain") as error:
        build_plugin(PluginBuild(trt, tmp_path / "b", toolchain="orin", kernels=False))
    assert one_line(error)


def test_a_cross_compilation_needs_the_targets_cuda(trt, tmp_path, monkeypatch):
    monkeypatch.setenv("ORINPORT_CUDA_TARGET", str(tmp_path))
    monkeypatch.setattr("orinport.dcnv4.plugin_build.find_nvcc", lambda: tmp_path)
    with pytest.raises(OrinportError, match=r"ORINPORT_CUDA_TARGET.*must name the target's CUDA") as error:
        build_plugin(PluginBuild(trt, tmp_path / "b", toolchain="jetson"))
    assert one_line(error)


@pytest.mark.parametrize("arch", ["", "sm_87", "8.7", "87; rm -rf /", "-1"])
def test_architectures_are_checked(trt, tmp_path, arch):
    with pytest.raises(OrinportError, match="no CUDA architecture"):
        PluginBuild(trt, tmp_path, (arch,))


@pytest.mark.parametrize("arch", ["87", "87-real", "90a", "native", "all-major"])
def test_architectures_as_cmake_spells_them(trt, tmp_path, arch):
    assert PluginBuild(trt, tmp_path, (arch,)).architectures == (arch,)


def test_missing_headers_are_named_in_one_line(tmp_path):
    with pytest.raises(OrinportError, match=r"no TensorRT headers.*TRT_ROOT") as error:
        build_plugin(PluginBuild(tmp_path, tmp_path / "b"))
    assert one_line(error)
    assert not (tmp_path / "b").exists()


def test_missing_nvcc_is_named_in_one_line(trt, tmp_path, monkeypatch):
    monkeypatch.setattr("orinport.dcnv4.plugin_build.find_nvcc", lambda: None)
    with pytest.raises(OrinportError, match=r"nvcc.*CUDACXX.*--no-kernels") as error:
        build_plugin(PluginBuild(trt, tmp_path / "b"))
    assert one_line(error)


def test_missing_cmake_is_named_in_one_line(trt, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OrinportError, match=r"cmake is not installed.*3\.18") as error:
        build_plugin(PluginBuild(trt, tmp_path / "b", kernels=False))
    assert one_line(error)


def test_an_old_tensorrt_is_refused_by_cmake_and_said_in_one_line(trt, tmp_path):
    with pytest.raises(OrinportError, match=r"TensorRT 8\.5 or newer is needed.*'7\.2'.*build\.log") as error:
        build_plugin(PluginBuild(trt, tmp_path / "b", kernels=False))
    assert one_line(error)


def test_trt_root_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TRT_ROOT", str(tmp_path))
    assert default_trt_root() == tmp_path


def test_the_harness_needs_a_build(tmp_path):
    with pytest.raises(OrinportError, match=r"no built plugin.*plugin build"):
        run_harness(PluginBuild(tmp_path, tmp_path))


def test_harness_command(tmp_path):
    command = harness_command(PluginBuild(tmp_path, tmp_path), registry=True, seed=3, fuzz=7, cases=tmp_path / "c")
    assert command[2:] == ("--seed", "3", "--fuzz", "7", "--registry", "--cases", str(tmp_path / "c"))


def test_cases_describe_their_files(cases):
    folder, count = cases
    lines = (folder / "cases.txt").read_text().splitlines()
    assert len(lines) == count
    assert len({line.split(" ")[0] for line in lines}) == count
    size = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4, "int64": 8}
    plugins = set()
    for line in lines:
        _, plugin, relative, largest, fields, *tensors = line.split(" ")
        plugins.add(plugin)
        assert 0 < float(relative) < 0.06
        assert 0 < float(largest) < 0.2
        assert fields.startswith("fields=")
        for number, tensor in enumerate(tensors):
            type_, _, shape, file = tensor.split(":")
            elements = int(np.prod([int(extent) for extent in shape.split("x")]))
            bytes_each = 8 if number == len(tensors) - 1 else size[type_]
            assert (folder / file).stat().st_size == elements * bytes_each, tensor
    assert plugins == {"DCNv4_Plugin", "DCNv4FuseOffset_Plugin", "FlashDeformAttn"}


def test_cases_depend_on_the_seed_alone(cases, tmp_path, monkeypatch):
    first = plugin_cases._dcn_cases(False)[:1]
    monkeypatch.setattr(plugin_cases, "_dcn_cases", lambda full: first)
    monkeypatch.setattr(plugin_cases, "_attention_cases", list)
    read = [(cases[0] / f"{first[0].name}.0").read_bytes()]
    for seed in (1, 2):
        assert write_cases(tmp_path / str(seed), seed=seed) == 1
        read.append((tmp_path / str(seed) / f"{first[0].name}.0").read_bytes())
    assert read[0] == read[1] != read[2]


def test_padding_of_offset_mask_is_nan_and_results_are_finite(cases):
    folder, _ = cases
    offsets = np.fromfile(folder / "prime-pixels-float32-float32.1", np.float32).reshape(3, 1, 13, 128)
    assert np.isnan(offsets[..., 108:]).all()
    assert np.isfinite(offsets[..., :108]).all()
    assert np.isfinite(np.fromfile(folder / "prime-pixels-float32-float32.out")).all()


def test_cases_need_a_folder_that_can_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OrinportError, match="cannot be written"):
        write_cases(file / "cases")


def test_the_command_prints_what_it_would_run(trt, tmp_path, capsys):
    from orinport.cli.dcnv4_plugin import plugin_build

    assert plugin_build(trt_root=trt, output=tmp_path / "b", kernels=False, dry_run=True) == 0
    assert capsys.readouterr().out.startswith("cmake -S ")
    assert not (tmp_path / "b").exists()


def test_the_command_says_that_tensorrt_is_missing(monkeypatch, tmp_path):
    from orinport.cli.dcnv4_plugin import plugin_build

    monkeypatch.setattr("orinport.dcnv4.plugin_build.default_trt_root", lambda: None)
    with pytest.raises(OrinportError, match=r"not known where TensorRT is.*--trt-root"):
        plugin_build(output=tmp_path)


def test_the_command_writes_cases_without_a_build(monkeypatch, tmp_path, capsys):
    from orinport.cli.dcnv4_plugin import plugin_test

    asked = []
    monkeypatch.setattr(
        "orinport.dcnv4.plugin_cases.write_cases", lambda folder, **options: asked.append((folder, options)) or 7
    )
    assert plugin_test(output=tmp_path / "nothing", write_cases=tmp_path / "cases", full=True, seed=4) == 0
    assert asked == [(tmp_path / "cases", {"full": True, "seed": 4})]
    assert capsys.readouterr().out == f"{tmp_path / 'cases' / 'cases.txt'}: 7 cases\n"


@pytest.mark.parametrize("name", ['a"b', "a;b", "a\\b"])
def test_paths_that_cmake_cannot_take_are_refused_before_it_runs(trt, tmp_path, name):
    with pytest.raises(OrinportError, match="CMake cannot build with"):
        build_plugin(PluginBuild(trt, tmp_path / name, kernels=False))
    assert not (tmp_path / name).exists()


def test_a_build_folder_that_cannot_be_made_is_named(trt, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OrinportError, match="cannot be written: File exists"):
        build_plugin(PluginBuild(trt, tmp_path / "file", kernels=False))


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 2**32}, {"fuzz": -1}, {"fuzz": 2**31}])
def test_numbers_that_the_harness_cannot_take_are_refused(tmp_path, options):
    from orinport.cli.dcnv4_plugin import plugin_test

    with pytest.raises(OrinportError, match=f"--{next(iter(options))} must be"):
        plugin_test(output=tmp_path, **options)
