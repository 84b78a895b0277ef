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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.results import CheckReport

MEMORY = 6 << 30
TARGETS = (
    "orin-agx-64gb/jp6.2",
    "orin-agx-64gb/jp5.1",
    "orin-nx-16gb/jp6.0",
    "drive-orin/drive-6.0.9",
    "orin-agx-64gb/jp7.2",
    "orin-agx-64gb/jp7.2.2",
    "xavier-agx/jp5.1",
)
"""Cases take turns, so that every version of the parser and of the rules meets damaged networks."""


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
        print(json.dumps({"case": seed, **outcome(path, data, seed)}), flush=True)


def outcome(path: Path, data: bytes, seed: int) -> dict[str, object]:
    """How the check of one file ended: verdict, error or defect, with time and growth of the peak memory."""
    before, start = peak_kib(), time.perf_counter()
    kind, text = check(path, TARGETS[seed % len(TARGETS)], ("fp16", "int8")[seed % 2])
    seconds = time.perf_counter() - start
    grown = (peak_kib() - before) // 1024
    others = sorted(entry.name for entry in path.parent.iterdir() if entry.name != path.name)
    changed = path.read_bytes() != data
    return {"kind": kind, "text": text, "seconds": seconds, "grown_mib": grown, "written": others, "changed": changed}


def peak_kib() -> int:
    """Peak memory of this process; what its parent held before the fork does not count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def check(path: Path, target: str, precision: str) -> tuple[str, str]:
    """`verdict` with the number of layers, `error` with its line, or `defect` with the end of the traceback."""
    import orinport
    from orinport.errors import OrinportError

    try:
        report = orinport.check(path, target=target, precision=precision)
        render(report)
        return "verdict", f"{len(report.layers)} layers"
    except OrinportError as error:
        return "error", str(error)
    except BaseException:
        return "defect", traceback.format_exc()[-1500:]


def render(report: CheckReport) -> None:
    """Every format of the report: printable text, valid JSON."""
    from orinport.report.github import github_text
    from orinport.report.json import check_document, dumps
    from orinport.report.sarif import sarif_document
    from orinport.report.text import check_text
    from orinport.rules import titles

    for line in (check_text(report) + github_text(report)).split("\n"):
        assert line.isprintable(), f"not printable: {line!r}"
    for document in (check_document(report), sarif_document(report, titles())):
        json.loads(dumps(document).encode("utf-8"), parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
