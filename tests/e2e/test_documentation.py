"""Every command of the README and the how-to pages runs, and ends as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import orinport
from orinport.report.text import check_text

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs" / "how-to").glob("*.md")])
BLOCK = re.compile(r"^```sh( .*)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#.*\bexit (\d+)\b")


class Command(NamedTuple):
    """One line of a page: `exit N` in its comment is the status that the page promises, otherwise 0."""

    line: str
    status: int


def commands(page: Path) -> list[Command]:
    """The lines of the page's `sh` blocks; blocks marked otherwise (```sh board) are not for this machine."""
    found = []
    for mark, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if mark.strip():
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                status = EXIT.search(line)
                found.append(Command(line, int(status.group(1)) if status else 0))
    return found


def needs(page: Path) -> str:
    """The package without which a page's commands cannot run, stated in its first lines as `Needs: NAME`."""
    found = re.search(r"^Needs: .*?`([a-z]+)`", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands(page: Path, tmp_path: Path) -> None:
    extra = needs(page)
    for module in {"": (), "image": ("PIL",), "torch": ("torch", "onnxscript")}.get(extra, (extra,)):
        pytest.importorskip(module, reason=f"the page needs {extra}")
    lines = commands(page)
    if not lines:
        pytest.skip("the page has no commands for this machine")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([sys.executable, "examples/models.py", "out"], cwd=tmp_path, check=True, capture_output=True)
    for command in lines:
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == command.status, f"{command.line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr


def test_pages_work_one_after_the_other() -> None:
    """A bundle that is there already is not replaced: pages write to different ones, and `make demo` to others."""
    written: dict[str, str] = {}
    for page in PAGES:
        for command in commands(page):
            found = re.search(r"^orinport prepare .*(?:-o|--output) (\S+)", command.line)
            if found is not None and "--force" not in command.line:
                assert found[1] not in written, f"{page.name} and {written[found[1]]} both write {found[1]}"
                assert not found[1].startswith("out/demo/"), f"{page.name} writes where the demonstration does"
                written[found[1]] = page.name
    assert len(written) > 5
    assert 'OUT / "demo" / folder' in (ROOT / "examples" / "demo.py").read_text(encoding="utf-8")


def test_the_readme_quotes_what_check_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^```\n(DLA010 .*?)^```", text, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, ROOT / "examples/models.py", "out"], cwd=tmp_path, check=True, capture_output=True)
    said = check_text(orinport.check(tmp_path / "out/product_runtime.onnx"))
    assert " ".join(quoted.split()) in " ".join(said.split())


def test_the_figures_of_the_matmul_page_are_what_matmul_says() -> None:
    words = " ".join((ROOT / "docs" / "how-to" / "matmul.md").read_text(encoding="utf-8").split())
    constant = orinport.plan_matmul(128, 1024, 128)
    runtime = orinport.plan_matmul(128, 1024, 128, constant="none")
    small = orinport.plan_matmul(3, 3, 1, count=100_000, constant="none")
    shared = orinport.plan_matmul(3, 3, 1, count=100_000, constant="lhs")
    assert constant.best is not None
    assert f"for one submission is {constant.best.total_us:.0f} us" in words
    assert f"the order of {round(constant.gpu_us, -1):.0f} us" in words
    assert runtime.best is not None
    times = round(runtime.best.total_us / runtime.gpu_us, -1)
    assert f"about {runtime.best.total_us / 1e3:.1f} ms, some {times:.0f} times the GPU" in words
    together, alone = small.plans
    assert (together.candidate.products, alone.candidate.products) == (100_000, 1)
    assert f"100,000 tasks: {alone.total_us / 1e6:.1f} s" in words
    assert f"about {together.total_us / 1e3:.2f} ms, bound by memory" in words
    assert shared.best is not None
    assert f"are enough, in {shared.best.total_us / 1e3:.2f} ms" in words


WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """Names that links to the headings of a page use."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in WRITTEN:
        for name, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name}: {name}"
            assert not anchor or anchor in anchors(target), f"{page.name}: {name}#{anchor}"


def test_a_link_leads_to_every_page() -> None:
    linked = {
        (page.parent / name).resolve() for page in WRITTEN for name, _ in LINK.findall(page.read_text(encoding="utf-8"))
    }
    assert {page for page in WRITTEN if page.name != "README.md"} - linked == set()
