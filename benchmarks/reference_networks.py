"""The six networks of NVIDIA's DLA reference table and YOLOv5s, rebuilt from their published architectures.

`python benchmarks/reference_networks.py FOLDER` writes them as ONNX with random weights. What the table's
notes leave out is left out here too: NMS and TopK at the end. Sources of the architectures:

- ResNet-50 v1.5 and ResNet-34: He et al. 2015; stride in the 3x3 convolution of a bottleneck (v1.5)
- RetinaNet: Lin et al. 2017; feature pyramid of 256 channels, P3 to P7, heads of four 3x3 convolutions with 9 anchors
- ResNeXt-50 32x4d: Xie et al. 2016; 264 OpenImages classes (MLPerf inference, retinanet)
- SSD-ResNet-34 1200x1200: MLPerf inference, ssd-resnet34; 81 COCO classes, stage 3 with stride 1
- SSD-MobileNetV1 300x300: Howard et al. 2017, Liu et al. 2016; 91 COCO classes
- YOLOv5s 672x672 (release 6): stem of 6x6 with stride 2, C3 blocks of 1, 2, 3, 1 bottlenecks, SPPF, SiLU; 80 COCO
  classes and 3 anchors; cut behind the last convolutions, as in cuDLA-samples
"""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Feature(NamedTuple):
    """A tensor of the network being built."""

    name: str
    channels: int
    height: int
    width: int


