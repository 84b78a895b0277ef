"""Write the pages that are made from docstrings: `docs/rules` and `docs/rewrites`.

Run without arguments it writes them; with --check it writes nothing and fails if one is missing, out of date
or left over.
"""

from __future__ import annotations

import ast
import sys
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING

from orinport.device.log import log_classes
from orinport.rewrites import all_rewrites
from orinport.rules.catalogue import rules
from orinport.rules.pages import page
from orinport.targets.catalogue import catalogue_rows, log_messages, rows_elsewhere

if TYPE_CHECKING:
    from orinport.rules.rule import Rule

DOCS = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[Path, str]:
    """Every generated page: its path under `docs` and its text."""
    made = {Path("rules") / f"{rule.code}.md": page(rule) for rule in rules()}
    made[Path("rules/README.md")] = _rules_index()
    made |= {Path("rewrites") / f"{name}.md": text for name, text in _rewrite_pages().items()}
    made[Path("rewrites/README.md")] = _rewrites_index()
    made[Path("rules/messages.md")] = _messages()
    return made


def outdated() -> list[Path]:
    """Pages that differ from what would be written, and files in the two folders that nothing writes."""
    expected = pages()
    wrong = [
        path
        for path, text in expected.items()
        if not (DOCS / path).is_file() or (DOCS / path).read_text(encoding="utf-8") != text
    ]
    present = {file.relative_to(DOCS) for folder in ("rules", "rewrites") for file in (DOCS / folder).glob("*.md")}
    return sorted([*wrong, *(present - set(expected))])


def write() -> None:
    """Write every page and take away what nothing writes any more."""
    expected = pages()
    for path in outdated():
        if path not in expected:
            (DOCS / path).unlink()
            continue
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / path).write_text(expected[path], encoding="utf-8")


def _rules_index() -> str:
    rows = catalogue_rows()
    lines = [
        "# Rules",
        "",
        "Codes: DLA0xx operators, DLA1xx limits, DLA2xx types, quantisation and formats, DLA3xx regions and releases.",
        "`PERF` (prediction) and `Q` codes (scales) have their pages in `orinport explain` only.",
        "`orinport explain CODE` prints a page.",
        "",
        "| code | title |",
        "|---|---|",
        *(f"| [{rule.code}]({rule.code}.md) | {rule.title} |" for rule in rules()),
        "",
        "## Rows of the catalogue that no rule puts into effect",
        "",
        "| row | what it says | why no rule |",
        "|---|---|---|",
        *(f"| {name} | {rows[name].text} | {reason} |" for name, reason in rows_elsewhere().items()),
    ]
    return "\n".join(lines) + "\n"


_GENERIC = "MSG01 (to 8.4), MSG03 (from 8.5); from 10.x on often none"


def _cell(code: str) -> str:
    """Code in a cell of a table, where a bar would end the cell."""
    escaped = code.replace("|", "\\|")
    return f"`{escaped}`"


_SILENT = "none: TensorRT does not speak of it, and no layer moves"


def _shown_as(rule: Rule) -> str:
    """How a finding without a message of its own shows in a log: as a refusal, or not at all if no verdict changes."""
    tree = ast.parse(Path(str(sys.modules[type(rule).__module__].__file__)).read_text(encoding="utf-8"))
    made = [
        {keyword.arg: keyword.value for keyword in node.keywords}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("finding", "network_finding")
    ]
    quiet = [isinstance(each.get("verdict"), ast.Constant) and each["verdict"].value is None for each in made]
    return _SILENT if quiet and all(quiet) else _GENERIC


def _messages() -> str:
    """Messages of TensorRT and findings of orinport, in both directions."""
    kinds = [kind for kind in log_classes() if kind.id.startswith("MSG")]
    texts = {message.id: message.texts for message in log_messages().values()}
    by_code: dict[str, list[str]] = {}
    for kind in kinds:
        for code in kind.codes:
            by_code.setdefault(code, []).append(kind.id)
    lines = [
        "# Messages of TensorRT and findings of orinport",
        "",
        "What `orinport explain-log` recognises. X stands for a layer; versions are those that showed the wording.",
        "",
        "| message | wording | what it means | what to do | findings |",
        "|---|---|---|---|---|",
        *(
            f"| {kind.id} | {'<br>'.join(f'`{text}`' for text in texts[kind.id])} ({kind.source}) | {kind.meaning} |"
            f" {kind.help} | {', '.join(kind.codes)} |"
            for kind in kinds
        ),
        "",
        "## From finding to message",
        "",
        "A finding that sends a layer to the GPU and has no message of its own shows as the general one.",
        "",
        "| finding | what it says | message |",
        "|---|---|---|",
        *(
            f"| [{rule.code}]({rule.code}.md) | {rule.title} |"
            f" {', '.join(by_code.get(rule.code) or [_shown_as(rule)])} |"
            for rule in rules()
        ),
        "",
        "## Other lines that decide about a build or a run",
        "",
        "| line | pattern | what it means | what to do | source |",
        "|---|---|---|---|---|",
        *(
            f"| {kind.id} | {_cell(kind.pattern.pattern)} | {kind.meaning} | {kind.help} | {kind.source} |"
            for kind in log_classes()
            if kind.id.startswith("LOG")
        ),
        "",
        "An error that matches none of all these lines is counted and shown, and is never taken for one of them.",
    ]
    return "\n".join(lines) + "\n"


def _rewrite_pages() -> dict[str, str]:
    made = {}
    for rewrite in all_rewrites():
        documentation = cleandoc(sys.modules[type(rewrite).__module__].__doc__ or "")
        made[rewrite.name] = f"# {rewrite.name}\n\nSafety: {rewrite.safety.value}\n\n{documentation}\n"
    return made


def _rewrites_index() -> str:
    lines = [
        "# Rewrites",
        "",
        "| rewrite | safety | starts at |",
        "|---|---|---|",
        *(
            f"| [{rewrite.name}]({rewrite.name}.md) | {rewrite.safety.value} | {', '.join(rewrite.op_types)} |"
            for rewrite in all_rewrites()
        ),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Exit status: 0 if all is up to date or written, 1 if --check found a difference."""
    if arguments == ["--check"]:
        wrong = outdated()
        for path in wrong:
            print(f"docs/{path} is out of date: run tools/write_docs.py", file=sys.stderr)
        return 1 if wrong else 0
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
