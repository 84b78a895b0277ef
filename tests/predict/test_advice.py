"""Every piece of advice: a network that it speaks on, what it says, and the networks that it is silent on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.place import place
from orinport.predict.advice import all_advice
from orinport.predict.network import predict_network
from orinport.predict.prediction import Prediction
from orinport.rules.finding import Finding, Verdict
from orinport.targets.load import load_target
from orinport.targets.target import Precision

TARGET = load_target("orin-agx-64gb/jp6.2", power_mode="MAXN")


def conv(index: int, source: Tensor, kernels: int, size: int = 3, groups: int = 1) -> Layer:
    batch, channels, height, width = source.shape or (0, 0, 0, 0)
    return Layer(
        index,
        f"conv{index}",
        LayerKind.CONVOLUTION,
        (source,),
        (Tensor(f"t{index}", (batch, kernels, height, width), DType.FP32),),
        (f"node{index}",),
        {
            "kernel": (size, size),
            "stride": (1, 1),
            "groups": groups,
            "weight_values": channels // groups * kernels * size * size,
        },
    )


def image(channels: int, height: int, width: int) -> Tensor:
    return Tensor("x", (1, channels, height, width), DType.FP32)


def chain(source: Tensor, number: int, kernels: int, size: int = 3) -> list[Layer]:
    layers: list[Layer] = []
    for index in range(number):
        layers.append(conv(index, layers[-1].outputs[0] if layers else source, kernels, size))
    return layers


def predicted(
    layers: list[Layer], precision: Precision = Precision.INT8, *, linear_io: bool = False, gpu: tuple[int, ...] = ()
) -> Prediction:
    placement = place(
        layers,
        {each.index: Verdict.GPU if each.index in gpu else Verdict.DLA for each in layers},
        inputs=[layers[0].inputs[0]],
        outputs=[layers[-1].outputs[0]],
        target=TARGET,
        precision=precision,
    )
    return predict_network("net", placement, TARGET, precision, linear_io=linear_io)


def softmax() -> list[Layer]:
    first = conv(0, image(256, 64, 64), 256)
    result = replace(first.outputs[0], name="t1")
    return [first, Layer(1, "softmax", LayerKind.SOFTMAX, (first.outputs[0],), (result,), ("softmax",), {})]


CASES = {
    "PERF001": lambda: predicted(chain(image(1024, 1, 1), 8, 1024, 1)),
    "PERF002": lambda: predicted(chain(image(256, 64, 64), 2, 256), Precision.FP16),
    "PERF003": lambda: predicted(chain(image(256, 32, 32), 5, 256), gpu=(1, 3)),
    "PERF004": lambda: predicted(chain(image(256, 64, 64), 1, 256), linear_io=True),
    "PERF005": lambda: predicted([conv(0, image(8, 256, 256), 64, 7)]),
    "PERF006": lambda: predicted([conv(0, image(256, 64, 64), 256, 3, groups=256)]),
    "PERF007": lambda: predicted(chain(image(64, 256, 256), 3, 64, 1)),
    "PERF008": lambda: predicted(softmax()),
    "PERF009": lambda: predicted(chain(image(64, 8, 8), 2, 64)),
    "PERF010": lambda: predicted(chain(image(256, 96, 160), 4, 256)),
}
SAYS = {
    "PERF001": "8 layers read 8.4 MB of weights for few positions",
    "PERF002": "2 FP16 convolutions on Rubik",
    "PERF003": "4 transitions and 3 DLA regions cost",
    "PERF004": "Linear inputs and outputs cost about",
    "PERF005": "conv0 fills 8 of 64 values of an atomic operation and takes",
    "PERF006": "1 grouped convolution with 100 % of the multiplications",
    "PERF007": "3 layers waiting for memory",
    "PERF008": "The time of 1 layer is not known (no measurement of SOFTMAX",
    "PERF009": "Launching takes 65 us",
    "PERF010": "4 convolutions read their weights up to",
}


def finding(code: str, prediction: Prediction) -> Finding | None:
    return next((each for each in prediction.findings if each.code == code), None)


def test_every_advice_has_its_case() -> None:
    assert [advice.code for advice in all_advice()] == sorted(CASES) == sorted(SAYS)


@pytest.mark.parametrize("code", sorted(CASES))
def test_it_speaks_where_it_should(code: str) -> None:
    found = finding(code, CASES[code]())
    assert found is not None
    assert SAYS[code] in found.message
    assert found.help
    assert found.verdict is None


def test_a_network_that_multiplies_all_the_time_needs_no_advice() -> None:
    prediction = predicted(chain(image(128, 64, 128), 12, 128))
    busy = [each for each in prediction.layers if each.bound.value == "mac"]
    assert len(busy) == 12
    assert prediction.findings == ()


def test_an_image_fills_an_atom_with_the_row_of_a_kernel() -> None:
    prediction = predicted([conv(0, image(3, 512, 512), 64, 7)])
    found = finding("PERF005", prediction)
    assert found is not None
    assert (
        "conv0 fills 28 of 64 values of an atomic operation with the rows of its kernel over an image" in found.message
    )
    assert "dla_hwc4" not in found.help
    assert finding("PERF005", predicted([conv(0, image(3, 512, 512), 64, 9)])) is None


def test_shares_add_up_to_what_the_engines_do() -> None:
    """The share of a finding is of all regions' time, also where regions overlap."""
    prediction = CASES["PERF003"]()
    message = finding("PERF003", prediction)
    assert message is not None
    launches = sum(region.launch_us + region.reformat_us for region in prediction.regions if region.device == "dla")
    assert f"{100 * launches / prediction.work_us:.0f} %" in message.message
    assert any(region.reformat_us for region in prediction.regions), "what goes to the GPU and back is converted"
