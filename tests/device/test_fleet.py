"""Several boards at once: two ssh servers on loopback with a stand-in for trtexec each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boards import folders, ssh_options, ssh_server, user, write_bundle, write_keys, write_program
from orinport.cli import main
from orinport.device.board import board_folders
from orinport.device.fleet import build_on_boards
from orinport.errors import MissingExtraError, OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.device.fleet import BoardResult

HOSTS = ("left", "right")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "net.orin")


class Boards:
    """Two boards, and the ssh that knows them as `left` and `right`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._config = folder / "ssh_config"
        write_keys(folder)

    def start(self, **environment: dict[str, str]) -> str:
        """Start one server for each name; gives the path of an ssh program that reaches them."""
        text = ""
        for name, variables in environment.items():
            program = write_program(self._folder / f"trtexec-{name}")
            port = self._stack.enter_context(ssh_server(self._folder, program, NAME=name, **variables))
            text += f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User {user()}\n"
        self._config.write_text(text)
        words = ssh_options(self._folder)
        program = self._folder / "bin" / "ssh"
        program.parent.mkdir(exist_ok=True)
        options = " ".join(f"'{word}'" for word in words[2:])
        write_program(program, f'#!/bin/sh\nexec /usr/bin/ssh -F {self._config} {options} "$@"\n')
        return str(program)


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
    with ExitStack() as stack:
        yield Boards(tmp_path, stack)


def build(bundle: Path, ssh: str, lines: list[tuple[str, str]] | None = None) -> dict[str, BoardResult]:
    def show(host: str, line: str) -> None:
        if lines is not None:
            lines.append((host, line))

    return {board.host: board for board in build_on_boards(bundle, HOSTS, ["two words"], show, ssh=(ssh,))}


def test_each_board_has_a_folder_of_its_own(bundle: Path, boards: Boards) -> None:
    lines: list[tuple[str, str]] = []
    results = build(bundle, boards.start(left={}, right={}), lines)
    assert all(board.built for board in results.values())
    for name in HOSTS:
        folder = bundle / "boards" / name
        assert results[name].folder == folder
        assert (folder / "model.engine").read_text() == name
        said = [line for host, line in lines if host == name]
        assert said == (folder / "build.log").read_text().splitlines()
        assert "[I] argument two words" in said
        assert said[-1].startswith("&&&& PASSED")
    assert sorted(path.name for path in bundle.iterdir()) == ["boards", "build.sh", "model.onnx"]
    assert [path.exists() for path in folders([line for _, line in lines])] == [False, False]


def test_a_board_that_fails_and_one_that_is_off_do_not_touch_the_other(bundle: Path, boards: Boards) -> None:
    ssh = boards.start(left={}, right={"FAIL": "1"})
    results = {
        board.host: board
        for board in build_on_boards(bundle, (*HOSTS, "nowhere.invalid"), [], lambda *_: None, ssh=(ssh,))
    }
    assert results["left"].built
    assert not results["right"].built
    assert results["right"].result is not None
    assert results["right"].result.status == 1
    assert "MatMul" in (bundle / "boards/right/build.log").read_text()
    assert not (bundle / "boards/right/model.engine").exists()
    assert results["nowhere.invalid"].result is None
    assert "nowhere.invalid cannot be used over ssh" in results["nowhere.invalid"].error
    assert sorted(path.name for path in (bundle / "boards").iterdir()) == ["left", "right"]


def test_boards_build_at_the_same_time(bundle: Path, boards: Boards) -> None:
    """Each board waits for the other: one after the other they would never end."""
    ssh = boards.start(left={}, right={})
    folder = Path(ssh).parent.parent
    wait = "i=0; while [ ! -e {other} ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done; [ -e {other} ] || exit 3"
    for name, other in (HOSTS, HOSTS[::-1]):
        program = folder / f"trtexec-{name}"
        meeting = f"touch {folder}/{name}.here\n" + wait.format(other=f"{folder}/{other}.here")
        program.write_text(program.read_text().replace('engine=""', f'engine=""\n{meeting}', 1))
    assert all(board.built for board in build(bundle, ssh).values())


