"""Memory layouts: against the element-by-element spelling of the stand-in, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import standin_tensorrt as standin
from orinport.device.tensor_layout import TensorLayout, known_formats
from orinport.errors import OrinportError
from orinport.model.layer import DType
from orinport.targets.target import Platform

SPELLED = {"chw": "LINEAR", "chw16": "CHW16", "chw32": "CHW32", "dla_linear": "DLA_LINEAR", "dla_hwc4": "DLA_HWC4"}


@settings(max_examples=150, deadline=None)
@given(
    layout=st.sampled_from(sorted(SPELLED)),
    dtype=st.sampled_from([DType.FP16, DType.INT8]),
    batch=st.integers(1, 3),
    channels=st.integers(1, 70),
    height=st.integers(1, 5),
    width=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_bytes_are_where_nvidia_says_and_come_back(
    layout: str, dtype: DType, batch: int, channels: int, height: int, width: int, seed: int
) -> None:
    if layout == "dla_hwc4":
        channels = (1, 3, 4)[channels % 3]
    shape = (batch, channels, height, width)
    ours = TensorLayout("t", shape, dtype, layout, 1.0)
    values = np.random.default_rng(seed).integers(-128, 128, shape).astype(ours.numpy_dtype)
    packed = ours.pack(values)
    assert packed.nbytes == ours.size
    place = [
        standin._place(SPELLED[layout], *index, shape, ours.numpy_dtype.itemsize)  # type: ignore[arg-type]
        for index in np.ndindex(*shape)
    ]
    np.testing.assert_array_equal(packed.view(ours.numpy_dtype)[place], values.reshape(-1))
    rest = np.delete(packed.view(ours.numpy_dtype), place)
    assert not rest.any(), "padding is zero"
    np.testing.assert_array_equal(ours.unpack(packed), values.astype(np.float32 if dtype is DType.INT8 else np.float16))


@pytest.mark.parametrize(
    ("layout", "dtype", "shape", "platform", "size"),
    [
        ("chw32", DType.INT8, (1, 33, 2, 3), Platform.ORIN, 2 * 2 * 3 * 32),
        ("chw16", DType.FP16, (2, 16, 2, 3), Platform.ORIN, 2 * 2 * 3 * 16 * 2),
        ("dla_linear", DType.INT8, (1, 2, 3, 65), Platform.ORIN, 2 * 3 * 128),
        ("dla_linear", DType.FP16, (1, 2, 3, 33), Platform.ORIN, 2 * 3 * 128),
        ("dla_hwc4", DType.INT8, (1, 3, 2, 9), Platform.ORIN, 2 * 64),
        ("dla_hwc4", DType.INT8, (1, 3, 2, 9), Platform.XAVIER, 2 * 64),
        ("dla_hwc4", DType.INT8, (1, 3, 2, 7), Platform.XAVIER, 2 * 32),
        ("dla_hwc4", DType.FP16, (1, 1, 2, 31), Platform.ORIN, 2 * 64),
        ("hwc8", DType.FP16, (1, 3, 2, 5), Platform.ORIN, 2 * 5 * 8 * 2),
        ("chw", DType.FP32, (2, 7), Platform.ORIN, 56),
        ("chw", DType.INT64, (), Platform.ORIN, 8),
    ],
)
def test_sizes_by_hand(layout: str, dtype: DType, shape: tuple[int, ...], platform: Platform, size: int) -> None:
    assert TensorLayout("t", shape, dtype, layout, None, platform).size == size


def test_real_values_are_rounded_away_from_zero_and_saturate() -> None:
    layout = TensorLayout("t", (1, 6), DType.INT8, "chw", 0.5)
    packed = layout.pack(np.array([[0.25, -0.25, 0.74, 63.5, 64.0, -99.0]], np.float32))
    assert packed.view(np.int8).tolist() == [1, -1, 1, 127, 127, -128]
    assert layout.unpack(packed).tolist() == [[0.5, -0.5, 0.5, 63.5, 63.5, -64.0]]


def test_integers_of_an_int8_tensor_go_as_they_are() -> None:
    layout = TensorLayout("t", (1, 3), DType.INT8)
    assert layout.pack(np.array([[1, -2, 3]], np.int8)).view(np.int8).tolist() == [1, -2, 3]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("t", (1, 3, 4, 4), DType.BF16), "bf16"),
        (("t", (1, 3, 4, 4), DType.FP16, "cdhw32"), "cdhw32"),
        (("t", (1, -1, 4, 4), DType.FP16), "dynamic"),
        (("t", (8, 8), DType.FP16, "chw16"), "rank 2"),
        (("t", (1, 5, 4, 4), DType.FP16, "dla_hwc4"), "5 channels"),
    ],
)
def test_what_has_no_known_layout_is_refused(arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(OrinportError, match=says):
        TensorLayout(*arguments)  # type: ignore[arg-type]


def test_real_values_without_a_scale_are_refused() -> None:
    layout = TensorLayout("t", (1, 3), DType.INT8)
    with pytest.raises(OrinportError, match="scale is not known") as failure:
        layout.pack(np.zeros((1, 3), np.float32))
    assert "--scales" in failure.value.hint
    with pytest.raises(OrinportError, match="scale is not known"):
        layout.unpack(np.zeros(3, np.uint8))


def test_another_shape_is_refused() -> None:
    with pytest.raises(OrinportError, match="shape"):
        TensorLayout("t", (1, 3), DType.FP32).pack(np.zeros((3, 1), np.float32))


def test_every_format_has_its_source() -> None:
    from importlib import resources

    from orinport.toml import read_toml

    table = read_toml(resources.files("orinport.targets") / "data" / "tensor_formats.toml")
    assert set(table) == set(known_formats())
    assert all("NvInferRuntimeBase.h" in entry["source"] for entry in table.values())
