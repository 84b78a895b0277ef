"""The float64 reference against a slow loop written from the formulas, and against closed forms."""

from __future__ import annotations

from math import exp, floor

import numpy as np
import pytest

from orinport.dcnv4 import DeformAttnArguments, Geometry, flash_deform_attn_reference, offset_mask_width, reference
from orinport.errors import OrinportError


def slow_bilinear(image, y, x, channel):
    """One sample of `image` (H, W, C), pixel centres on whole numbers, zeros outside."""
    height, width, _ = image.shape
    if not (-1 < y < height and -1 < x < width):
        return 0.0
    y0, x0 = floor(y), floor(x)
    total = 0.0
    for row, column in ((y0, x0), (y0, x0 + 1), (y0 + 1, x0), (y0 + 1, x0 + 1)):
        if 0 <= row < height and 0 <= column < width:
            total += (1 - abs(y - row)) * (1 - abs(x - column)) * image[row, column, channel]
    return total


def slow_dcnv4(value, offset_mask, kernel, stride, padding, dilation, group, group_channels, scale, remove_center):
    """DCNv4 as the formulas read, one number at a time."""
    batch, height, width, _ = value.shape
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = kernel, stride, padding, dilation
    rows = (height + 2 * ph - (dh * (kh - 1) + 1)) // sh + 1
    columns = (width + 2 * pw - (dw * (kw - 1) + 1)) // sw + 1
    taps = kh * kw - (1 if remove_center else 0)
    ch, cw = (dh * (kh - 1)) // 2, (dw * (kw - 1)) // 2
    output = np.zeros((batch, rows, columns, group * group_channels))
    for n, oy, ox, g in np.ndindex(batch, rows, columns, group):
        numbers = offset_mask[n, oy, ox, 3 * taps * g : 3 * taps * (g + 1)]
        k = 0
        for i in range(kw):
            for j in range(kh):
                if remove_center and i == kw // 2 and j == kh // 2:
                    continue
                x = ox * sw - pw + cw + scale * (i * dw - cw + numbers[2 * k])
                y = oy * sh - ph + ch + scale * (j * dh - ch + numbers[2 * k + 1])
                for d in range(group_channels):
                    channel = g * group_channels + d
                    output[n, oy, ox, channel] += numbers[2 * taps + k] * slow_bilinear(value[n], y, x, channel)
                k += 1
        assert k == taps
    return output


def slow_flash(value, levels, starts, vectors, points):
    """FlashDeformAttn as the formulas read, one number at a time."""
    batch, _, group, channels = value.shape
    samples = len(levels) * points
    output = np.zeros((batch, vectors.shape[1], group, channels))
    for b, q, g in np.ndindex(batch, vectors.shape[1], group):
        logits = [float(v) for v in vectors[b, q, g, 2 * samples :]]
        powers = [exp(v - max(logits)) for v in logits]
        for level, (height, width) in enumerate(levels):
            image = value[b, starts[level] : starts[level] + height * width].reshape(height, width, -1)
            for p in range(points):
                s = level * points + p
                x = vectors[b, q, g, 2 * s] * width - 0.5
                y = vectors[b, q, g, 2 * s + 1] * height - 0.5
                for d in range(channels):
                    sample = slow_bilinear(image, y, x, g * channels + d)
                    output[b, q, g, d] += powers[s] / sum(powers) * sample
    return output.reshape(batch, vectors.shape[1], -1)


def random_case(generator):
    """A small random operator: arguments, value, offset_mask."""
    pick = generator.integers
    while True:
        kernel = (int(pick(1, 5)), int(pick(1, 5)))
        remove_center = bool(pick(0, 2)) and kernel != (1, 1)
        geometry = Geometry(
            group=int(pick(1, 4)),
            group_channels=int(pick(1, 4)),
            kernel=kernel,
            stride=(int(pick(1, 4)), int(pick(1, 4))),
            padding=(int(pick(0, 4)), int(pick(0, 4))),
            dilation=(int(pick(1, 4)), int(pick(1, 4))),
            offset_scale=float(generator.choice([0.5, 1.0, 2.0, -0.75, generator.uniform(0, 3)])),
            remove_center=remove_center,
        )
        height, width = int(pick(1, 8)), int(pick(1, 8))
        try:
            rows, columns = geometry.output_size(height, width)
        except OrinportError:
            continue
        batch = int(pick(1, 4))
        value = generator.standard_normal((batch, height, width, geometry.channels))
        spread = generator.choice([0.3, 2.0, 10.0])
        width_p = geometry.width + 8 * int(pick(0, 2))
        offset_mask = spread * generator.standard_normal((batch, rows, columns, width_p))
        return geometry, value, offset_mask


