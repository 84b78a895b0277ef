"""How do time and memory of `check` grow with the number of nodes?

Each measurement is a child process of its own, from its start to its end, imports included: wall time, processor
time (which a busy machine disturbs less) and peak memory. In the same run, on the same files: `onnx.checker`, onnx's
shape inference, and loading with onnx_ir. The last lines give the slope of log(processor time) over log(nodes),
start-up taken off: 1 is linear.

    python benchmarks/check_scale.py [--nodes 1000,5000,20000,100000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NODES = (1_000, 5_000, 20_000, 100_000)

TASKS = {
    "check": "import orinport; orinport.check(PATH)",
    "orinport load": "from orinport.model import load; load(PATH)",
    "onnx.checker": "import onnx; onnx.checker.check_model(PATH)",
    "onnx shape inference": "import onnx; onnx.shape_inference.infer_shapes(onnx.load(PATH))",
    "onnx_ir load": "import onnx_ir; onnx_ir.load(PATH)",
    "nothing": "import onnx_ir",
}
"""What is measured. `nothing` imports what all of ours import: the cost of starting."""


def write_network(path: Path, count: int) -> None:
    """Write a network of `count` cheap nodes: Conv, Relu, Add, MaxPool, again and again."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for index in range(count):
        name, kind = f"v{index}", index % 4
        if kind == 0:
            weights.append(numpy_helper.from_array(rng.normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32), f"w{index}"))
            nodes.append(helper.make_node("Conv", [before, f"w{index}"], [name], f"conv{index}", kernel_shape=[1, 1]))
        elif kind == 1:
            nodes.append(helper.make_node("Relu", [before], [name], f"relu{index}"))
        elif kind == 2:
            nodes.append(helper.make_node("Add", [before, f"v{index - 2}"], [name], f"add{index}"))
        else:
            pads, window = [1, 1, 1, 1], [3, 3]
            nodes.append(helper.make_node("MaxPool", [before], [name], f"pool{index}", kernel_shape=window, pads=pads))
        before = name
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 16, 16])
    result = helper.make_tensor_value_info(before, onnx.TensorProto.FLOAT, [1, 8, 16, 16])
    graph = helper.make_graph(nodes, "thin", [given], [result], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def measure(task: str, path: Path) -> dict[str, float]:
    """Wall seconds, processor seconds and peak MiB (VmHWM) of one child process."""
    code = (
        f"PATH = {str(path)!r}\n"
        f"{TASKS[task]}\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])\n"
    )
    start, before = time.perf_counter(), os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    if done.returncode:
        raise SystemExit(f"{task} on {path.name} failed:\n{done.stderr[-2000:]}")
    return {"wall": wall, "cpu": cpu, "mib": int(done.stdout.split()[-1]) / 1024}


def slope(times: dict[int, float], startup: float) -> float:
    """Least-squares slope of log(time - startup) over log(nodes)."""
    xs = [math.log(nodes) for nodes in times]
    ys = [math.log(max(seconds - startup, 1e-3)) for seconds in times.values()]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


def main() -> None:
    """Measure, print the table, the slopes and what the bars say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", nargs=2, metavar=("FILE", "NODES"), help="only write a network")
    options = parser.parse_args()
    if options.write:
        write_network(Path(options.write[0]), int(options.write[1]))
        return
    sizes = [int(text) for text in options.nodes.split(",")]

    wall: dict[str, dict[int, float]] = {task: {} for task in TASKS}
    cpu: dict[str, dict[int, float]] = {task: {} for task in TASKS}
    memory: dict[str, dict[int, float]] = {task: {} for task in TASKS}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
            path = Path(folder) / f"thin{nodes}.onnx"
            subprocess.run([sys.executable, __file__, "--write", str(path), str(nodes)], check=True)
            rounds = [{task: measure(task, path) for task in TASKS} for _ in range(options.repeats)]
            for task in TASKS:
                wall[task][nodes] = statistics.median(run[task]["wall"] for run in rounds)
                cpu[task][nodes] = statistics.median(run[task]["cpu"] for run in rounds)
                memory[task][nodes] = max(run[task]["mib"] for run in rounds)

    print(f"Median of {options.repeats} processes: wall s, processor s, peak MiB; imports included")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    print(f"{'':22}" + "".join(f"{nodes:>26,}" for nodes in sizes))
    for task in TASKS:
        cells = "".join(f"{wall[task][n]:>10.2f} {cpu[task][n]:>8.2f} {memory[task][n]:>6.0f}" for n in sizes)
        print(f"{task:22}{cells}")
    startup = min(cpu["nothing"].values())
    print()
    for task in TASKS:
        if task != "nothing" and len(sizes) > 1:
            power = slope(cpu[task], startup)
            print(f"{task:22} grows as nodes ^ {power:.2f}, start-up ({startup:.2f} s) taken off")
    if 20_000 in sizes:
        ratio = memory["check"][20_000] / memory["onnx_ir load"][20_000]
        took = wall["check"][20_000]
        print(f"\n20,000 nodes: check takes {took:.2f} s (bar: 2), {ratio:.2f} times onnx_ir's memory (bar: 2)")


if __name__ == "__main__":
    main()
