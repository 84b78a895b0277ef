"""Child process of the fuzz test: `worker.py FOLDER FIRST LAST` checks the cases of that range.

Says on stdout, one JSON line each, which case begins and how it ended, so that the parent knows which case has
killed or stopped it. Everything that is written to the folder but the case itself is reported.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

MEMORY = 6 << 30


def main(folder: Path, first: int, last: int) -> None:
    """Check the cases `first` to `last - 1` in `folder`."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from mutations import case, corpus

    corpus()
    os.chdir(folder)
    path = folder / "case.onnx"
    for seed in range(first, last):
        data = case(seed)
        path.write_bytes(data)
        print(json.dumps({"case": seed}), flush=True)
        print(json.dumps({"case": seed, **outcome(path, data)}), flush=True)


def outcome(path: Path, data: bytes) -> dict[str, object]:
    """How the check of one file ended: verdict, error or defect, with time and growth of the peak memory."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    kind, text = check(path)
    seconds = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    others = sorted(entry.name for entry in path.parent.iterdir() if entry.name != path.name)
    changed = path.read_bytes() != data
    return {"kind": kind, "text": text, "seconds": seconds, "grown_mib": grown, "written": others, "changed": changed}


def check(path: Path) -> tuple[str, str]:
    """`verdict` with the number of layers, `error` with its line, or `defect` with the end of the traceback."""
    import orinport
    from orinport.errors import OrinportError

    try:
        report = orinport.check(path)
        return "verdict", f"{len(report.layers)} layers"
    except OrinportError as error:
        return "error", str(error)
    except BaseException:
        return "defect", traceback.format_exc()[-1500:]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
