"""Text and JSON of `orinport targets`."""

from __future__ import annotations

from orinport.report.json import dumps
from orinport.report.targets import list_document, list_text, target_document, target_text
from orinport.targets import list_targets, load_target


def test_list() -> None:
    text = list_text(list_targets())
    assert "orin-agx-64gb/jp6.2     Jetson AGX Orin 64GB  JetPack 6.1 to 6.2  TensorRT 10.3.0\n" in text
    assert "orin-nx-16gb            MAXN, 25W, 15W, 10W, MAXN_SUPER, 40W\n" in text
    document = list_document(list_targets())
    assert [entry["name"] for entry in document["targets"]] == [target.name for target in list_targets()]
    assert document["schema_version"] == 1


def test_one_target_shows_every_figure_with_its_source() -> None:
    target = load_target("orin-agx-64gb/jp6.0", power_mode="30W")
    text = target_text(target)
    assert text.startswith("orin-agx-64gb/jp6.0: Jetson AGX Orin 64GB with JetPack 6.0\n")
    assert "power mode 30W, chosen" in text
    assert "power mode MAXN\n" in text
    assert (
        "dla_sram_kib                   1024 KiB per core  [documented: NVIDIA/Deep-Learning-Accelerator-SW FAQ]"
        in text
    )
    tables = [target.hardware.figures, *(mode.figures for mode in target.hardware.power_modes)]
    for figures in tables:
        for figure in figures.values():
            assert f"[{figure.confidence.value}: {figure.source}]" in text


def test_document_of_one_target() -> None:
    document = target_document(load_target("xavier-agx"))
    assert document["name"] == "xavier-agx/jp5.1"
    assert document["power_mode"] == "MAXN"
    assert document["stack"]["tensorrt"] == "8.5.2"
    assert document["hardware"]["figures"]["dla_cores"]["value"] == 2
    assert {mode["name"] for mode in document["hardware"]["power_modes"]} == {"MAXN", "30W", "15W", "10W"}
    assert '"unit": "MHz"' in dumps(document)


def test_what_is_not_known_is_said() -> None:
    assert target_document(load_target("orin-agx-64gb/jp6.2"))["stack"]["dla"] == "not known"
    assert "dla             not known" in target_text(load_target("orin-agx-64gb/jp6.2"))
