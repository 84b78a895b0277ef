"""Networks whose approximations the user consented to: held to what those state, not to rounding alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

import orinport
from builders import network, node
from orinport.rewrites.rewrite import Safety

if TYPE_CHECKING:
    from pathlib import Path


def gate() -> onnx.ModelProto:
    """A convolution and an Erf, whose approximation differs by more than rounding does."""
    weights = (np.random.default_rng(0).standard_normal((8, 8, 3, 3)) * 0.07).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]), node("Erf", ["c"], "y")]
    return network(nodes, {"x": (1, 8, 16, 16)}, ["y"], {"w": weights})


def test_held_to_what_they_state(tmp_path: Path) -> None:
    report = orinport.prepare(gate(), output=tmp_path / "b", consent=(Safety.EXACT, Safety.TOLERANCE))
    assert report.after.all_dla
    assert report.proof is not None
    row = report.proof.rows[0]
    assert 2.0**-12 < row.max_rel < row.tolerance
    assert row.tolerance == pytest.approx(2.0**-12 + 5e-4)
    assert orinport.verify(gate(), tmp_path / "b").equal
    assert not orinport.verify(gate(), tmp_path / "b", tolerance=2.0**-12).equal


def test_exact_rewrites_get_no_allowance(tmp_path: Path) -> None:
    report = orinport.prepare(gate(), output=tmp_path / "b")
    assert report.proof is not None
    assert report.proof.rows[0].tolerance == 2.0**-12


def test_outputs_that_count_behind_an_approximation_are_not_called_a_defect(tmp_path: Path) -> None:
    proto = gate()
    levels = np.linspace(-0.9, 0.9, 64, dtype=np.float32).reshape(64, 1, 1, 1)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(levels, "levels"))
    proto.graph.node.extend([node("Greater", ["y", "levels"], "above"), node("NonZero", ["above"], "places")])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("places", onnx.TensorProto.INT64, [4, "count"]))
    report = orinport.prepare(proto, output=tmp_path / "b", consent=(Safety.EXACT, Safety.TOLERANCE))
    assert report.proof is not None
    assert [(row.equal, row.undecided) for row in report.proof.rows] == [(True, False), (False, True)]
    assert any("'places' is not proved" in note for note in report.notes)
    assert "undecided" in (tmp_path / "b" / "report.txt").read_text()
