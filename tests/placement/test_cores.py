"""Both DLA cores: schedules by hand, the search against brute force, branches of large networks."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.cores import CORES, EXACT, Assignment, choose_cores, finish_us, schedule
from orinport.placement.graph import Costs
from orinport.placement.search import choose_devices, placement_us
from random_graphs import costs, graph
from values import layer

if TYPE_CHECKING:
    from collections.abc import Mapping

CHOICES = (*CORES, "gpu")


def reads(index: int, *sources: int) -> Layer:
    """A layer of the given sources; without any it reads the network's input."""
    names = [f"t{source}" for source in sources] or ["x"]
    tensors = tuple(Tensor(name, (1, 16, 4, 4), DType.FP32) for name in names)
    result = Tensor(f"t{index}", (1, 16, 4, 4), DType.FP32)
    return Layer(index, f"l{index}", LayerKind.ACTIVATION, tensors, (result,), (f"l{index}",))


def chosen(*arguments: Any, **options: Any) -> Mapping[int, str]:
    return choose_cores(*arguments, **options).device


def towers(length: int, number: int = 2) -> list[Layer]:
    """`number` chains behind one layer, joined by a last one."""
    layers, ends = [reads(0)], []
    for _ in range(number):
        source = 0
        for _ in range(length):
            layers.append(reads(len(layers), source))
            source = layers[-1].index
        ends.append(source)
    return [*layers, reads(len(layers), *ends)]


def even(layers: list[Layer], us: float = 100.0, gpu: float = 1000.0, **changed: object) -> Costs:
    indices = [each.index for each in layers]
    return replace(
        Costs(dict.fromkeys(indices, us), dict.fromkeys(indices, gpu), 10.0, {}, 16),
        **changed,  # type: ignore[arg-type]
    )


def test_a_schedule_by_hand() -> None:
    """A fork whose branches run on different cores, joined on the first one."""
    layers = [reads(0), reads(1, 0), reads(2, 0), reads(3, 1, 2)]
    given = even(layers, transfer={"t0": 1.0}, handover={"t0": 3.0, "t2": 5.0, "t1": 7.0})
    device = {0: "dla0", 1: "dla0", 2: "dla1", 3: "dla0"}
    found = schedule(layers, Assignment(device), given)
    assert found is not None
    assert [[each.index for each in region] for region in found.regions] == [[0, 1], [2], [3]]
    assert found.devices == ("dla0", "dla1", "dla0")
    assert found.starts == (0.0, 210.0, 323.0)
    assert found.ends == (210.0, 323.0, 438.0)
    assert found.us == 438.0
    cut = schedule(layers, Assignment(device, frozenset({0})), given)
    assert cut is not None
    assert [[each.index for each in region] for region in cut.regions] == [[0], [1], [2], [3]]
    assert cut.ends == (110.0, 220.0, 223.0, 223.0 + 5.0 + 110.0)
    assert finish_us(layers, device, given) == 338.0
    aside = even(layers, gpu=1.0)
    assert finish_us(layers, {0: "dla0", 1: "dla0", 2: "gpu", 3: "gpu"}, aside) == 210.0 + 2.0, "a cut costs a launch"
    on_gpu = schedule(layers, Assignment({0: "dla0", 1: "gpu", 2: "gpu", 3: "gpu"}), given)
    assert on_gpu is not None
    assert on_gpu.ends == (110.0, 110.0 + 3000.0 + 1.0)


def test_a_core_holds_so_many_loadables_and_both_hold_twice_that() -> None:
    layers = [reads(i, i - 1) if i else reads(0) for i in range(7)]
    may = {0, 2, 4, 6}
    given = even(layers, loadables=2)
    assert schedule(layers, Assignment({i: "dla0" if i in may else "gpu" for i in range(7)}), given) is None
    device = chosen(layers, may, given, may_gpu=False)
    assert sorted(device[i] for i in may) == ["dla0", "dla0", "dla1", "dla1"]
    assert finish_us(layers, device, given) == 4 * 110 + 3 * 1000


@pytest.mark.parametrize("length", [2, 40])
def test_towers_run_side_by_side(length: int) -> None:
    """Below and above what is searched exhaustively; the shared beginning and end stay with one of them."""
    layers = towers(length)
    given = even(layers)
    assert (len(layers) > EXACT) is (length > 5)
    device = chosen(layers, range(len(layers)), given)
    first, second = {device[i] for i in range(1, length + 1)}, {device[i] for i in range(length + 1, 2 * length + 1)}
    assert first | second == set(CORES)
    assert len(first) == len(second) == 1
    one_core = finish_us(layers, dict.fromkeys(device, "dla0"), given)
    assert finish_us(layers, device, given) <= one_core - length * 100 + 3 * given.launch