class Network:
    """Builds an ONNX graph of convolutions, batch normalization folded in."""

    def __init__(self, name: str, batch: int, height: int, width: int) -> None:
        self.name = name
        self.batch = batch
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.outputs: list[Feature] = []
        self.image = Feature("image", 3, height, width)
        self._rng = np.random.default_rng(0)
        self._made: set[str] = set()

    def _node(self, op: str, inputs: list[str], feature: tuple[int, int, int], **attributes: object) -> Feature:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return Feature(name, *feature)

    def conv(
        self,
        x: Feature,
        kernels: int,
        size: int,
        stride: int = 1,
        *,
        groups: int = 1,
        relu: bool = False,
        pad: bool = True,
        shared: str = "",
    ) -> Feature:
        """A convolution with bias, padded to keep the size (divided by the stride, rounded up).

        Convolutions with the same `shared` name have the same weights.
        """
        name = shared or f"w{len(self.nodes)}"
        if name not in self._made:
            self._made.add(name)
            weight = self._rng.standard_normal((kernels, x.channels // groups, size, size), dtype=np.float32)
            self.weights.append(numpy_helper.from_array(weight * np.float32((2 / (weight[0].size)) ** 0.5), name))
            self.weights.append(numpy_helper.from_array(np.zeros(kernels, np.float32), name + "b"))
        if pad:
            height, width = ceil(x.height / stride), ceil(x.width / stride)
        else:
            height, width = (x.height - size) // stride + 1, (x.width - size) // stride + 1
        rows = max(0, (height - 1) * stride + size - x.height) if pad else 0
        columns = max(0, (width - 1) * stride + size - x.width) if pad else 0
        pads = [rows // 2, columns // 2, rows - rows // 2, columns - columns // 2]
        y = self._node(
            "Conv",
            [x.name, name, name + "b"],
            (kernels, height, width),
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=pads,
            group=groups,
        )
        return self.relu(y) if relu else y

    def relu(self, x: Feature) -> Feature:
        """ReLU."""
        return self._node("Relu", [x.name], x[1:])

    def add(self, x: Feature, y: Feature) -> Feature:
        """Element-wise sum."""
        return self._node("Add", [x.name, y.name], x[1:])

    def max_pool(self, x: Feature) -> Feature:
        """3x3 with stride 2."""
        shape = (x.channels, ceil(x.height / 2), ceil(x.width / 2))
        rows, columns = (shape[1] - 1) * 2 + 3 - x.height, (shape[2] - 1) * 2 + 3 - x.width
        pads = [rows // 2, columns // 2, rows - rows // 2, columns - columns // 2]
        return self._node("MaxPool", [x.name], shape, kernel_shape=[3, 3], strides=[2, 2], pads=pads)

    def average(self, x: Feature) -> Feature:
        """Mean over the whole map."""
        return self._node("AveragePool", [x.name], (x.channels, 1, 1), kernel_shape=[x.height, x.width])

    def upsample(self, x: Feature) -> Feature:
        """Nearest, by 2."""
        name = f"s{len(self.nodes)}"
        self.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), name))
        return self._node(
            "Resize",
            [x.name, "", name],
            (x.channels, 2 * x.height, 2 * x.width),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def silu(self, x: Feature) -> Feature:
        """x * sigmoid(x), as PyTorch exports it."""
        gate = self._node("Sigmoid", [x.name], x[1:])
        return self._node("Mul", [x.name, gate.name], x[1:])

    def concat(self, *parts: Feature) -> Feature:
        """Along the channels."""
        channels = sum(part.channels for part in parts)
        return self._node("Concat", [part.name for part in parts], (channels, *parts[0][2:]), axis=1)

    def pool_same(self, x: Feature, size: int) -> Feature:
        """Maximum over a window, with stride 1 and the size kept."""
        return self._node("MaxPool", [x.name], x[1:], kernel_shape=[size, size], strides=[1, 1], pads=[size // 2] * 4)

    def model(self) -> onnx.ModelProto:
        """The finished model, opset 17."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [self.batch, *self.image[1:]])],
            [
                helper.make_tensor_value_info(f.name, TensorProto.FLOAT, [self.batch, f.channels, f.height, f.width])
                for f in self.outputs
            ],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet34(net: Network, stages: tuple[tuple[int, int, int], ...]) -> list[Feature]:
    """Stem and basic blocks; gives the last feature of each stage. A stage is (channels, blocks, stride)."""
    x = net.max_pool(net.conv(net.image, 64, 7, 2, relu=True))
    features = []
    for channels, blocks, first in stages:
        for block in range(blocks):
            stride = first if block == 0 else 1
            shortcut = x if stride == 1 and x.channels == channels else net.conv(x, channels, 1, stride)
            y = net.conv(net.conv(x, channels, 3, stride, relu=True), channels, 3)
            x = net.relu(net.add(y, shortcut))
        features.append(x)
    return features


def resnet50(net: Network, groups: int = 1) -> list[Feature]:
    """Stem and bottleneck blocks; with 32 groups the blocks of ResNeXt-50 32x4d."""
    x = net.max_pool(net.conv(net.image, 64, 7, 2, relu=True))
    features = []
    for channels, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        middle = channels if groups == 1 else 2 * channels
        for block in range(blocks):
            stride = first if block == 0 else 1
            shortcut = net.conv(x, 4 * channels, 1, stride) if block == 0 else x
            y = net.conv(net.conv(x, middle, 1, relu=True), middle, 3, stride, groups=groups, relu=True)
            x = net.relu(net.add(net.conv(y, 4 * channels, 1), shortcut))
        features.append(x)
    return features


def retinanet(net: Network, features: list[Feature], classes: int) -> None:
    """Feature pyramid and both heads on five levels."""
    finer = None
    levels = []
    for feature in reversed(features[1:]):
        lateral = net.conv(feature, 256, 1)
        finer = lateral if finer is None else net.add(lateral, net.upsample(finer))
        levels.insert(0, net.conv(finer, 256, 3))
    levels.append(net.conv(levels[-1], 256, 3, 2))
    levels.append(net.conv(net.relu(levels[-1]), 256, 3, 2))
    for level in levels:
        for outputs in (9 * classes, 9 * 4):
            x = level
            for number in range(4):
                x = net.conv(x, 256, 3, relu=True, shared=f"head{outputs}_{number}")
            net.outputs.append(net.conv(x, outputs, 3, shared=f"head{outputs}_last"))


def ssd(net: Network, features: list[Feature], boxes: tuple[int, ...], classes: int, size: int, stride: int) -> None:
    """Box and class convolutions on every feature."""
    for feature, count in zip(features, boxes, strict=True):
        for outputs in (4 * count, classes * count):
            net.outputs.append(net.conv(feature, outputs, size, stride))


def build_resnet50() -> Network:
    """ResNet-50 v1.5, 224x224, batch 2, without TopK."""
    net = Network("resnet50", 2, 224, 224)
    net.outputs.append(net.conv(net.average(resnet50(net)[-1]), 1000, 1))
    return net


def build_resnet34() -> Network:
    """The backbone alone, 1280x768."""
    net = Network("resnet34", 1, 768, 1280)
    net.outputs.append(resnet34(net, ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)))[-1])
    return net


def build_retinanet_resnet34() -> Network:
    """RetinaNet on ResNet-34, 1280x768, the three Waymo classes."""
    net = Network("retinanet_resnet34", 1, 768, 1280)
    retinanet(net, resnet34(net, ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))), 3)
    return net


def build_retinanet_resnext50() -> Network:
    """RetinaNet on ResNeXt-50 32x4d, 800x800, 264 classes."""
    net = Network("retinanet_resnext50", 1, 800, 800)
    retinanet(net, resnet50(net, 32), 264)
    return net


def build_ssd_resnet34() -> Network:
    """SSD on ResNet-34, 1200x1200."""
    net = Network("ssd_resnet34", 1, 1200, 1200)
    x = resnet34(net, ((64, 3, 1), (128, 4, 2), (256, 6, 1)))[-1]
    features = [x]
    for middle, outputs, stride in ((256, 512, 2), (256, 512, 2), (128, 256, 2), (128, 256, 2), (128, 256, 1)):
        x = net.conv(x, middle, 1, relu=True)
        x = net.conv(x, outputs, 3, stride, relu=True, pad=stride == 2)
        features.append(x)
    ssd(net, features, (4, 6, 6, 6, 4, 4), 81, 3, 3)
    return net


def build_ssd_mobilenet() -> Network:
    """SSD on MobileNetV1, 300x300, batch 2."""
    net = Network("ssd_mobilenet", 2, 300, 300)
    x = net.conv(net.image, 32, 3, 2, relu=True)
    features = []
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for number, (channels, stride) in enumerate(blocks):
        x = net.conv(net.conv(x, x.channels, 3, stride, groups=x.channels, relu=True), channels, 1, relu=True)
        if number in (10, 12):
            features.append(x)
    for middle, outputs in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = net.conv(net.conv(x, middle, 1, relu=True), outputs, 3, 2, relu=True)
        features.append(x)
    ssd(net, features, (3, 6, 6, 6, 6, 6), 91, 1, 1)
    return net


def build_yolov5s() -> Network:
    """YOLOv5s, 672x672, up to the three last convolutions."""
    net = Network("yolov5s", 1, 672, 672)

    def conv(x: Feature, kernels: int, size: int = 1, stride: int = 1) -> Feature:
        return net.silu(net.conv(x, kernels, size, stride))

    def c3(x: Feature, kernels: int, bottlenecks: int, *, shortcut: bool = True) -> Feature:
        y, beside = conv(x, kernels // 2), conv(x, kernels // 2)
        for _ in range(bottlenecks):
            inner = conv(conv(y, kernels // 2), kernels // 2, 3)
            y = net.add(y, inner) if shortcut else inner
        return conv(net.concat(y, beside), kernels)

    x = c3(conv(conv(net.image, 32, 6, 2), 64, 3, 2), 64, 1)
    eighth = c3(conv(x, 128, 3, 2), 128, 2)
    sixteenth = c3(conv(eighth, 256, 3, 2), 256, 3)
    pooled = [conv(c3(conv(sixteenth, 512, 3, 2), 512, 1), 256)]
    for _ in range(3):
        pooled.append(net.pool_same(pooled[-1], 5))
    top = conv(conv(net.concat(*pooled), 512), 256)
    middle = conv(c3(net.concat(net.upsample(top), sixteenth), 256, 1, shortcut=False), 128)
    fine = c3(net.concat(net.upsample(middle), eighth), 128, 1, shortcut=False)
    medium = c3(net.concat(conv(fine, 128, 3, 2), middle), 256, 1, shortcut=False)
    coarse = c3(net.concat(conv(medium, 256, 3, 2), top), 512, 1, shortcut=False)
    net.outputs += [net.conv(feature, 255, 1) for feature in (fine, medium, coarse)]
    return net


NETWORKS = {
    "retinanet_resnext50": build_retinanet_resnext50,
    "resnet34": build_resnet34,
    "retinanet_resnet34": build_retinanet_resnet34,
    "ssd_resnet34": build_ssd_resnet34,
    "resnet50": build_resnet50,
    "ssd_mobilenet": build_ssd_mobilenet,
}


HELD_OUT = {"yolov5s": build_yolov5s}
"""Networks that nothing is fitted to."""


def main() -> None:
    """Write all networks into the folder given on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in (NETWORKS | HELD_OUT).items():
        onnx.save(build().model(), folder / f"{name}.onnx")
        print(folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
