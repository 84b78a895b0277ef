"""Calibration caches, layer precisions and JSON: bytes against bytes worked out by hand, and back again."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orinport.errors import OrinportError
from orinport.precision.cache import (
    cache_header,
    cache_text,
    is_safe_layer_name,
    layer_precisions,
    parse_cache,
    parse_json,
    read_layer_precisions,
    read_scales,
    scale_hex,
    scales_json,
)
from orinport.precision.scales import Origin, Scale, Scales, is_valid
from orinport.targets.version import Version

BY_HAND = [
    # sign 0, exponent e + 127 in 8 bits, fraction in 23 bits
    (1.0, "3f800000"),
    (2.0, "40000000"),
    (0.5, "3f000000"),
    (0.25, "3e800000"),
    (0.125, "3e000000"),
    (1.5, "3fc00000"),
    (0.75, "3f400000"),
    (3.0, "40400000"),
    (127.0, "42fe0000"),
    (128.0, "43000000"),
    (2.0**-7, "3c000000"),
    (2.0**-10, "3a800000"),
    (2.0**-20, "35800000"),
    (2.0**-126, "800000"),
    (2.0**-127, "400000"),
    (2.0**-149, "1"),
    (1 + 2.0**-23, "3f800001"),
    (2 - 2.0**-22, "3fffffff"[:7] + "e"),
    (65504.0, "477fe000"),
    (2.0**127, "7f000000"),
    # NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator
    (1 / 127, "3c010204"),
    (0.02, "3ca3d70a"),
]


@pytest.mark.parametrize(("scale", "expected"), BY_HAND)
def test_hexadecimal(scale: float, expected: str) -> None:
    assert scale_hex(scale) == expected
    text = cache_text({"t": Scale(scale, Origin.DATA)}, Version.parse("8.6.2"))
    assert text.encode() == b"TRT-8602-EntropyCalibration2\nt: " + expected.encode() + b"\n"
    assert parse_cache(text)["t"].value == float(np.float32(scale))


def test_a_published_line_reads_as_published() -> None:
    """The YOLOv5 sample of NVIDIA-AI-IOT/cuDLA-samples has the input scale 0.00787209, to six digits."""
    scales = parse_cache("TRT-8600-EntropyCalibration2\nimages: 3c00f9f4")
    assert f"{scales['images'].value:.6g}" == "0.00787209"


@pytest.mark.parametrize(
    ("version", "number"),
    [("8.4.1", 8401), ("8.5.2", 8502), ("8.6.0", 8600), ("8.6.12", 8612), ("10.3.0", 100300), ("10.16.2", 101602)],
)
def test_header(version: str, number: int) -> None:
    assert cache_header(Version.parse(version)) == f"TRT-{number}-EntropyCalibration2"


def test_names_hold_colons() -> None:
    names = ["x:0", "a: b", "node: 3f800000", " spaced ", "名前", "quote\"'", "a: 1: 2"]
    scales = {name: Scale(0.5 + i, Origin.DATA) for i, name in enumerate(names)}
    back = parse_cache(cache_text(scales, Version.parse("10.3.0")))
    assert {name: each.value for name, each in back.tensors.items()} == {name: s.value for name, s in scales.items()}
    assert not back.findings


@pytest.mark.parametrize("name", ["", "two\nlines", "two\rlines"])
def test_names_that_do_not_fit(name: str) -> None:
    with pytest.raises(OrinportError, match="does not fit"):
        cache_text({name: Scale(1.0, Origin.DATA)}, Version.parse("8.6.2"))


def test_no_cache_for_tensorrt_11() -> None:
    with pytest.raises(OrinportError, match="reads no calibration cache"):
        cache_text({}, Version.parse("11.4.1"))


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1), st.integers(1, 0x7F7FFFFF)
    )
)
def test_every_scale_comes_back(bits: dict[str, int]) -> None:
    scales = {n: Scale(struct.unpack(">f", struct.pack(">I", b))[0], Origin.DATA) for n, b in bits.items()}
    back = parse_cache(cache_text(scales, Version.parse("8.6.2")))
    assert [(n, s.value) for n, s in back.tensors.items()] == [(n, s.value) for n, s in scales.items()]
    again = parse_json(scales_json(Scales(scales)).encode())
    assert {n: s.value for n, s in again.tensors.items()} == {n: s.value for n, s in scales.items()}


@given(st.text())
def test_any_text_is_a_cache_or_an_error(text: str) -> None:
    for candidate in (text, f"TRT-8600-EntropyCalibration2\n{text}"):
        try:
            scales = parse_cache(candidate)
        except OrinportError:
            continue
        assert all(is_valid(scale.value) for scale in scales.tensors.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not begin with"),
        ("x: 3f800000\n", "does not begin with"),
        ("TRT-8600-EntropyCalibration2\nx 3f800000\n", "Line 2"),
        ("TRT-8600-EntropyCalibration2\nx: 3f80000g\n", "Line 2"),
        ("TRT-8600-EntropyCalibration2\ny: 1\nx: 13f800000\n", "Line 3"),
        ("TRT-8600-EntropyCalibration2\nx:3f800000\n", "Line 2"),
    ],
)
def test_what_is_no_cache(text: str, message: str) -> None:
    with pytest.raises(OrinportError, match=message):
        parse_cache(text)


@pytest.mark.parametrize("pattern", ["7fc00000", "bb513b97", "0", "7f800000", "80000000"])
def test_invalid_scales_are_told_and_left_out(pattern: str) -> None:
    scales = parse_cache(f"TRT-8600-EntropyCalibration2\nx: {pattern}\ny: 3f800000\n")
    assert list(scales.tensors) == ["y"]
    assert [finding.code for finding in scales.findings] == ["Q003"]
    assert "'x'" in scales.findings[0].message


def test_repeated_names() -> None:
    scales = parse_cache("TRT-8600-EntropyCalibration2\nx: 3f800000\nx: 40000000\nx: 3f000000\n")
    assert scales["x"].value == 2.0
    assert [finding.code for finding in scales.findings] == ["Q002", "Q002"]


def test_upper_case_and_windows_line_ends() -> None:
    assert parse_cache("TRT-8600-MinMaxCalibration\r\nx: 3C010204\r\n")["x"].value == float(np.float32(1 / 127))


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 0.0, -1.0, 1e-46, 1e39])
def test_no_scale_is_invalid(scale: float) -> None:
    with pytest.raises(ValueError, match="is not a scale"):
        Scale(scale, Origin.DATA)


def test_range_is_127_steps() -> None:
    assert Scale.of_range(127.0, Origin.DATA).value == 1.0
    assert Scale.of_range(6.0, Origin.DATA).value == float(np.float32(6.0) / np.float32(127))
    assert Scale(1.0, Origin.DATA).range == 127.0


def test_layer_precisions() -> None:
    assert layer_precisions([]) == ""
    assert layer_precisions(["conv1", "a/b.c_2", "conv1"]) == "conv1:fp16,a/b.c_2:fp16"


@pytest.mark.parametrize("name", ["", "a,b", "a b", "a:b", "it's", "a\nb", "$(x)", 'a"b', "*", "(Unnamed Layer* 3)"])
def test_unsafe_layer_names(name: str) -> None:
    assert not is_safe_layer_name(name)
    with pytest.raises(OrinportError, match="cannot stand in --layerPrecisions"):
        layer_precisions(["good", name])


def test_json_of_other_tools() -> None:
    scales = parse_json(b'{"int8_tensor_scales": {"x": 0.02, "y": 1}, "fp16_nodes": []}')
    assert scales["x"].value == float(np.float32(0.02))
    assert scales["y"].value == 1.0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "is not JSON"),
        (b"[]", "holds no scales"),
        (b'{"tensors": {"a": 1, "b": 1, "a": 2}}', "has 'a' more than once"),
        (b'{"tensors":' * 100_000 + b"1" + b"}" * 100_000, "is not JSON"),
        (b'{"tensors": 3}', "holds no scales"),
        (b'{"tensors": {"x": "big"}}', "no number"),
        (b'{"tensors": {"x": true}}', "no number"),
    ],
)
def test_what_is_no_json_of_scales(data: bytes, message: str) -> None:
    with pytest.raises(OrinportError, match=message):
        parse_json(data)


def test_json_integers_of_any_size() -> None:
    scales = parse_json(b'{"tensors": {"a": 1' + b"0" * 400 + b', "b": 2}}')
    assert list(scales.tensors) == ["b"]
    assert len(scales.findings) == 1


def test_json_without_a_number_is_an_invalid_scale() -> None:
    scales = parse_json(b'{"tensors": {"x": {"scale": null}, "y": {"range": 3}}}')
    assert not scales.tensors
    assert [finding.code for finding in scales.findings] == ["Q003", "Q003"]


def test_files_are_told_apart(tmp_path: Path) -> None:
    scales = Scales({"x": Scale(0.5, Origin.DATA)})
    (tmp_path / "a").write_text(scales_json(scales))
    (tmp_path / "b").write_text(cache_text(scales.tensors, Version.parse("8.6.2")))
    (tmp_path / "c").write_bytes(b"\xff\xfe\x00")
    assert read_scales(tmp_path / "a")["x"].value == read_scales(tmp_path / "b")["x"].value == 0.5
    with pytest.raises(OrinportError, match="neither"):
        read_scales(tmp_path / "c")
    with pytest.raises(OrinportError, match="cannot be read"):
        read_scales(tmp_path / "d")


def test_layer_precisions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "layer_precisions.txt"
    assert read_layer_precisions(path) == ()
    names = ("conv/1", "größe", "a.b")
    path.write_text(layer_precisions(names) + "\n", encoding="utf-8")
    assert read_layer_precisions(path) == names
    for text in ("conv", "conv:int8", ":fp16", "a:fp16,,b:fp16"):
        path.write_text(text)
        with pytest.raises(OrinportError, match="is not a list of"):
            read_layer_precisions(path)
    path.write_bytes(b"\xff:fp16")
    with pytest.raises(OrinportError, match="cannot be read"):
        read_layer_precisions(path)
