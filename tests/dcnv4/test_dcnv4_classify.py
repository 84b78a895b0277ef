"""`orinport classify`, on networks whose answers are known, and on FlashInternImage."""

from __future__ import annotations

import csv
import json

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from dcnv4.networks import Guise, Writer, changed, depthwise
from orinport.cli import main
from orinport.dcnv4.classifier import Classifier, Labels, imagenet_labels, read_labels, true_class
from orinport.dcnv4.images import normalise
from orinport.errors import OrinportError
from orinport.pictures import Picture

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'orinport[image]'")


def colour_network(classes=3, *, batch=1, size=16, shift=0.0, dtype=onnx.TensorProto.FLOAT, metadata=(), scale=10):
    """Class k is the mean of channel k times `scale`, plus `shift`: a red picture is class 0, a green one class 1."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    weights = np.zeros((3, classes), kind)
    weights[np.arange(3), np.arange(3)] = scale
    nodes = [
        onnx.helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        onnx.helper.make_node("Flatten", ["mean"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["product"]),
        onnx.helper.make_node("Add", ["product", "b"], ["logits"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "colours",
        [onnx.helper.make_tensor_value_info("image", dtype, [batch, 3, size, size])],
        [onnx.helper.make_tensor_value_info("logits", dtype, [batch, classes])],
        [
            onnx.numpy_helper.from_array(weights, "w"),
            onnx.numpy_helper.from_array(np.full(classes, shift, kind), "b"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    for key, value in metadata:
        model.metadata_props.add(key=key, value=value)
    return model


@pytest.fixture
def colours(tmp_path):
    """A network, a folder of pictures by class, and labels."""
    path = tmp_path / "colours.onnx"
    path.write_bytes(colour_network().SerializeToString())
    for index, name in enumerate(("red", "green", "blue")):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for number in range(3):
            pixels = np.full((20 + number, 30, 3), 40, np.uint8)
            pixels[..., index] = 220
            Image.fromarray(pixels).save(folder / f"{number}.png")
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    return tmp_path


def run(capsys, *arguments):
    status = main(["classify", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_top_classes_with_names(colours, capsys):
    status, out, _ = run(
        capsys,
        colours / "colours.onnx",
        colours / "pictures/green/0.png",
        "--labels",
        colours / "labels.txt",
        "--top",
        2,
    )
    assert status == 0
    lines = out.splitlines()
    assert lines[0].endswith("green/0.png")
    assert lines[1].split()[1:] == ["1", "green"]
    assert len(lines) == 3


@pytest.mark.parametrize("shift", [-1000.0, 0.0, 1000.0])
def test_logits_of_any_sign(tmp_path, shift):
    """All logits negative: the largest still wins, and probabilities add to one."""
    path = tmp_path / "n.onnx"
    path.write_bytes(colour_network(shift=shift).SerializeToString())
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[..., 2] = 255
    (guesses,) = Classifier(path).classify([Picture(pixels)])
    assert [guess.index for guess in guesses] == [2, 1, 0] or guesses[0].index == 2
    assert sum(guess.probability for guess in guesses) == pytest.approx(1)


@pytest.mark.parametrize("batch", [1, 2, 4, "batch"])
@pytest.mark.parametrize("dtype", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
def test_batches_and_types(tmp_path, batch, dtype):
    """Five pictures through networks of any batch, in order."""
    path = tmp_path / "n.onnx"
    path.write_bytes(colour_network(batch=batch, dtype=dtype).SerializeToString())
    pictures = []
    for index in (0, 1, 2, 1, 0):
        pixels = np.full((16, 16, 3), 30, np.uint8)
        pixels[..., index] = 250
        pictures.append(Picture(pixels))
    found = Classifier(path).classify(pictures, top=1)
    assert [guess.index for (guess,) in found] == [0, 1, 2, 1, 0]


def test_folder_csv_and_json(colours, capsys):
    table = colours / "out.csv"
    status, out, _ = run(
        capsys, colours / "colours.onnx", colours / "pictures", "--csv", table, "--format", "json", "--top", 1
    )
    assert status == 0
    document = json.loads(out)
    assert document["schema_version"] == 1
    assert [row["classes"][0]["index"] for row in document["pictures"]] == [2] * 3 + [1] * 3 + [0] * 3
    rows = list(csv.DictReader(table.open()))
    assert [row["class"] for row in rows] == ["2"] * 3 + ["1"] * 3 + ["0"] * 3
    assert rows[0]["name"] == "class 2"


def ending(*nodes, opset=17, shape=(1, 3)):
    """The network of colours with more behind its logits, which are small enough for all classes to count."""
    model = colour_network(scale=1)
    for number, (kind, attributes) in enumerate(nodes):
        source = "logits" if number == 0 else f"t{number}"
        constants = [attributes.pop("constant")] if "constant" in attributes else []
        for index, each in enumerate(constants):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(each, np.int64), f"c{number}_{index}"))
        names = [source, *(f"c{number}_{index}" for index in range(len(constants)))]
        model.graph.node.append(onnx.helper.make_node(kind, names, [f"t{number + 1}"], **attributes))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(f"t{len(nodes)}", onnx.TensorProto.FLOAT, shape))
    model.opset_import[0].version = opset
    return model


@pytest.mark.parametrize(
    ("nodes", "opset", "shape", "output"),
    [
        ([("Softmax", {})], 17, (1, 3), "softmax"),
        ([("Softmax", {"axis": 1}), ("Identity", {})], 17, (1, 3), "softmax"),
        ([("Softmax", {})], 11, (1, 3), "softmax"),
        (
            [("Reshape", {"constant": [1, 3, 1, 1]}), ("Softmax", {"axis": 1}), ("Reshape", {"constant": [1, 3]})],
            17,
            (1, 3),
            "softmax",
        ),
        ([("Reshape", {"constant": [1, 3, 1, 1]}), ("Softmax", {})], 11, (1, 3, 1, 1), "softmax"),
        ([("Sigmoid", {})], 17, (1, 3), "sigmoid"),
        ([("LogSoftmax", {})], 17, (1, 3), "logits"),
        ([("Softmax", {"axis": 0})], 17, (1, 3), "logits"),
        ([("Softmax", {}), ("Neg", {}), ("Neg", {})], 17, (1, 3), "logits"),
        ([("Identity", {})], 17, (1, 3), "logits"),
    ],
)
def test_the_output_is_called_what_it_is(colours, capsys, nodes, opset, shape, output):
    """Probabilities are those of the network where it gives them; nothing is called a logit that is none."""
    path = colours / "ending.onnx"
    path.write_bytes(ending(*nodes, opset=opset, shape=shape).SerializeToString())
    table = colours / "out.csv"
    picture = colours / "pictures/red/0.png"
    status, out, _ = run(capsys, path, picture, "--format", "json", "--csv", table)
    assert status == 0
    document = json.loads(out)
    assert document["output"] == output
    pixels = np.broadcast_to(np.array([220, 40, 40], np.uint8), (16, 16, 3))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.run(None, {"image": normalise(pixels)[None]})
    given = given.reshape(-1)
    classes = sorted(document["pictures"][0]["classes"], key=lambda each: each["index"])
    rows = sorted(csv.DictReader(table.open()), key=lambda each: int(each["class"]))
    if output == "logits":
        np.testing.assert_allclose([each["logit"] for each in classes], given, rtol=1e-4)
        np.testing.assert_allclose([float(each["logit"]) for each in rows], given, rtol=1e-4)
        assert sum(each["probability"] for each in classes) == pytest.approx(1)
        return
    assert [each["logit"] for each in classes] == [None] * 3
    assert [each["logit"] for each in rows] == [""] * 3
    np.testing.assert_allclose([each["probability"] for each in classes], given, rtol=1e-4)
    np.testing.assert_allclose([float(each["probability"]) for each in rows], given, rtol=1e-4)
    status, out, _ = run(capsys, path, picture, "--top", 1)
    assert out.splitlines()[1].split()[0] == f"{given[0]:.2%}"


def test_accuracy(colours, capsys):
    Image.fromarray(np.full((20, 20, 3), (220, 0, 0), np.uint8)).save(colours / "pictures/blue/wrong.png")
    arguments = [colours / "colours.onnx", colours / "pictures", "--accuracy", "--labels", colours / "labels.txt"]
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "10 pictures, top-1 90.00%, top-5 100.00%" in out
    status, out, _ = run(capsys, *arguments, "--format", "json")
    assert json.loads(out)["accuracy"] == {"pictures": 10, "top1": 0.9, "top5": 1.0}
    for name in ("red", "green", "blue"):
        for picture in list((colours / "pictures" / name).iterdir()):
            if (name, picture.name) != ("blue", "wrong.png"):
                picture.unlink()
    status, out, _ = run(capsys, *arguments)
    assert out.startswith("1 picture, top-1 0.00%")


def test_a_folder_without_a_class_is_said_before_the_work(colours, capsys, monkeypatch):
    (colours / "pictures/red").rename(colours / "pictures/crimson")
    monkeypatch.setattr(Classifier, "classify", lambda *_, **__: pytest.fail("the work had begun"))
    arguments = [colours / "colours.onnx", colours / "pictures", "--accuracy", "--labels", colours / "labels.txt"]
    (colours / "pictures/one more").mkdir()
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert "names no class" in err


def test_unreadable_pictures_are_named_and_the_rest_goes_on(colours, capsys):
    (colours / "pictures/red/broken.png").write_bytes(b"nothing")
    status, out, _ = run(capsys, colours / "colours.onnx", colours / "pictures")
    assert status == 1
    assert "broken.png' is no picture" in out
    assert out.count("class 0") == 9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["colours.onnx", "pictures", "--top", "0"], "0 classes show nothing"),
        (["colours.onnx", "pictures/red/0.png", "--accuracy"], "--accuracy needs exactly one folder"),
        (["colours.onnx", "pictures", "--labels", "missing.txt"], "cannot be read"),
        (["colours.onnx", "pictures", "--labels", "short.txt"], "1 labels for 3 classes"),
        (["colours.onnx", "pictures", "--size", "99"], "takes 16 x 16 pixels, not 99 x 99"),
        (["colours.onnx", "empty"], "no JPEG or PNG file"),
        (["missing.onnx", "pictures"], "missing.onnx"),
        (["labels.txt", "pictures"], "labels.txt"),
        (["colours.onnx", "wrong", "--accuracy"], "names no class"),
    ],
)
def test_usage_errors(colours, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(colours)
    (colours / "short.txt").write_text("one\n")
    (colours / "empty").mkdir()
    (colours / "wrong/unknown").mkdir(parents=True)
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(colours / "wrong/unknown/a.png")
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("change", ["inputs", "channels", "outputs", "map"])
def test_networks_that_are_no_classifiers(tmp_path, change):
    model = colour_network()
    if change == "inputs":
        model.graph.input.append(onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, [1]))
    elif change == "channels":
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.zeros((4, 3), np.float32), "w"))
    elif change == "outputs":
        model.graph.output.append(onnx.helper.make_tensor_value_info("flat", onnx.TensorProto.FLOAT, [1, 3]))
    else:
        del model.graph.node[1:]
        model.graph.output[0].CopyFrom(
            onnx.helper.make_tensor_value_info("image2", onnx.TensorProto.FLOAT, [1, 3, 16, 16])
        )
        model.graph.node.append(onnx.helper.make_node("Relu", ["image"], ["image2"]))
    path = tmp_path / "n.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(OrinportError, match="is no classifier"):
        Classifier(path)


def test_nan_is_no_answer(tmp_path):
    path = tmp_path / "n.onnx"
    path.write_bytes(colour_network(shift=float("nan")).SerializeToString())
    with pytest.raises(OrinportError, match="gives NaN"):
        Classifier(path).classify([Picture(np.zeros((16, 16, 3), np.uint8))])


def test_random_weights_are_said(colours, capsys):
    path = colours / "random.onnx"
    path.write_bytes(colour_network(metadata=[("orinport.seed", "7")]).SerializeToString())
    _, out, _ = run(capsys, path, colours / "pictures/red/0.png")
    assert out.startswith("This network has random weights of seed 7: what it says means nothing.\n")


def test_imagenet_labels():
    labels = imagenet_labels()
    assert (len(labels.names), len(labels.synsets)) == (1000, 1000)
    assert list(labels.synsets) == sorted(set(labels.synsets))
    assert (labels.synsets[0], labels.names[0]) == ("n01440764", "tench")
    assert labels.names[281] == "tabby"
    assert labels.names[999] == "toilet tissue"


def test_true_classes(tmp_path):
    labels = Labels(("cat", "dog", "dog"), ("n1", "n2", "n3"))
    for folder, expected in (("n2", 1), ("2", 2), ("cat", 0)):
        assert true_class(tmp_path / folder / "a.png", tmp_path, labels, 3) == expected
    for name in ("x", "y", "z"):
        (tmp_path / name).mkdir()
    assert true_class(tmp_path / "y" / "a.png", tmp_path, None, 3) == 1
    for name in ("dog", "nothing"):
        with pytest.raises(OrinportError, match="names no class"):
            true_class(tmp_path / name / "a.png", tmp_path, labels, 3)
    with pytest.raises(OrinportError, match="names no class"):
        true_class(tmp_path / "a.png", tmp_path, labels, 3)


def test_labels_file(tmp_path):
    path = tmp_path / "l.txt"
    path.write_text("one\n\n two \n")
    assert read_labels(path).names == ("one", "two")
    path.write_text("\n")
    with pytest.raises(OrinportError, match="are empty"):
        read_labels(path)


@pytest.mark.torch
def test_flash_internimage_end_to_end(torch, tmp_path, capsys):
    """Export with random weights, then classify a photograph with the fused file, as PyTorch does."""
    from orinport.dcnv4.flash_internimage import flash_internimage
    from orinport.dcnv4.images import normalise, resize
    from orinport.pictures import read_picture

    status = main(["dcnv4", "export", "t", "--size", "64", "--fused", "--seed", "5", "-o", str(tmp_path / "t.onnx")])
    out = capsys.readouterr().out
    assert status == 0
    assert "flash-internimage-t, random weights of seed 5" in out
    assert "fused 30 of 30" in out
    y, x = np.mgrid[0:90, 0:120]
    photo = np.stack([x * 2, y * 2, 255 - x], -1).astype(np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.jpg")
    status, out, _ = run(capsys, tmp_path / "t.onnx", tmp_path / "photo.jpg", "--format", "json")
    assert status == 0
    document = json.loads(out)
    assert document["weights"] == "random weights of seed 5"
    pixels = resize(read_picture(tmp_path / "photo.jpg").pixels, (64, 64), "crop")
    with torch.no_grad():
        logits = flash_internimage("t", seed=5)(torch.from_numpy(normalise(pixels))[None])[0]
    expected = logits.topk(5)
    found = document["pictures"][0]["classes"]
    assert [each["index"] for each in found] == expected.indices.tolist()
    np.testing.assert_allclose([each["logit"] for each in found], expected.values.numpy(), rtol=1e-3)
    assert found[0]["name"] == imagenet_labels().names[found[0]["index"]]


def test_convert_and_fuse_on_the_command_line(tmp_path, capsys):
    """A small network of two operators: fuse, convert there and back, refuse to overwrite."""
    path = tmp_path / "n.onnx"
    path.write_bytes(Writer(Guise(batch="batch")).network().SerializeToString())
    assert main(["dcnv4", "fuse", str(path)]) == 0
    out = capsys.readouterr().out
    assert "fused 2 of 2 DCNv4 operators\n" in out
    fused = tmp_path / "n-fused.onnx"
    assert main(["dcnv4", "fuse", str(fused), "-o", str(tmp_path / "x.onnx")]) == 0
    assert "no DCNv4 operator that is not fused already" in capsys.readouterr().out
    assert not (tmp_path / "x.onnx").exists()
    assert main(["dcnv4", "convert", str(fused), "--to", "portable"]) == 0
    assert "2 DCNv4 operators in portable form" in capsys.readouterr().out
    portable = tmp_path / "n-fused-portable.onnx"
    assert {entry.domain for entry in onnx.ModelProto.FromString(portable.read_bytes()).opset_import} == {""}
    assert main(["dcnv4", "convert", str(portable), "--to", "plugin", "-o", str(tmp_path / "back.onnx")]) == 0
    back = ir.from_proto(onnx.ModelProto.FromString((tmp_path / "back.onnx").read_bytes()))
    assert [node.op_type for node in back.graph].count("DCNv4FuseOffset_Plugin") == 2
    assert main(["dcnv4", "fuse", str(tmp_path / "back.onnx"), "--reverse", "-o", str(tmp_path / "apart.onnx")]) == 0
    assert "taken apart 2 of 2" in capsys.readouterr().out
    for arguments, words in (
        (["fuse", str(path)], "exists"),
        (["fuse", str(path), "-o", str(path), "--force"], "is the input file"),
        (["convert", str(path), "--to", "portable", "-o", str(tmp_path)], "is not a file"),
        (["convert", str(path), "--to", "portable", "-o", str(tmp_path / "no/x.onnx")], "does not exist"),
        (["fuse", str(tmp_path / "missing.onnx")], "missing.onnx"),
    ):
        assert main(["dcnv4", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_nothing_fused_is_no_success(tmp_path, capsys):
    path = tmp_path / "n.onnx"
    path.write_bytes(changed(depthwise).SerializeToString())
    assert main(["dcnv4", "fuse", str(path)]) == 1
    out = capsys.readouterr().out
    assert "fused 0 of 1 DCNv4 operators" in out
    assert "1 not, e.g. dcn: its offset branch has a depthwise convolution in front" in out
    assert not (tmp_path / "n-fused.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet"], "There is no model 'resnet'"),
        (["t", "--batch", "none"], "'none' is no batch"),
        (["t", "--size", "8"], "Size 8 is too small"),
        (["t", "--opset", "3"], "Opset 3 cannot be written"),
        (["t", "--checkpoint", "missing.pth"], "There is no checkpoint"),
    ],
)
@pytest.mark.torch
def test_export_usage_errors(torch, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["dcnv4", "export", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert not list(tmp_path.iterdir())


def test_fuse_says_what_there_is_not(tmp_path, capsys):
    """Neither a network in portable form nor one without the operator has anything that is fused already."""
    path = tmp_path / "n.onnx"
    path.write_bytes(Writer(Guise(batch="batch")).network().SerializeToString())
    assert main(["dcnv4", "convert", str(path), "--to", "portable"]) == 0
    capsys.readouterr()
    assert main(["dcnv4", "fuse", str(tmp_path / "n-portable.onnx"), "-o", str(tmp_path / "x.onnx")]) == 1
    assert "convert MODEL --to plugin" in capsys.readouterr().out
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize("size", [-5, 0, 11586, 10**9])
def test_sizes_that_no_picture_has(tmp_path, size):
    """11585 x 11585 pixels would still be taken."""
    (tmp_path / "n.onnx").write_bytes(colour_network(size="side").SerializeToString())
    with pytest.raises(OrinportError, match="pixels cannot be made"):
        Classifier(tmp_path / "n.onnx", size=size)


def test_a_network_for_huge_pictures(tmp_path):
    (tmp_path / "n.onnx").write_bytes(colour_network(size=11586).SerializeToString())
    with pytest.raises(OrinportError, match="11586 x 11586 pixels cannot be made"):
        Classifier(tmp_path / "n.onnx")


@pytest.mark.parametrize("batch", [1, 4, "batch", None])
@pytest.mark.parametrize(("size", "expected"), [(None, 224), (40, 40)])
def test_height_and_width_that_the_network_leaves_open(colours, tmp_path, batch, size, expected):
    (tmp_path / "open.onnx").write_bytes(colour_network(size="side", batch=batch).SerializeToString())
    classifier = Classifier(tmp_path / "open.onnx", size=size)
    assert classifier.size == (expected, expected)
    pictures = [
        Picture(np.eye(3, dtype=np.uint8)[channel] * np.full((50, 60, 3), 200, np.uint8)) for channel in (0, 1, 2)
    ]
    assert [guesses[0].index for guesses in classifier.classify(pictures, top=1)] == [0, 1, 2]