def test_command(
    bundle: Path, boards: Boards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh = boards.start(left={}, right={"FAIL": "1"})
    monkeypatch.setenv("PATH", f"{Path(ssh).parent}{os.pathsep}{os.environ['PATH']}")
    assert main(["build", str(bundle), "--host", "left", "--host", "right", "--", "--verbose"]) == 1
    out, err = capsys.readouterr()
    assert out.index("== left") < out.index("model.engine: ") < out.index("== right")
    assert out.index("== right") < out.index("reason: A matrix multiplication is not taken.")
    assert "1 of 2 boards built" in out
    assert "[left] [I] argument --verbose" in err
    assert "[right] [I] argument --verbose" in err
    assert "[left] built, " in err
    assert "[right] failed, " in err
    assert "2 of 2 boards done" in err
    assert main(["build", str(bundle), "--host", "left", "--host", "left"]) == 2
    assert "named twice" in capsys.readouterr().err


@pytest.mark.parametrize("everyone", [False, True], ids=["orinport", "terminal"])
def test_interruption_ends_every_build_and_leaves_nothing(bundle: Path, boards: Boards, everyone: bool) -> None:
    """A signal for orinport alone, and one for all that the terminal runs, ssh included."""
    ssh = boards.start(left={"SLEEP": "60"}, right={"SLEEP": "60"})
    process = subprocess.Popen(
        [sys.executable, "-m", "orinport", "build", str(bundle), "--host", "left", "--host", "right"],
        env={**os.environ, "PATH": f"{Path(ssh).parent}{os.pathsep}{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    assert process.stderr is not None
    begun: set[str] = set()
    for line in process.stderr:
        begun |= {name for name in HOSTS if line.startswith(f"[{name}]") and "saveEngine" in line}
        if len(begun) == len(HOSTS):
            break
    if everyone:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    rest = process.stderr.read().splitlines()
    assert process.wait(30) == 130
    assert rest[-1] == "orinport: interrupted"
    assert not any("Traceback" in line for line in rest)
    pids = [int((Path(ssh).parent.parent / f"trtexec-{name}.pid").read_text()) for name in HOSTS]
    for _ in range(400):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            break
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    for name in HOSTS:
        assert [path.name for path in (bundle / "boards" / name).iterdir()] == ["build.log"]
        kept = (bundle / "boards" / name / "build.log").read_text().splitlines()
        assert [path.exists() for path in folders(kept)] == [False]


def test_a_cluster_that_is_there_builds_too(bundle: Path, boards: Boards) -> None:
    from distributed import LocalCluster

    ssh = boards.start(left={}, right={})
    lines: list[tuple[str, str]] = []
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        results = list(
            build_on_boards(
                bundle,
                HOSTS,
                [],
                lambda *told: lines.append(told),
                ssh=(ssh,),
                scheduler=cluster.scheduler_address,
            )
        )
    assert all(board.built for board in results)
    assert {host for host, _ in lines} == set(HOSTS)


def test_without_the_extra_it_is_named_and_nothing_is_written(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"orinport\[fleet\]"):
        next(iter(build_on_boards(bundle, HOSTS, [], lambda *_: None)))
    assert main(["build", str(bundle), "--host", "left", "--host", "right"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in bundle.iterdir()) == ["build.sh", "model.onnx"]


def test_a_scheduler_without_boards_and_one_that_is_not_there(bundle: Path) -> None:
    assert main(["build", str(bundle), "--scheduler", "tcp://127.0.0.1:1"]) == 2
    pytest.importorskip("distributed", reason="the extra 'fleet' is not installed")
    with pytest.raises(OrinportError, match="does not answer"):
        next(iter(build_on_boards(bundle, ("left",), [], lambda *_: None, scheduler="not an address")))


def test_names_of_boards_become_names_of_folders(tmp_path: Path) -> None:
    folders = board_folders(tmp_path, ("user@orin-1", "../../etc", "ssh://me@host:22"))
    assert [path.relative_to(tmp_path / "boards").name for path in folders.values()] == [
        "user@orin-1",
        ".._.._etc",
        "ssh___me@host_22",
    ]
    for hosts in (("a", "a"), ("a/b", "a_b")):
        with pytest.raises(OrinportError, match="named twice"):
            board_folders(tmp_path, hosts)
