"""Every rewrite of the catalogue has property tests, and they count the graphs that it rewrote, not those drawn."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builders import node
from orinport.rewrites.catalogue import pow_to_mul
from orinport.rewrites.driver import all_rewrites
from rewrites import harness
from rewrites.harness import ENOUGH, SEEDS, Draw, Pattern, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TESTS = Path(__file__).parent.parent


def calls_of(function: Any) -> Iterator[dict[str, Any]]:
    """The arguments that its parametrisations give a test."""
    choices = []
    for mark in getattr(function, "pytestmark", ()):
        if mark.name != "parametrize":
            continue
        names = mark.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        rows = [getattr(row, "values", row) for row in mark.args[1]]
        rows = [row if isinstance(row, (tuple, list)) and len(row) == len(names) else (row,) for row in rows]
        choices.append([dict(zip(names, row, strict=True)) for row in rows])
    for chosen in product(*choices):
        yield {name: given for part in chosen for name, given in part.items()}


def property_tests() -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every property test of rewrites, with each of its arguments."""
    for folder in ("rewrites", "dcnv4"):
        for path in sorted((TESTS / folder).glob("test_*.py")):
            if "check_rewrite(" not in path.read_text() or path == Path(__file__):
                continue
            module = import_module(f"{folder}.{path.stem}")
            for name, function in vars(module).items():
                if name.startswith("test_") and "check_rewrite" in function.__code__.co_names:
                    yield from ((function, given) for given in calls_of(function) if "seeds" in given)


def test_every_rewrite_is_checked_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """By at least one generator, on so many graphs that `ENOUGH` are rewritten."""
    checked: set[str] = set()

    def record(rewrite: Any, generate: Any, seeds: Sequence[int], **options: Any) -> None:
        if len(seeds) >= ENOUGH:
            checked.add(rewrite.name)

    for function, given in property_tests():
        monkeypatch.setitem(function.__globals__, "check_rewrite", record)
        function(**given)
    assert [rewrite.name for rewrite in all_rewrites() if rewrite.name not in checked] == []


def powers(every: int) -> Any:
    """Graphs of which pow-to-mul takes only some."""

    def generate(draw: Draw) -> Pattern:
        takes = draw.seed % every == 0
        operator = "Pow" if takes else "Add"
        constants = {"e": draw.array() * 0 + draw.dtype(2)}
        return Pattern([node(operator, ["x", "e"], "y")], {"x": (2, 3)}, ["y"], constants, 13, applies=takes or False)

    return generate


@pytest.mark.parametrize(("every", "enough"), [(1, 6), (2, 6)])
def test_graphs_are_drawn_until_enough_were_rewritten(monkeypatch: pytest.MonkeyPatch, every: int, enough: int) -> None:
    monkeypatch.setattr(harness, "ENOUGH", enough)
    drawn = []

    def generate(draw: Draw) -> Pattern:
        drawn.append(draw.seed)
        return powers(every)(draw)

    check_rewrite(pow_to_mul.REWRITE, generate, range(enough))
    assert sum(seed % every == 0 for seed in drawn) == enough


def test_a_thin_generator_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ENOUGH", 6)
    with pytest.raises(AssertionError, match="thin"):
        check_rewrite(pow_to_mul.REWRITE, powers(3), range(6))


def test_bulk_is_enough() -> None:
    assert [len(each.values[0]) for each in SEEDS] == [harness.QUICK, ENOUGH]
