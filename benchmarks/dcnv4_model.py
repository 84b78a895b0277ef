"""How fast is FlashInternImage-T in float16 on one NVIDIA GPU, beside the published implementation, in one run?

The published model is built from --peer FOLDER, which must hold the repository's `classification` folder and an
importable package DCNv4; both get the same random weights, and logits are compared before anything is timed. Latency
and throughput are medians over runs that take turns.

    python benchmarks/dcnv4_model.py --peer FOLDER [--batch 1 128] [--compile MODE ...] [--peer-compile MODE ...]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

import torch

from orinport.dcnv4 import cuda
from orinport.dcnv4.cuda_model import GraphRunner, fuse_blocks
from orinport.dcnv4.flash_internimage import flash_internimage, randomize

MODEL = {"core_op": "DCNv4", "channels": 64, "depths": [4, 4, 18, 4], "groups": [4, 8, 16, 32], "offset_scale": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="folder with the published code")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--compile", nargs="*", default=[], help="modes of torch.compile to try for both")
    parser.add_argument("--peer-compile", nargs="*", default=[], help="further modes for the published model alone")
    parser.add_argument("--accuracy", choices=["exact", "fast"], default="exact")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cuda.set_accuracy(options.accuracy)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    ours = flash_internimage("t").eval()
    randomize(ours, 0)
    theirs = published(options.peer, ours) if options.peer else None
    ours = ours.half().cuda().to(memory_format=torch.channels_last)
    blocks = fuse_blocks(ours)
    print(f"fused {blocks} blocks; {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    rows = []
    with torch.inference_mode():
        for batch in options.batch:
            rows += compare(batch, {"orinport": ours}, theirs, options)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))


def published(folder, ours):
    """The published model with our weights."""
    sys.path[:0] = [folder, str(Path(folder, "classification"))]
    from models.flash_intern_image import FlashInternImage

    model = FlashInternImage(**MODEL).eval()
    missing = model.load_state_dict(ours.state_dict(), strict=False)
    assert not missing.missing_keys, missing
    return model.half().cuda()


def compare(batch, models, theirs, options):
    images = torch.randn(batch, 3, 224, 224, device="cuda").half()
    last = images.to(memory_format=torch.channels_last)
    runs = {}
    owners = [("published", theirs, images)] if theirs is not None else []
    owners += [(name, model, last) for name, model in models.items()]
    logits = {}
    for owner, model, value in owners:
        logits[owner] = model(value).double()
        ways = {"eager": lambda model=model, value=value: model(value)}
        add(ways, "CUDA graph", lambda model=model, value=value: GraphRunner(model, value).replay)
        for mode in options.compile + (options.peer_compile if owner == "published" else []):
            add(ways, f"compile {mode}", lambda model=model, value=value, mode=mode: compiled(model, value, mode))
        for way, run in ways.items():
            runs[f"{owner}, {way}"] = run
    expected = logits[owners[0][0]]
    difference = {owner: float((each - expected).norm() / expected.norm()) for owner, each in logits.items()}
    print(f"\nbatch {batch}: relative L2 difference of the logits from the first: {difference}\n")
    print("| way | ms | images/s | least to greatest |\n|---|---|---|---|")
    times = {name: [] for name in runs}
    for run in runs.values():
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    for _ in range(options.rounds):
        for name, run in runs.items():
            times[name].append(milliseconds(run, 10 if batch == 1 else 2))
    rows = []
    for name, samples in times.items():
        median = statistics.median(samples)
        print(
            f"| {name} | {median:.3f} | {batch / median * 1000:.0f} | {min(samples):.3f} to {max(samples):.3f} |",
            flush=True,
        )
        rows.append(
            {
                "batch": batch,
                "way": name,
                "ms": median,
                "range": [min(samples), max(samples)],
                "difference": difference,
            }
        )
    return rows


def add(ways, name, build):
    start = time.perf_counter()
    try:
        ways[name] = build()
        ways[name]()
        torch.cuda.synchronize()
        print(f"{name}: ready after {time.perf_counter() - start:.0f} s", flush=True)
    except Exception as error:  # a mode that a model does not survive is a result too
        ways.pop(name, None)
        print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def compiled(model, value, mode):
    """torch.compile without its own graphs, then one CUDA graph over everything."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 256
    with remembered_launches(lambda: model(value)):
        return graph_of_compiled(model, value, mode)


@contextlib.contextmanager
def remembered_launches(run):
    """The published package looks for divisors of N*H*W in a loop, which torch.compile would unroll for minutes; while
    it compiles, the launch parameters that one eager run finds are looked up instead."""
    module = sys.modules.get("DCNv4.functions.dcnv4_func")
    names = ("findspec", "find_spec_bwd") if module else ()
    originals = {name: getattr(module, name) for name in names}
    for name, function in originals.items():
        known = {}
        setattr(module, name, lambda *key, known=known, function=function: known.setdefault(key, function(*key)))
        originals[name] = function, known
    if module:
        run()
    for name, (_, known) in originals.items():
        setattr(module, name, lambda *key, known=known: known[key])
    try:
        yield
    finally:
        for name, (function, _) in originals.items():
            setattr(module, name, function)


def graph_of_compiled(model, value, mode):
    plain = {"max-autotune": "max-autotune-no-cudagraphs"}.get(mode, mode)
    function = torch.compile(model, mode=plain, dynamic=False)
    function(value)
    return GraphRunner(function, value).replay


def milliseconds(run, repeats):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


if __name__ == "__main__":
    main()