def test_residual_blocks_move_with_their_branch() -> None:
    layers = [reads(0)]
    ends = []
    for _ in range(2):
        source = 0
        for _ in range(10):
            at = len(layers)
            layers += [reads(at, source), reads(at + 1, at), reads(at + 2, at + 1, source)]
            source = at + 2
        ends.append(source)
    layers.append(reads(len(layers), *ends))
    given = even(layers)
    device = chosen(layers, range(len(layers)), given)
    assert finish_us(layers, device, given) < 0.6 * finish_us(layers, dict.fromkeys(device, "dla0"), given)


def test_a_chain_gains_nothing_and_stays_on_one_core() -> None:
    layers = [reads(i, i - 1) if i else reads(0) for i in range(30)]
    given = even(layers)
    device = chosen(layers, range(30), given)
    assert set(device.values()) == {"dla0"}
    assert finish_us(layers, device, given) == placement_us(layers, dict.fromkeys(range(30), "dla"), given)


def test_wishes_are_granted() -> None:
    layers = towers(2)
    device = chosen(layers, range(len(layers)), even(layers), {0: "gpu", 1: "dla1", 3: "dla"})
    assert (device[0], device[1]) == ("gpu", "dla1")
    assert device[3] in CORES
    cheap_gpu = even(layers, gpu=1.0)
    assert set(chosen(layers, range(len(layers)), cheap_gpu).values()) == {"gpu"}
    assert "gpu" not in chosen(layers, range(len(layers)), cheap_gpu, may_gpu=False).values()


def brute_force(layers: list[Layer], options: list[tuple[str, ...]], given: Costs) -> float:
    return min(
        finish_us(layers, {each.index: on for each, on in zip(layers, choice, strict=True)}, given)
        for choice in product(*options)
    )


def check_seed(seed: int, most: int, free: int) -> None:
    """At most `most` layers, `free` of them with three choices."""
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, most + 1))
    layers = graph(rng, number)
    given = costs(rng, number, int(rng.choice([1, 2, 16])))
    given = replace(given, handover={f"t{i}": float(rng.uniform(0, 10)) for i in range(number)})
    may_dla = {i for i in range(number) if rng.random() < 0.8}
    fixed = {i: str(rng.choice(["dla0", "dla1", "gpu", "dla"])) for i in range(number) if rng.random() < 0.1}
    for index in sorted(may_dla - fixed.keys())[free:]:
        fixed[index] = str(rng.choice(CHOICES))
    may_gpu = bool(rng.random() < 0.8)
    device = chosen(layers, may_dla, given, fixed, may_gpu=may_gpu)
    options: list[tuple[str, ...]] = []
    for index in range(number):
        if index not in may_dla:
            options.append(("gpu",))
        elif fixed.get(index, "dla") == "dla":
            options.append(CORES if index in fixed or not may_gpu else CHOICES)
        else:
            options.append((fixed[index],))
    assert all(device[index] in each for index, each in enumerate(options))
    best = brute_force(layers, options, given)
    assert finish_us(layers, device, given) == pytest.approx(best)


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_equals_brute_force(start: int) -> None:
    for seed in range(start, start + 20):
        check_seed(seed, 7, 6)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 600, 25))
def test_equals_brute_force_on_many_graphs(start: int) -> None:
    for seed in range(start, start + 25):
        check_seed(seed, 12, 8)


def test_two_devices_are_never_slower_than_the_best_placement_of_one_engine() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        layers = graph(rng, 80)
        given = costs(rng, 80)
        may_dla = {i for i in range(80) if rng.random() < 0.8}
        single = choose_devices(layers, may_dla, given)
        device = chosen(layers, may_dla, given)
        assert finish_us(layers, device, given) <= placement_us(layers, single, given) + 1e-6


@pytest.mark.parametrize("kind", ["chain", "towers", "random"])
def test_five_thousand_layers_in_time(kind: str) -> None:
    """Processor time, because the machine may have other work."""
    rng = np.random.default_rng(0)
    layers = {
        "chain": lambda: [layer(i, LayerKind.ACTIVATION, f"t{i}", f"t{i + 1}") for i in range(5000)],
        "towers": lambda: towers(1249, 4),
        "random": lambda: graph(rng, 5000),
    }[kind]()
    given = costs(rng, len(layers) + 1)
    may_dla = {i for i in range(len(layers)) if i % 100}
    start = time.process_time()
    device = chosen(layers, may_dla, given)
    assert time.process_time() - start < 5
    assert finish_us(layers, device, given) < float("inf")
