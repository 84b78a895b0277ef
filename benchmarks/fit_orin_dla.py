"""How well does the prediction of the Orin DLA agree with the published measurements, and what constants fit best?

`python benchmarks/fit_orin_dla.py` refits the constants marked `fitted` in
src/orinport/targets/data/predict/orin-dla.toml to benchmarks/data/orin_dla.toml, prints predicted against
measured for every network, mode and single layer, and cross-validates: each network (and each kind of single layer)
is predicted by constants that were fitted without it. From the same refits follow the standard errors of the constants
(jackknife over networks) and how many left-out figures lie within the band that `predict` states. YOLOv5s, which
nothing is fitted to, comes last. `--write` stores the constants. It measures nothing by itself: its peers are the
published tables.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orinport.model import lower
from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.model.load import load
from orinport.placement.place import place
from orinport.predict.constants import EQUAL, Constants, load_constants
from orinport.predict.fit import fit as least_squares
from orinport.predict.network import predict_network
from orinport.rules.finding import Verdict
from orinport.targets.load import load_target
from orinport.targets.target import Precision
from orinport.toml import read_toml
from reference_networks import HELD_OUT, NETWORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnx import ModelProto

    from orinport.placement.placement import Placement
    from orinport.predict.prediction import Prediction
    from orinport.targets.target import Target

ROOT = Path(__file__).parents[1]
CONSTANTS = ROOT / "src/orinport/targets/data/predict/orin-dla.toml"
DATA = read_toml(Path(__file__).parent / "data/orin_dla.toml")
TARGET = "orin-agx-64gb/jp5.1"
NETWORK_KEYS = ("dram_gbps", "falcon_gap_us")
LAYER_KEYS = {
    Precision.INT8: ("linear_io_us_int8", "reformat_gbps_int8", "rank2_shuffle_us_int8"),
    Precision.FP16: ("linear_io_us_fp16", "reformat_gbps_fp16", "rank2_shuffle_us_fp16", "rubik_fp16_ghz"),
}

Case = tuple[str, str, bool]
"""Network, power mode, sparse weights."""


@cache
def placed(name: str) -> Placement:
    """The network with all layers on the DLA, as the table states."""
    return all_on_dla(NETWORKS[name]().model(), load_target(TARGET))


def all_on_dla(network: ModelProto, target: Target) -> Placement:
    """Every layer on the DLA, in INT8, in its own formats at the edges."""
    model = load(network)
    layers = lower(model, tensorrt=target.stack.tensorrt)
    return place(
        layers,
        {layer.index: Verdict.DLA for layer in layers},
        inputs=model.inputs,
        outputs=model.outputs,
        target=target,
        precision=Precision.INT8,
    )


def held_out() -> tuple[Prediction, float]:
    """The prediction of the network that nothing is fitted to, and its measured us."""
    entry = DATA["held_out"]
    target = load_target(entry["target"])
    placement = all_on_dla(HELD_OUT[entry["network"]]().model(), target)
    return predict_network(entry["network"], placement, target, Precision.INT8), 1e3 * float(entry["ms"])


def cases() -> dict[Case, float]:
    """Images a second of two DLAs by network, mode and sparsity."""
    return {
        (name, mode, kind == "sparse"): float(fps)
        for kind in ("dense", "sparse")
        for name, row in DATA["networks"][kind].items()
        for mode, fps in zip(DATA["networks"]["modes"], row, strict=True)
    }


def network_error(case: Case, fps: float, constants: Constants) -> float:
    """Predicted over measured time, minus 1."""
    name, mode, sparse = case
    target = load_target(TARGET, power_mode=mode)
    prediction = predict_network(name, placed(name), target, Precision.INT8, sparse=sparse, dla=constants)
    return fps / prediction.fps_two_dlas - 1


@cache
def single(row: tuple[object, ...]) -> Placement:
    """One layer with FP32 linear inputs and outputs."""
    kind, channels, kernels, size, stride, height = row[:6]
    assert isinstance(channels, int)
    assert isinstance(kernels, int)
    assert isinstance(size, int)
    assert isinstance(stride, int)
    assert isinstance(height, int)
    out = -(-height // stride)
    layer = Layer(
        0,
        "layer",
        LayerKind.FULLY_CONNECTED if kind == "fc" else LayerKind.CONVOLUTION,
        (Tensor("x", (1, channels, height, height), DType.FP32),),
        (Tensor("y", (1, kernels, out, out), DType.FP32),),
        ("layer",),
        {
            "kernel": (size, size),
            "stride": (stride, stride),
            "groups": channels if kind == "depthwise" else 1,
        },
    )
    return place(
        [layer],
        {0: Verdict.DLA},
        inputs=layer.inputs,
        outputs=layer.outputs,
        target=load_target(TARGET),
        precision=Precision.INT8,
    )


def layer_error(row: tuple[object, ...], precision: Precision, constants: Constants) -> float:
    """Predicted over measured time, minus 1."""
    measured = row[6 if precision is Precision.INT8 else 7]
    assert isinstance(measured, float)
    prediction = predict_network("layer", single(row), load_target(TARGET), precision, linear_io=True, dla=constants)
    return prediction.total_us / measured - 1


def fit(keys: Sequence[str], start: Constants, errors: Callable[[Constants], Sequence[float]]) -> Constants:
    """Constants with `keys` moved so that the mean squared relative error is least."""
    begun = {key: max(start[key], 1e-3) for key in keys}
    return start.with_values(least_squares(begun, lambda values: errors(start.with_values(values))))


def fit_networks(start: Constants, without: str = "") -> Constants:
    """Fit to the table of networks, one of them left out if asked."""
    chosen = [(case, fps) for case, fps in cases().items() if case[0] != without]
    return fit(NETWORK_KEYS, start, lambda c: [network_error(case, fps, c) for case, fps in chosen])


def fit_layers(start: Constants, without: int = -1) -> Constants:
    """Fit to the single layers, one of them left out if asked."""
    rows = [tuple(row) for number, row in enumerate(DATA["layers"]["rows"]) if number != without]
    for precision, keys in LAYER_KEYS.items():
        start = fit(keys, start, lambda c, p=precision: [layer_error(row, p, c) for row in rows])  # type: ignore[misc]
    return start


def show_networks(errors: dict[Case, float], title: str) -> None:
    """Relative errors by network and mode."""
    modes = DATA["networks"]["modes"]
    print(f"\n{title}: predicted over measured time, percent")
    print(f"{'':22s}{'dense':>8s}" + " " * 24 + "sparse")
    print(f"{'':20s}" + "".join(f"{mode:>8s}" for mode in (*modes, *modes)))
    for name in DATA["networks"]["dense"]:
        cells = [errors.get((name, mode, sparse)) for sparse in (False, True) for mode in modes]
        print(f"{name:20s}" + "".join(f"{'' if e is None else f'{100 * e:+.1f}':>8s}" for e in cells))
    for label, sparse in (("dense", (False,)), ("all", (False, True))):
        chosen = [abs(e) for case, e in errors.items() if case[2] in sparse]
        print(f"{label}: mean {100 * np.mean(chosen):.1f} %, worst {100 * max(chosen):.1f} %")


def show_jackknife(left_out: dict[Case, float], refits: Sequence[Constants]) -> None:
    """Standard errors of the constants, and how many left-out figures lie within the stated band."""
    number = len(refits)
    for key in NETWORK_KEYS:
        values = np.array([each[key] for each in refits])
        error = float(np.sqrt((number - 1) / number * np.square(values - values.mean()).sum()))
        print(f"{key}: jackknife standard error {error:.2g}, between {values.min():.4g} and {values.max():.4g}")
    band = load_constants("orin-dla")["band_network"]
    inside = sum(abs(1 / (1 + error) - 1) <= band for error in left_out.values())
    print(f"within the band of {100 * band:.0f} %: {inside} of {len(left_out)} left-out figures")


def show_held_out() -> None:
    """The network that nothing is fitted to."""
    prediction, measured = held_out()
    error = prediction.total_us / measured - 1
    print(
        f"\n{prediction.model}, in no fit: predicted {prediction.total_us:.0f} us (between"
        f" {prediction.band.low:.0f} and {prediction.band.high:.0f}), measured about {measured:.0f}:"
        f" {100 * error:+.1f} %"
    )


def show_layers(errors: dict[Precision, list[float]], title: str) -> None:
    """Relative errors of the single layers."""
    print(f"\n{title}: predicted over measured time, percent")
    print(f"{'':36s}{'INT8':>8s}{'FP16':>8s}")
    for number, row in enumerate(DATA["layers"]["rows"]):
        name = f"{row[0]} {row[1]}->{row[2]} k{row[3]} s{row[4]} {row[5]}x{row[5]}"
        print(f"{name:36s}" + "".join(f"{100 * errors[p][number]:+8.1f}" for p in LAYER_KEYS))
    for precision in LAYER_KEYS:
        absolute = np.abs(errors[precision])
        print(f"{precision.value}: mean {100 * absolute.mean():.1f} %, worst {100 * absolute.max():.1f} %")


def write(constants: Constants) -> None:
    """Store the fitted values in the data file, four digits each."""
    text = CONSTANTS.read_text(encoding="utf-8")
    for key in (*NETWORK_KEYS, *EQUAL["dram_gbps"], *(key for keys in LAYER_KEYS.values() for key in keys)):
        text = re.sub(
            rf"(\[figures\.{key}\]\nvalue = )\S+",
            lambda m, k=key: f"{m.group(1)}{constants[k]:.4g}",
            text,  # type: ignore[misc]
        )
    CONSTANTS.write_text(text, encoding="utf-8")


def main() -> int:
    """Fit, show, cross-validate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the constants")
    parser.add_argument("--no-fit", action="store_true", help="only show how the stored constants do")
    parser.add_argument("--no-cross-validation", action="store_true")
    options = parser.parse_args()
    constants = load_constants("orin-dla")
    rows = [tuple(row) for row in DATA["layers"]["rows"]]
    if not options.no_fit:
        constants = fit_layers(fit_networks(constants))
        for key, figure in constants.figures.items():
            if figure.fitted:
                print(f"{key:28s}{figure.value:10.4g} {figure.unit}")
    show_networks(
        {case: network_error(case, fps, constants) for case, fps in cases().items()}, "all networks in the fit"
    )
    show_layers({p: [layer_error(row, p, constants) for row in rows] for p in LAYER_KEYS}, "all layers in the fit")
    if options.write:
        write(constants)
    if options.no_cross_validation or options.no_fit:
        return 0
    left_out: dict[Case, float] = {}
    refits = []
    for name in DATA["networks"]["dense"]:
        refits.append(fit_networks(constants, without=name))
        left_out |= {case: network_error(case, fps, refits[-1]) for case, fps in cases().items() if case[0] == name}
    show_networks(left_out, "each network predicted without it")
    show_jackknife(left_out, refits)
    kept: dict[Precision, list[float]] = {p: [] for p in LAYER_KEYS}
    for number, row in enumerate(rows):
        other = fit_layers(constants, without=number)
        for precision in LAYER_KEYS:
            kept[precision].append(layer_error(row, precision, other))
    show_layers(kept, "each layer predicted without it")
    show_held_out()
    return 0


if __name__ == "__main__":
    sys.exit(main())
