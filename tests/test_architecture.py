"""The house as it is drawn: imports go to earlier rooms only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "orinport"
ROOMS = [
    "model",
    "targets",
    "rules",
    "rewrites",
    "precision",
    "placement",
    "predict",
    "matmul",
    "dcnv4",
    "device",
    "report",
    "cli",
]
MAY_IMPORT = {room: {*ROOMS[: ROOMS.index(room)], "model", "targets", room} for room in ROOMS}
MAY_IMPORT["model"] = {"model", "targets"}
MAY_IMPORT["targets"] = {"targets"}
MAY_IMPORT["rewrites"] = {"model", "targets", "rewrites"}
MAY_IMPORT["dcnv4"] = {"model", "rewrites", "dcnv4"}
HELPERS = {"__init__", "__main__", "arrays", "collector", "compiled", "errors"}
HELPERS |= {"files", "lazy", "pictures", "toml", "words"}
ABOVE = {path.stem for path in SOURCE.glob("*.py")} - HELPERS
"""What joins the rooms; only `cli` imports it, and `predict/__init__.py`, where `orinport.predict(...)` is called."""


def imports(path: Path) -> set[str]:
    """What of orinport the module imports outside `if TYPE_CHECKING`: rooms, or modules beside them."""
    found: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                return
            self.generic_visit(node)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            if node.module and node.module.startswith("orinport."):
                found.add(node.module.split(".")[1])

        def visit_Import(self, node: ast.Import) -> None:
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("orinport."))

    Visitor().visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_down_the_table(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        wrong = (imports(path) & set(ROOMS)) - MAY_IMPORT[room]
        assert not wrong, f"{path.relative_to(SOURCE)} imports {sorted(wrong)}"


@pytest.mark.parametrize("room", ROOMS[:-1])
def test_no_room_imports_what_joins_the_rooms(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        wrong = imports(path) & ABOVE
        assert not wrong or path == SOURCE / "predict" / "__init__.py", f"{path} imports {sorted(wrong)}"


def calls(path: Path) -> set[str]:
    """Names of what the module calls, as they are written."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_no_module_runs_code_from_data() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not calls(path) & {"eval", "exec", "pickle.load", "pickle.loads", "os.system", "marshal.loads"}, path


def test_element_types_are_not_changed_in_place() -> None:
    """Copies of a graph share the type objects of their values: `value.type = ir.TensorType(...)` sets a new one."""
    for path in SOURCE.rglob("*.py"):
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(found, ast.Assign) or "ir.DataType" not in ast.unparse(found.value):
                continue
            targets = [each.attr for each in found.targets if isinstance(each, ast.Attribute)]
            assert "dtype" not in targets, f"{path}:{found.lineno}"


def test_no_shell_and_no_network() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "shell=True" not in text, path
        assert not {"urllib.request", "socket", "http.client", "requests"} & {
            name
            for line in text.splitlines()
            for name in line.split()
            if line.lstrip().startswith(("import ", "from "))
        }, path
