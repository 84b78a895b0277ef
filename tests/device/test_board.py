"""Building, and looking at a machine. The trtexec and the ssh here are stand-ins that test our plumbing only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boards import folders, ssh_options, ssh_server, user, write_bundle, write_keys, write_program
from orinport.cli import main
from orinport.device.board import build_here, build_remotely, require_bundle
from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_bundle(tmp_path / "net.orin")
    monkeypatch.setenv("TRTEXEC", str(write_program(tmp_path / "trtexec")))
    for name in ("FAIL", "SLEEP"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_a_build_keeps_its_log_and_hands_arguments_on(bundle: Path) -> None:
    lines: list[str] = []
    result = build_here(bundle, ["--verbose", "two words"], lines.append)
    assert result.status == 0
    assert result.product == bundle / "model.engine"
    assert "[I] argument two words" in lines
    assert result.log.read_text().splitlines() == lines


def test_a_failed_build_leaves_its_log_and_no_engine(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "1")
    result = build_here(bundle, [], lambda _: None)
    assert (result.status, result.product) == (1, None)
    assert not (bundle / "model.engine").exists()
    assert "MatMul" in result.log.read_text()


def test_command_explains_a_failure(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(bundle), "--quiet"]) == 0
    assert "model.engine" in capsys.readouterr().out
    monkeypatch.setenv("FAIL", "1")
    assert main(["build", str(bundle), "--quiet", "--", "--verbose"]) == 1
    out = capsys.readouterr().out
    assert "reason: A matrix multiplication is not taken." in out


def test_without_trtexec_one_line_says_what_can_be_done(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRTEXEC", "/nowhere/trtexec")
    before = sorted(p.name for p in bundle.iterdir())
    assert main(["build", str(bundle)]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "--host" in err
    assert sorted(p.name for p in bundle.iterdir()) == before


def test_a_relative_path_to_trtexec(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle.parent)
    monkeypatch.setenv("TRTEXEC", "./trtexec")
    assert build_here(Path(bundle.name), [], lambda _: None).status == 0


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OrinportError, match="no bundle"):
        require_bundle(tmp_path)


def test_interruption_stops_the_build_and_leaves_no_engine(bundle: Path) -> None:
    environment = {**os.environ, "SLEEP": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "orinport", "build", str(bundle)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "saveEngine" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    start = time.monotonic()
    assert process.wait(20) == 130
    assert time.monotonic() - start < 20
    assert not (bundle / "model.engine").exists()


def remote(tmp_path: Path) -> tuple[str, ...]:
    """A stand-in for ssh: it runs the command in a shell here, as another machine would."""
    program = tmp_path / "ssh"
    program.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    program.chmod(0o755)
    return (str(program),)


def test_a_build_over_ssh_brings_the_engine_back_and_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    result = build_remotely(
        bundle, "user@board", ["two words", "$(touch /tmp/pwned_by_build)"], lines.append, ssh=remote(tmp_path)
    )
    assert result.status == 0
    assert result.product == bundle / "model.engine"
    assert (bundle / "model.engine").read_text() == "engine"
    assert "[I] argument two words" in lines
    assert "[I] argument $(touch /tmp/pwned_by_build)" in lines
    assert not Path("/tmp/pwned_by_build").exists()
    assert [path.exists() for path in folders(lines)] == [False]


def test_a_build_over_ssh_that_fails(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "1")
    result = build_remotely(bundle, "user@board", [], lambda _: None, ssh=remote(tmp_path))
    assert (result.status, result.product) == (1, None)
    assert not (bundle / "model.engine").exists()


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", "", " "])
def test_hosts_that_are_options_are_refused(bundle: Path, tmp_path: Path, host: str) -> None:
    with pytest.raises(OrinportError, match="no host"):
        build_remotely(bundle, host, [], lambda _: None, ssh=remote(tmp_path))


def test_a_board_that_cannot_be_reached(bundle: Path, tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'Connection refused' >&2\nexit 255\n")
    program.chmod(0o755)
    with pytest.raises(OrinportError, match="Connection refused"):
        build_remotely(bundle, "user@board", [], lambda _: None, ssh=(str(program),))


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The ssh command that reaches a real sshd on loopback whose sessions find the stand-in for trtexec."""
    write_keys(tmp_path)
    given = {name: os.environ[name] for name in ("FAIL", "SLEEP") if os.environ.get(name)}
    with ssh_server(tmp_path, tmp_path / "trtexec", **given) as port:
        yield ("ssh", *ssh_options(tmp_path), "-p", str(port))


