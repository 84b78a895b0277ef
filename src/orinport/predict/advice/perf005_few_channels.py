"""A convolution with few input channels leaves most of an atom empty.

## What it checks
Convolutions that are no depthwise ones and fill at most half of an atomic operation, where they take at least 5 % of
the time. An image in the format dla_hwc4 fills it with the values under a row of the kernel, four for each.

## Why it matters
The pipelines multiply 64 channels at once (FP16: Rubik 16). Three channels use 3 of 64 multipliers.

## Example
The first convolution of a network on an RGB image that is not in the image format.

## What to do
Feed the image as dla_hwc4, or fold space into channels (space-to-depth) before the first convolution.

## Fix safety
No rewrite is applied.

## Source
nvdla/doc, unit description (atomic operation, image input); carried over to Orin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.predict.advise import Advice
from orinport.predict.prediction import Bound
from orinport.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.predict.prediction import Prediction
    from orinport.rules.finding import Finding


class FewChannels(Advice):
    code = "PERF005"
    title = "few channels leave an atom empty"
    source = "nvdla/doc unit description"

    def check(self, prediction: Prediction) -> Iterator[Finding]:
        for each in prediction.layers:
            if each.device != "dla" or each.bound is not Bound.MAC or int(each.layer.attributes.get("groups", 1)) > 1:
                continue
            if each.filled * 2 > each.atom or each.us < self.threshold * prediction.work_us:
                continue
            is_image = each.filled > (each.layer.inputs[0].chw or (0, 0, 0))[0]
            yield self.finding(
                f"{each.layer.name} fills {each.filled} of {each.atom} values of an atomic operation"
                f"{' with the rows of its kernel over an image' if is_image else ''} and takes {each.us:.0f} us,"
                f" {percent(each.us, prediction.work_us)} of the time.",
                "Fold space into channels before it."
                if is_image
                else "Feed an image as dla_hwc4, or fold space into channels before it.",
                value=each.filled,
                limit=each.atom,
                layers=[each],
            )


ADVICE = FewChannels()