def run(geometry, value, offset_mask):
    return reference(
        value,
        offset_mask,
        kernel=geometry.kernel,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        group=geometry.group,
        group_channels=geometry.group_channels,
        offset_scale=geometry.offset_scale,
        remove_center=geometry.remove_center,
    )


@pytest.mark.parametrize("seed", range(10))
def test_reference_equals_the_slow_loop(seed):
    """Ten times fifty random geometries."""
    generator = np.random.default_rng(seed)
    for _ in range(50):
        geometry, value, offset_mask = random_case(generator)
        expected = slow_dcnv4(
            value,
            offset_mask,
            geometry.kernel,
            geometry.stride,
            geometry.padding,
            geometry.dilation,
            geometry.group,
            geometry.group_channels,
            geometry.offset_scale,
            geometry.remove_center,
        )
        scale = max(1.0, np.abs(expected).max())
        assert np.abs(run(geometry, value, offset_mask) - expected).max() / scale <= 1e-12


def test_flash_reference_equals_the_slow_loop():
    generator = np.random.default_rng(7)
    for _ in range(60):
        count = int(generator.integers(1, 4))
        levels = [tuple(int(v) for v in generator.integers(1, 6, 2)) for _ in range(count)]
        points = int(generator.integers(1, 5))
        gap = int(generator.integers(0, 3))
        starts, rows = [], 0
        for height, width in levels:
            starts.append(rows)
            rows += height * width + gap
        batch, group, channels, queries = (int(v) for v in generator.integers(1, 4, 4))
        value = generator.standard_normal((batch, rows, group, channels))
        vectors = generator.uniform(-0.4, 1.4, (batch, queries, group, 3 * count * points))
        vectors[..., 2 * count * points :] *= 5
        expected = slow_flash(value, levels, starts, vectors, points)
        got = flash_deform_attn_reference(value, levels, starts, vectors, points=points)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def plain(taps=9, mask=1.0, shape=(1, 5, 6), group=2):
    """An offset_mask with zero offsets and one mask value everywhere."""
    offset_mask = np.zeros((*shape, offset_mask_width(group, taps)))
    for g in range(group):
        offset_mask[..., 3 * taps * g + 2 * taps : 3 * taps * (g + 1)] = mask
    return offset_mask


def box_sum(value):
    padded = np.pad(value, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = value.shape[1:3]
    return sum(padded[:, j : j + height, i : i + width] for j in range(3) for i in range(3))


@pytest.fixture
def value():
    return np.random.default_rng(0).standard_normal((1, 5, 6, 4))


def test_zero_offsets_and_unit_masks_are_the_box_sum(value):
    got = reference(value, plain(), group=2, group_channels=2)
    np.testing.assert_allclose(got, box_sum(value), atol=1e-13)


def test_remove_center_leaves_the_centre_pixel_out(value):
    got = reference(value, plain(taps=8), group=2, group_channels=2, remove_center=True)
    np.testing.assert_allclose(got, box_sum(value) - value, atol=1e-13)


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (1, 0), (0, 1), (-2, 3)])
def test_one_tap_is_a_shift(value, dx, dy):
    """Tap 4 alone is the identity; dx = +1 reads x+1, so the image moves to the left."""
    offset_mask = plain(mask=0.0)
    for g in range(2):
        offset_mask[..., 27 * g + 8], offset_mask[..., 27 * g + 9] = dx, dy
        offset_mask[..., 27 * g + 18 + 4] = 1
    padded = np.pad(value, ((0, 0), (9, 9), (9, 9), (0, 0)))
    expected = padded[:, 9 + dy : 14 + dy, 9 + dx : 15 + dx]
    np.testing.assert_array_equal(reference(value, offset_mask, group=2, group_channels=2), expected)


