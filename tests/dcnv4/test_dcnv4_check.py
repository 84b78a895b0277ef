"""`check`, `prepare` and `predict` on networks with DCNv4: the operator on the GPU, what surrounds it as always."""

from __future__ import annotations

import onnx
import pytest

import orinport
from dcnv4.networks import Guise, Writer
from orinport.dcnv4.portable import portable_proto
from orinport.rules.finding import Verdict

TARGET = "orin-agx-64gb/jp6.2"


@pytest.fixture(scope="module")
def network():
    return Writer(Guise(batch=1)).network()


def test_check_names_both_ways(network):
    report = orinport.check(network, target=TARGET)
    rows = [row for row in report.layers if row.layer.nodes[0].endswith("DCNv4")]
    assert [row.verdict for row in rows] == [Verdict.GPU, Verdict.GPU]
    finding = next(finding for finding in report.findings if finding.code == "DLA090")
    assert "orinport dcnv4 plugin build" in finding.help
    assert "orinport dcnv4 convert --to portable" in finding.help
    assert report.count(Verdict.BLOCKED) == 0


def test_shapes_behind_the_operator_are_known(network):
    report = orinport.check(network, target=TARGET)
    assert all(tensor.shape is not None for row in report.layers for tensor in row.layer.outputs)


def test_the_portable_form_needs_no_plugin(network):
    report = orinport.check(portable_proto(network), target=TARGET)
    assert "DLA090" not in {finding.code for finding in report.findings}
    assert {"GRID_SAMPLE"} <= {row.layer.kind.value for row in report.layers}
    assert report.count(Verdict.BLOCKED) == 0


def test_prepare_takes_the_projections_to_the_dla_and_proves_it(network, tmp_path):
    """The linear layers around the operators become convolutions; the whole is compared through the portable form."""
    path = tmp_path / "network.onnx"
    path.write_bytes(network.SerializeToString())
    report = orinport.prepare(path, target=TARGET, output=tmp_path / "bundle")
    assert report.proof is not None
    assert report.proof.equal
    assert report.log.counts()["matmul-to-conv"] == 4
    assert report.after.count(Verdict.GPU) == 2
    assert report.after.count(Verdict.UNKNOWN) == 0
    prepared = onnx.ModelProto.FromString((tmp_path / "bundle" / "model.onnx").read_bytes())
    assert sum(node.op_type == "DCNv4_Plugin" for node in prepared.graph.node) == 2


def test_verify_runs_both_forms(network):
    report = orinport.verify(network, portable_proto(network), cases=1)
    assert report.equal
