"""The light networks end with every layer on the DLA, proved, with their edges moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import LIGHT, light_path, network, node
from orinport.checking import as_precision, as_target, check_model, dla_judge
from orinport.model.load import load
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.edges import move_edges
from orinport.rewrites.proof import compare_models

if TYPE_CHECKING:
    from orinport.model.model import Model
    from orinport.results import CheckReport
    from orinport.rewrites.edges import EdgeMapping

QUICK = ("squeezenet", "inception_v1", "densenet121")
NETWORKS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LIGHT]


def _port(model: Model, target: str) -> tuple[Model, tuple[EdgeMapping, ...], CheckReport]:
    board, precision = as_target(target), as_precision("fp16")
    judge = dla_judge(board, precision, standalone=False)
    rewritten, log = rewrite_model(model, target=board, precision=precision, judge=judge)
    assert not log.rolled_back, str(log.rolled_back[0])
    assert all(entry.proof.equal and entry.proof.cases for entry in log.applied)
    moved, edges = move_edges(rewritten)
    return moved, edges, check_model(moved, board, precision)


@pytest.mark.parametrize("target", ["orin-agx-64gb/jp6.0"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_on_the_dla(name: str, target: str) -> None:
    model = load(light_path(name))
    moved, edges, report = _port(model, target)
    assert report.all_dla, [(row.layer.name, row.codes) for row in report.layers if row.verdict.value != "dla"]
    assert report.placement.loadables == 1
    assert all(len(value.shape or ()) == 4 for value in (*moved.graph.inputs, *moved.graph.outputs))
    proof = compare_models(model, moved, edges, cases=1)
    assert proof.equal, proof.rows


def test_a_residual_network_of_matrix_products() -> None:
    """Rank 3 from end to end: the additions go over the 4-D tensors, and one transpose is left to each edge."""
    import numpy as np

    rng = np.random.default_rng(0)
    nodes, weights, current = [], {}, "x"
    for index in range(4):
        weights[f"w{index}"] = (rng.standard_normal((24, 24)) / 8).astype(np.float32)
        weights[f"b{index}"] = rng.standard_normal(24).astype(np.float32)
        nodes += [
            node("MatMul", [current, f"w{index}"], f"m{index}"),
            node("Add", [f"m{index}", f"b{index}"], f"a{index}"),
            node("Relu", [f"a{index}"], f"r{index}"),
            node("Add", [f"r{index}", current], f"s{index}"),
        ]
        current = f"s{index}"
    model = load(network(nodes, {"x": (1, 20, 24)}, [current], weights))
    moved, edges, report = _port(model, "orin-agx-64gb/jp6.0")
    assert report.all_dla
    assert [each.op_type for each in moved.graph] == ["Conv", "Relu", "Add"] * 4
    assert len(edges) == 2
    proof = compare_models(model, moved, edges)
    assert proof.equal
    assert proof.rows[0].max_rel < 1e-5
