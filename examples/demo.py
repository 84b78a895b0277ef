"""What `make demo` runs: prepare ResNet-50 and a matrix product for the DLA of an AGX Orin.

ResNet-50 is the network that the onnx package ships for its own tests (its weights are made up, its
layers are real). The matrix product is 128x1024 times 1024x128, once with two runtime inputs, which no
DLA takes as they are, and once with a constant right-hand side.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from models import write_all

import orinport
from orinport.report.text import check_text, prepare_text

TARGET = "orin-agx-64gb/jp6.2"
OUT = Path("out")


def headline(text: str) -> None:
    """A line between the parts of the demonstration."""
    print(f"\n==== {text}\n", flush=True)


def prepare(model: Path, folder: str) -> bool:
    """Prepare one model, print what changed, and say whether all of it runs on the DLA."""
    start = time.perf_counter()
    report = orinport.prepare(model, target=TARGET, output=OUT / "demo" / folder, force=True)
    print(prepare_text(report), end="")
    print(f"{time.perf_counter() - start:.1f} s")
    return report.after.all_dla


def main() -> int:
    """Run the three parts; the status is 0 if the two that can run on the DLA do."""
    models = write_all(OUT)
    headline("ResNet-50")
    network = prepare(models["resnet50"], "resnet50.orin")
    headline("128x1024 times 1024x128, both inputs at run time: check only")
    print(check_text(orinport.check(models["product_runtime"], target=TARGET)), end="")
    headline("128x1024 times 1024x128, right-hand side constant")
    product = prepare(models["product_constant"], "product.orin")
    return 0 if network and product else 1


if __name__ == "__main__":
    sys.exit(main())
