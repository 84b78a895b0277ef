"""The command line: `orinport COMMAND ...`. One module a command, loaded only when it is called."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import App

__all__ = ["build_app", "entry", "main"]

EXIT_CLEAN = 0
EXIT_USAGE = 2
EXIT_DEFECT = 3
EXIT_INTERRUPTED = 130

_COMMANDS = {
    "check": ("orinport.cli.check:check", "Say which layers the DLA takes, and why it refuses the others."),
    "explain": (
        "orinport.cli.explain:explain",
        "Explain a finding's code: rule, reason, example, what to do, source.",
    ),
    "prepare": (
        "orinport.cli.prepare:prepare",
        "Rewrite a network for the DLA and write the folder for the board.",
    ),
    "quantize": (
        "orinport.cli.quantize:quantize",
        "Find INT8 scales from data, a file or Q/DQ layers, and write them as the target reads them.",
    ),
    "predict": (
        "orinport.cli.predict:predict",
        "Predict time, bound, utilisation and bytes of every layer, without a board.",
    ),
    "matmul": (
        "orinport.cli.matmul:matmul",
        "Rank the ways to put a matrix product on the DLA, and write the best one.",
    ),
    "build": (
        "orinport.cli.build:build",
        "Build a bundle with trtexec, here or on a board over ssh, and explain a failure.",
    ),
    "run": (
        "orinport.cli.run:run",
        "Run a network on the board or in ONNX Runtime, and compare its outputs.",
    ),
    "doctor": (
        "orinport.cli.doctor:doctor",
        "Say what this machine has for the DLA, what is missing, and what slows it.",
    ),
    "profile": (
        "orinport.cli.profile:profile",
        "Lay what a board measured beside the prediction, layer by layer.",
    ),
    "explain-log": (
        "orinport.cli.explain_log:explain_log",
        "Read a log of TensorRT: what went where and why, and what to do.",
    ),
    "report": (
        "orinport.cli.report:report",
        "Render a bundle's report as HTML, Markdown, CSV, a trace or node data.",
    ),
    "rewrite": ("orinport.cli.rewrite:rewrite", "List, explain and apply the rewrites by themselves."),
    "dcnv4": (
        "orinport.cli.dcnv4:app",
        "Export networks with DCNv4, fuse and convert their operators, build and measure the kernels.",
    ),
    "classify": ("orinport.cli.classify:classify", "Classify pictures with a network, in ONNX Runtime."),
    "verify": (
        "orinport.cli.verify:verify",
        "Compare two models, or a bundle with its original, on random inputs.",
    ),
    "targets": (
        "orinport.cli.targets:targets",
        "List the boards and software releases, or show one with its sources.",
    ),
}


def build_app(command: str = "") -> App:
    """The application with its commands, none of them imported yet.

    `command` is the one that is called: its help is its docstring, which tells more than the line in the list.
    """
    from cyclopts import App, Parameter

    import orinport

    app = App(
        name="orinport",
        help="Port neural networks to NVIDIA Orin: what the DLA takes, why not the rest, and what makes it run.",
        version=orinport.__version__,
        help_format="markdown" if command in _COMMANDS else "plaintext",  # importing Markdown takes time
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        default_parameter=Parameter(negative_iterable=""),
    )
    for name, (path, text) in _COMMANDS.items():
        app.command(path, name=name, help=None if name == command else text)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0: clean; 1: findings, or a failed verification; 2: bad input or usage, with one line on stderr;
    3: a defect of orinport; 130: interrupted.
    """
    from cyclopts import CycloptsError, UnknownCommandError

    from orinport.errors import OrinportError

    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = build_app(argv[0] if argv else "")(argv)
        sys.stdout.flush()
    except OrinportError as error:
        return _fail(str(error), EXIT_USAGE)
    except UnknownCommandError as error:
        return _fail(_unknown_command(list(error.unused_tokens or argv)), EXIT_USAGE)
    except CycloptsError as error:
        return _fail(f"{str(error).strip() or type(error).__name__} See orinport --help.", EXIT_USAGE)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CLEAN
    except MemoryError:
        return _fail("not enough memory for this model", EXIT_USAGE)
    except Exception as error:
        if os.environ.get("ORINPORT_DEBUG"):
            raise
        if isinstance(error, OSError) and (told := _lacking(error)):
            return _fail(told, EXIT_USAGE)
        return _fail(
            f"internal error, a defect of orinport: {type(error).__name__}: {error}. ORINPORT_DEBUG=1 shows where.",
            EXIT_DEFECT,
        )
    return status if isinstance(status, int) else EXIT_CLEAN


def _fail(message: str, status: int) -> int:
    from orinport.report.style import clean

    print(f"orinport: {clean(' '.join(message.split()))}", file=sys.stderr)
    return status


def _lacking(error: OSError) -> str:
    """What the machine lacks, if that is why a file could not be written."""
    import errno

    if error.errno == errno.ENOENT and error.filename is None:  # from tempfile
        return f"{error.strerror}. Set TMPDIR to a folder that can be written to."
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):  # which pathlib hands on where a path is only looked at
        return f"{error.filename!r} is no path: {error.strerror}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        where = f"{error.filename!r}" if error.filename else "A file"
        return f"{where} cannot be written: {error.strerror}. TMPDIR says where temporary files go."
    return ""


def _unknown_command(tokens: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(tokens[0], _COMMANDS, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(_COMMANDS)}."
    return f"There is no command {tokens[0]!r}. {hint}"


def entry() -> None:
    """The console script."""
    status = main()
    if sys.argv[1:2] == ["check"]:
        _leave(status)
    sys.exit(status)


def _leave(status: int) -> None:
    """End the process without taking a large graph apart object by object, which takes a tenth of a check's time.

    `check` starts no threads and holds no files open; handlers that others registered are run.
    """
    import atexit

    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or EXIT_DEFECT
    os._exit(status)
