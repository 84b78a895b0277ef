"""The published spreadsheet of NVDLA v1 (nvdla/hw, perf): totals, and every layer of two sheets."""

from __future__ import annotations

import pytest

from orinport.predict.nvdla import Sheet, SheetLayer, sheet_time

L = SheetLayer
RESNET50 = [
    # number, layer, DRAM cycles, MAC cycles
    (1, L(3, 224, 64, 7, 2, pool=(3, 2), stem=True), 40800, 153664),
    (1, L(64, 56, 256, 1, padded=False), 99600, 25088),
    (3, L(256, 56, 64, 1), 99600, 50176),
    (3, L(64, 56, 64, 3), 45600, 50176),
    (3, L(64, 56, 256, 1, elementwise=True), 178000, 25088),
    (1, L(256, 56, 512, 1, 2), 247200, 50176),
    (1, L(256, 56, 128, 1, 2), 101000, 12544),
    (4, L(128, 28, 128, 3), 45200, 25088),
    (4, L(128, 28, 512, 1, elementwise=True), 94600, 25088),
    (3, L(512, 28, 128, 1), 55400, 25088),
    (1, L(512, 28, 1024, 1, 2), 263600, 50176),
    (1, L(512, 28, 256, 1, 2), 95300, 12544),
    (6, L(256, 14, 256, 3), 112200, 25088),
    (6, L(256, 14, 1024, 1, elementwise=True), 69700, 25088),
    (5, L(1024, 14, 256, 1), 50100, 25088),
    (1, L(1024, 14, 2048, 1, 2), 848600, 50176),
    (1, L(1024, 14, 512, 1, 2), 226850, 12544),
    (3, L(512, 7, 512, 3), 414500, 25088),
    (2, L(512, 7, 2048, 1, elementwise=True), 124450, 25088),
    (2, L(2048, 7, 512, 1), 114650, 25088),
    (1, L(512, 7, 2048, 1, pool=(7, 7), elementwise=True), 105250, 25088),
    (1, L(2048, 1, 1000, 1, padded=False, fully_connected=True), 200299, 1000),
]
ALEXNET = [
    (1, L(3, 224, 96, 11, 4, padded=False, pool=(3, 2)), 25585, 49617.5625),
    (2, L(48, 27, 128, 5, pool=(3, 2)), 20530, 54675),
    (1, L(256, 13, 384, 3), 164163, 32448),
    (2, L(192, 13, 192, 3), 63938, 12168),
    (2, L(192, 13, 128, 3, pool=(3, 2)), 42019, 8112),
    (1, L(256, 6, 4096, 6, padded=False, fully_connected=True), 231700, 18432),
    (1, L(4096, 1, 4096, 1, padded=False, fully_connected=True), 103200, 8192),
    (1, L(4096, 1, 1000, 1, padded=False, fully_connected=True), 25499, 2000),
]
INCEPTION = [
    # channels, size, 1x1, before 3x3, 3x3, before 5x5, 5x5, behind the pool, pooling after the block
    (192, 28, 64, 96, 128, 16, 32, 32, None),
    (256, 28, 128, 128, 192, 32, 96, 64, (3, 2)),
    (480, 14, 192, 96, 208, 16, 48, 64, None),
    (512, 14, 160, 112, 224, 24, 64, 64, None),
    (512, 14, 128, 128, 256, 24, 64, 64, None),
    (512, 14, 112, 144, 288, 32, 64, 64, None),
    (528, 14, 256, 160, 320, 32, 128, 128, (3, 2)),
    (832, 7, 256, 160, 320, 32, 128, 128, None),
    (832, 7, 384, 192, 384, 48, 128, 128, (7, 7)),
]


def googlenet() -> list[SheetLayer]:
    layers = [L(3, 224, 64, 7, 2, pool=(3, 2)), L(64, 56, 64, 1), L(64, 56, 192, 3, pool=(3, 2))]
    for channels, size, one, before3, three, before5, five, behind, pool in INCEPTION:
        layers += [
            L(channels, size, one + before3 + before5, 1, pool=pool, pooled_kernels=one),
            L(before3, size, three, 3, pool=pool),
            L(before5, size, five, 5, pool=pool),
            L(channels, size, behind, 1, pool=pool),
        ]
    return [*layers, L(1024, 1, 1000, 1, padded=False, fully_connected=True)]


@pytest.mark.parametrize(("sheet", "rows"), [(Sheet.RESNET50, RESNET50), (Sheet.ALEXNET, ALEXNET)])
def test_every_layer_is_exact(sheet: Sheet, rows: list[tuple[int, SheetLayer, int, float]]) -> None:
    for _, layer, dram, mac in rows:
        time = sheet_time(layer, sheet)
        assert (time.dram_cycles, time.mac_cycles) == (dram, mac), layer


@pytest.mark.parametrize(
    ("sheet", "rows", "total"), [(Sheet.RESNET50, RESNET50, 7113691), (Sheet.ALEXNET, ALEXNET, 895443.5625)]
)
def test_totals_are_exact(sheet: Sheet, rows: list[tuple[int, SheetLayer, int, float]], total: float) -> None:
    assert sum(number * sheet_time(layer, sheet).cycles for number, layer, _, _ in rows) == total


def test_googlenet_total_within_two_per_mille() -> None:
    total = sum(sheet_time(layer, Sheet.GOOGLENET).cycles for layer in googlenet())
    assert abs(total / 1222071 - 1) < 0.002