def test_a_build_over_a_real_ssh(bundle: Path, loopback: tuple[str, ...]) -> None:
    lines: list[str] = []
    host = f"{user()}@127.0.0.1"
    result = build_remotely(bundle, host, ["two words", "it's"], lines.append, ssh=loopback)
    assert result.status == 0, lines
    assert result.product == bundle / "model.engine"
    assert {"[I] argument two words", "[I] argument it's"} <= set(lines)
    assert [path.exists() for path in folders(lines)] == [False]


def test_a_host_that_refuses_the_key(bundle: Path, loopback: tuple[str, ...], tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    other = tuple(str(tmp_path / "other") if word == str(tmp_path / "user") else word for word in loopback)
    with pytest.raises(OrinportError, match="cannot be used over ssh"):
        build_remotely(bundle, f"{user()}@127.0.0.1", [], lambda _: None, ssh=other)


def test_what_builds_left_is_not_copied_but_a_timing_cache_is_used_again(
    bundle: Path, loopback: tuple[str, ...], tmp_path: Path
) -> None:
    (bundle / "model.engine").write_text("old")
    (bundle / "timing.cache").write_text("known tactics")
    (bundle / "boards").mkdir()
    program = tmp_path / "trtexec"
    program.write_text(
        program.read_text().replace('engine=""', "engine=\"\"; echo \"[I] here: $(ls | tr '\\n' ' ')\"", 1)
    )
    lines: list[str] = []
    options = ["--timingCacheFile=timing.cache", "--exportLayerInfo=layers.json"]
    result = build_remotely(bundle, f"{user()}@127.0.0.1", options, lines.append, ssh=loopback)
    assert "[I] here: build.sh model.onnx timing.cache " in lines
    assert "[I] cache was known tactics" in lines
    assert result.beside == (bundle / "timing.cache", bundle / "layers.json")
    assert (bundle / "timing.cache").read_text() == "trtexec"
    assert (bundle / "model.engine").read_text() == "engine"


def test_a_lost_connection_ends_the_build_on_the_board(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys(tmp_path)
    with ssh_server(tmp_path, tmp_path / "trtexec", SLEEP="60") as port:
        ssh = ("ssh", *ssh_options(tmp_path), "-p", str(port))
        held: list[subprocess.Popen[str]] = []

        def show(line: str) -> None:
            if "saveEngine" in line:
                held[0].kill()

        with pytest.raises(OrinportError, match=r"connection to .* was lost"):
            build_remotely(bundle, f"{user()}@127.0.0.1", [], show, ssh=ssh, hold=held.append)
        board = int((tmp_path / "trtexec.pid").read_text())
        for _ in range(400):
            if not Path(f"/proc/{board}").exists():
                break
            time.sleep(0.05)
        assert not Path(f"/proc/{board}").exists()
    assert [path.exists() for path in folders((bundle / "build.log").read_text().splitlines())] == [False]
    assert sorted(path.name for path in bundle.iterdir()) == ["build.log", "build.sh", "model.onnx"]


def test_a_board_whose_shell_talks_is_refused(bundle: Path, tmp_path: Path) -> None:
    program = write_program(tmp_path / "ssh", '#!/bin/sh\necho Welcome\nshift\nexec sh -c "$*"\n')
    with pytest.raises(OrinportError, match="print something at login"):
        build_remotely(bundle, "user@board", [], lambda _: None, ssh=(str(program),))