@pytest.mark.parametrize(("tap", "row", "column"), [(1, 1, 0), (3, 0, 1), (5, 2, 1), (7, 1, 2), (2, 2, 0), (6, 0, 2)])
def test_taps_run_down_the_columns(value, tap, row, column):
    offset_mask = plain(mask=0.0)
    offset_mask[..., 18 + tap] = 1
    offset_mask[..., 27 + 18 + tap] = 1
    padded = np.pad(value, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = padded[:, row : row + 5, column : column + 6]
    np.testing.assert_array_equal(reference(value, offset_mask, group=2, group_channels=2), expected)


@pytest.mark.parametrize("axis", ["x", "y"])
@pytest.mark.parametrize(
    ("where", "weights"),
    [
        (-1.0, {}),
        (-1 + 2**-20, {0: 2**-20}),
        (-0.5, {0: 0.5}),
        (0.0, {0: 1.0}),
        (5.0, {5: 1.0}),
        (5.5, {5: 0.5}),
        (6 - 2**-20, {5: 2**-20}),
        (6.0, {}),
        (7.0, {}),
        (float("nan"), {}),
        (float("inf"), {}),
        (float("-inf"), {}),
        (1e30, {}),
    ],
)
def test_borders(axis, where, weights):
    """A 1x1 kernel at pixel 0 of a line of six pixels; every second pixel reaches it from the other side."""
    line = np.arange(1.0, 7.0)
    shape = (1, 1, 6, 1) if axis == "x" else (1, 6, 1, 1)
    offset_mask = np.zeros((*shape[:3], 8))
    positions = np.arange(6.0).reshape(shape[:3])
    offset_mask[..., 0 if axis == "x" else 1] = where - positions
    offset_mask[..., 2] = 1
    got = reference(line.reshape(shape), offset_mask, kernel=(1, 1), padding=(0, 0), group=1, group_channels=1)
    expected = sum(weight * line[pixel] for pixel, weight in weights.items())
    np.testing.assert_allclose(got, np.full(shape, expected), rtol=0, atol=1e-15)


def test_linear_in_value_and_masks(value):
    generator = np.random.default_rng(3)
    offset_mask = generator.standard_normal((1, 5, 6, 56))
    once = reference(value, offset_mask, group=2, group_channels=2)
    np.testing.assert_allclose(reference(-3 * value, offset_mask, group=2, group_channels=2), -3 * once, atol=1e-13)
    for g in range(2):
        offset_mask[..., 27 * g + 18 : 27 * g + 27] *= 0.25
    np.testing.assert_allclose(reference(value, offset_mask, group=2, group_channels=2), 0.25 * once, atol=1e-13)


def test_groups_do_not_see_each_other(value):
    generator = np.random.default_rng(4)
    offset_mask = generator.standard_normal((1, 5, 6, 56))
    once = reference(value, offset_mask, group=2, group_channels=2)
    other_value, other_vectors = value.copy(), offset_mask.copy()
    other_value[..., 2:] = 9
    other_vectors[..., 27:] = 9
    again = reference(other_value, other_vectors, group=2, group_channels=2)
    np.testing.assert_array_equal(once[..., :2], again[..., :2])
    assert np.abs(once[..., 2:] - again[..., 2:]).max() > 0.1


@pytest.mark.parametrize("extra", [0, 8, 64])
def test_padding_is_never_read(value, extra):
    generator = np.random.default_rng(5)
    offset_mask = generator.standard_normal((1, 5, 6, 56 + extra))
    once = reference(value, offset_mask[..., :56], group=2, group_channels=2)
    offset_mask[..., 54:] = np.nan
    np.testing.assert_array_equal(reference(value, offset_mask, group=2, group_channels=2), once)


def test_a_nan_mask_outside_the_image_contributes_nothing(value):
    offset_mask = plain()
    offset_mask[..., 0] = 100
    offset_mask[..., 18] = np.nan
    assert np.isfinite(reference(value, offset_mask, group=2, group_channels=2)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group": 3}, "value has 4 channels, but 3 groups of 2 need 6"),
        ({"group": 0}, "group must be a whole number of at least 1"),
        ({"kernel": (5, 5)}, r"needs \(1, 3, 4, P\)"),
        ({"kernel": (9, 3)}, "does not fit into 5x6"),
        ({"kernel": (3,)}, "kernel must be a pair"),
        ({"stride": (0, 1)}, "stride must be a whole number of at least 1"),
        ({"padding": (-1, 1)}, "padding must be a whole number of at least 0"),
        ({"dilation": (1, 2)}, r"needs \(1, 5, 4, P\)"),
        ({"stride": (2, 2)}, r"needs \(1, 3, 3, P\)"),
        ({"offset_scale": float("nan")}, "offset_scale must be finite"),
        ({"kernel": (1, 1), "remove_center": True}, "has no taps"),
    ],
)
def test_arguments_that_do_not_belong_together(value, change, words):
    arguments = {"group": 2, "group_channels": 2, **change}
    with pytest.raises(OrinportError, match=words):
        reference(value, plain(), **arguments)


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (np.zeros((1, 5, 6, 48)), "has 48 numbers a pixel, but 2 groups with 9 taps need 54"),
        (np.zeros((1, 5, 6, 54)), "pad them to 56"),
        (np.zeros((2, 5, 6, 56)), r"needs \(1, 5, 6, P\)"),
        (np.zeros((1, 30, 56)), r"must have shape \(N, Ho, Wo, P\)"),
        (np.full((1, 5, 6, 56), "a"), "must hold numbers"),
    ],
)
def test_offset_masks_that_do_not_fit(value, vectors, words):
    with pytest.raises(OrinportError, match=words):
        reference(value, vectors, group=2, group_channels=2)


def test_empty_and_flat_values():
    with pytest.raises(OrinportError, match="is empty"):
        reference(np.zeros((0, 5, 6, 4)), np.zeros((0, 5, 6, 56)), group=2, group_channels=2)
    with pytest.raises(OrinportError, match=r"must have shape \(N, H, W, C\)"):
        reference(np.zeros((5, 6, 4)), np.zeros((1, 5, 6, 56)), group=2, group_channels=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"levels": [(2, 3, 1)]}, r"must have shape \(L, 2\)"),
        ({"levels": [(0, 3)]}, "level's size must be a whole number of at least 1"),
        ({"levels": np.zeros((0, 2))}, "at least one level"),
        ({"starts": [0, 6]}, "1 levels, but 2 level starts"),
        ({"starts": [1]}, "does not lie inside the 6 rows"),
        ({"vectors": np.zeros((1, 4, 2, 12))}, r"need \(1, Q, 2, 24\)"),
        ({"vectors": np.zeros((1, 4, 24))}, r"must have shape \(B, Q, G, 3\*L\*K\)"),
        ({"value": np.zeros((1, 6, 4))}, r"must have shape \(B, N, G, D\)"),
        ({"value": np.zeros((1, 0, 2, 2))}, "is empty"),
        ({"points": 0}, "points must be"),
    ],
)
def test_flash_arguments_that_do_not_belong_together(change, words):
    case = {
        "value": np.zeros((1, 6, 2, 2)),
        "levels": [(2, 3)],
        "starts": [0],
        "vectors": np.zeros((1, 4, 2, 24)),
        "points": 8,
        **change,
    }
    with pytest.raises(OrinportError, match=words):
        flash_deform_attn_reference(
            case["value"], case["levels"], case["starts"], case["vectors"], points=case["points"]
        )


def test_flash_weights_add_to_one():
    """Equal values everywhere inside and any finite logits, however large, give that value."""
    value = np.full((1, 6, 1, 2), 3.0)
    vectors = np.full((1, 2, 1, 12), 0.5)
    vectors[..., 8:] = [-900.0, 900.0, 899.0, 0.0]
    got = flash_deform_attn_reference(value, [(2, 3)], [0], vectors, points=4)
    np.testing.assert_allclose(got, np.full((1, 2, 2), 3.0), atol=1e-14)


def test_derived_sizes():
    assert [Geometry(g, 16).width for g in (4, 8, 16, 32)] == [112, 216, 432, 864]
    assert [Geometry(g, 16).width for g in (5, 7, 10)] == [136, 192, 272]
    assert Geometry(4, 16).used_width == 108
    assert Geometry(4, 16, remove_center=True).width == 96
    assert Geometry(4, 16, kernel=(3, 2), remove_center=True).tap_positions == ((0, 0), (1, 0), (2, 0), (0, 1), (2, 1))
    assert Geometry(4, 16, kernel=(5, 5), padding=(2, 2)).keeps_size
    assert not Geometry(4, 16, stride=(2, 2)).keeps_size
    assert not Geometry(4, 16, padding=(0, 1)).keeps_size
    assert DeformAttnArguments(((4, 4), (2, 2), (1, 1)), 4).starts == (0, 16, 20)


def test_fused_shapes():
    assert Geometry(4, 16).check_fused((2, 56, 56, 176)) == (2, 56, 56, 112)
    with pytest.raises(OrinportError, match="only if the output has the input's size"):
        Geometry(4, 16, stride=(2, 2)).check_fused((1, 8, 8, 176))
    with pytest.raises(OrinportError, match="need 108"):
        Geometry(4, 16).check_fused((1, 8, 8, 168))


def test_the_reference_needs_numpy_alone():
    """Neither PyTorch nor ONNX is imported for it, and without PyTorch the rest says what is missing."""
    import subprocess
    import sys

    code = """
import sys
sys.modules["torch"] = None
import orinport.dcnv4 as d
from orinport.errors import MissingExtraError
d.reference([[[[1.0]]]], [[[[0.0, 0, 1, 0, 0, 0, 0, 0]]]], kernel=(1, 1), padding=(0, 0), group=1, group_channels=1)
assert not {"onnx", "onnx_ir", "onnxruntime", "PIL"} & set(sys.modules), sorted(sys.modules)
try:
    d.dcnv4
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "orinport[torch]" in done.stdout


@pytest.mark.parametrize("wrong", [{"kernel": 3}, {"group": 2.0}, {"stride": (1.0, 1)}])
def test_numbers_of_the_wrong_kind(wrong):
    with pytest.raises(OrinportError):
        Geometry(**{"group": 2, "group_channels": 4, **wrong})


def test_complex_numbers_are_refused():
    with pytest.raises(OrinportError, match="real numbers"):
        reference(np.zeros((1, 3, 3, 8), complex), np.zeros((1, 3, 3, 56)), group=2, group_channels=4)
