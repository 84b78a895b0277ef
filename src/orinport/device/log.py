"""`read_log`: what a log of trtexec, or of a program that uses TensorRT, says about the DLA.

Every line is put into one class: the messages of the catalogue, a few others that decide about a build, the
partition summary, and lines that say nothing here. Lines that speak of the DLA and match no message are
counted and shown, never guessed at.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from io import TextIOBase
from typing import TYPE_CHECKING

from orinport.rules.catalogue import rules
from orinport.targets.catalogue import log_messages
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["LogClass", "LogFinding", "LogReport", "log_classes", "read_log", "rule_codes"]

_SHOWN = 20
_LONGEST = 4096
_MOST_NAMES = 10_000
_PREFIX = re.compile(
    r"^(?:\x1b\[[\d;]*m)*\s*(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\]\s*)*(?:\[(?P<severity>[EWIV])\]\s*)?(?:\[TRT\]\s*)?"
    r"(?:\[(?P<word>[EWIV])\]\s*)?(?:(?P<level>ERROR|WARNING|INFO): )?(?:\[TRT\]:?\s*)?"
)
_ERROR = re.compile(r"Error\[\d+\]:|Error Code \d+:")
_TOKENS = (
    *("DLA", "Dla", "dla", "NVM", "nvm", "ForeignNode", "[E]", "rror", "&&&&", "Layer]", "importer", "lugin"),
    *(
        "engine",
        "INT64",
        "scale",
        "option",
        "--",
        "GPU memory",
        "TensorRT version",
        "parse",
        "ayers Running",
        "ayers running",
        "conformant",
        "deprecated",
        "build.sh",
    ),
)
_GENERIC = ("MSG01", "MSG02", "MSG03", "MSG04", "MSG23")
"""Messages that say that a layer is refused and not why."""
_VERSION = re.compile(r"TensorRT version: (?P<dotted>[\d.]+)|\[TensorRT v(?P<packed>\d{4,6})\]")
_OUTCOME = re.compile(r"&&&& (?P<outcome>PASSED|FAILED) TensorRT")
_COMMAND = re.compile(r"&&&& RUNNING TensorRT\.trtexec \[[^\]]*\] # (?P<command>.+)")
_GPU_LAYER = re.compile(r"\[GpuLayer\] (?:(?P<kind>[A-Z_]+): )?(?P<layer>.+)")
_LISTED = re.compile(r"-+ Layers running on (?P<device>DLA|GPU):")
"""Before the partition summary of TensorRT 8, one line named the layers of each device."""
_SETS = re.compile(r"\{[^{}]*\}")
_DLA_LAYER = re.compile(r"\[DlaLayer\] \{ForeignNode\[(?P<layer>.+?)\]\}")
_ABOUT_DLA = re.compile(r"\bDLA\b|nvdla|NvMedia|nvmedia", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LogClass:
    """One kind of line: the message, what it means, and what to do."""

    id: str
    pattern: re.Pattern[str]
    literals: tuple[str, ...]
    """One of them stands in every line that matches."""
    meaning: str
    help: str
    weight: str
    """`refusal`, `fatal`, `consequence` (follows from another line) or `note`."""
    codes: tuple[str, ...]
    """Our findings that say the same."""
    source: str


@dataclass(slots=True)
class LogFinding:
    """All lines of one kind."""

    kind: LogClass
    lines: int = 0
    first_line: int = 0
    text: str = ""
    """The first line, without its prefix."""
    names: Counter[str] = field(default_factory=Counter)
    """Layers that the lines name, and how often."""
    values: dict[str, str] = field(default_factory=dict)
    """What the first line measured: `value`, `limit`, `operation`, ..."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """What a log says."""

    lines: int
    version: str
    """TensorRT's version if a line names it, else empty."""
    command: str
    outcome: str
    """`PASSED`, `FAILED`, or empty if the log does not say."""
    findings: tuple[LogFinding, ...]
    """In the order of their first lines."""
    dla_regions: tuple[str, ...]
    """`first...last` of each region in the partition summary."""
    gpu_layers: tuple[str, ...]
    unknown: int
    """Lines about the DLA that match no message."""
    unknown_examples: tuple[str, ...]
    errors: int = 0
    """Errors that match no message, whatever they are about."""
    error_examples: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """Layers that the log says the DLA does not take, in order."""
        kinds = [f for f in self.findings if f.kind.weight == "refusal" or f.kind.id in _GENERIC]
        names = (name for finding in kinds for name in finding.names)
        return tuple(dict.fromkeys(names))

    @property
    def reason(self) -> LogFinding | None:
        """Why the build or run failed: the first fatal line, or the refusal behind it.

        None if nothing failed, or if an error that no message matches may be why. A refused layer ends no build that
        may fall back to the GPU.
        """
        refusals = [finding for finding in self.findings if finding.kind.weight == "refusal"]
        specific = [finding for finding in refusals if finding.kind.id not in _GENERIC]
        for finding in self.findings:
            if finding.kind.weight == "fatal":
                return specific[0] if finding.kind.id in _GENERIC and specific else finding
        if not self.failed or self.errors:
            return None
        consequences = [finding for finding in self.findings if finding.kind.weight == "consequence"]
        blamed = () if "--allowGPUFallback" in self.command else (*specific, *refusals)
        return next(iter((*blamed, *consequences)), None)

    @property
    def failed(self) -> bool:
        """The log says so, in its last line or by a consequence of a failure."""
        return self.outcome == "FAILED" or any(finding.kind.weight == "consequence" for finding in self.findings)


@cache
def rule_codes() -> Mapping[str, tuple[str, ...]]:
    """Codes of the rules that put a catalogue row into effect, by row."""
    found: dict[str, list[str]] = {}
    for rule in rules():
        for row in rule.rows:
            found.setdefault(row, []).append(rule.code)
    return {row: tuple(codes) for row, codes in found.items()}


@cache
def log_classes() -> tuple[LogClass, ...]:
    """All kinds of lines that are known, those about the DLA first."""
    codes = rule_codes()
    found = [
        LogClass(
            message.id,
            re.compile(message.pattern),
            _literals(message.pattern),
            message.meaning,
            message.help,
            message.weight,
            tuple(dict.fromkeys(code for row in message.rows for code in codes.get(row, ()))),
            f"seen in {message.seen}",
        )
        for message in log_messages().values()
        if message.id not in ("MSG27", "MSG30")
    ]
    table = read_toml(resources.files("orinport.targets") / "data" / "log.toml")
    for name, entry in table.items():
        pattern = entry["pattern"]
        found.append(
            LogClass(
                name,
                re.compile(pattern),
                _literals(pattern),
                entry["meaning"],
                entry["help"],
                entry["weight"],
                (),
                entry["source"],
            )
        )
    return tuple(found)


def _literals(pattern: str) -> tuple[str, ...]:
    """For each alternative of `pattern` the longest stretch of plain text that all its matches hold."""
    return tuple(_literal(alternative) for alternative in _alternatives(pattern))


def _alternatives(pattern: str) -> list[str]:
    """The parts between bars that stand in no group."""
    found, depth, start = [], 0, 0
    for piece in re.finditer(r"\\.|\[[^\]]*\]|[()|]", pattern):
        depth += {"(": 1, ")": -1}.get(piece.group(), 0)
        if piece.group() == "|" and depth == 0:
            found.append(pattern[start : piece.start()])
            start = piece.end()
    return [*found, pattern[start:]]


def _literal(alternative: str) -> str:
    inner = re.sub(r"(?<!\\)\((?:[^()\\]|\\.)*\)\??", "\0", alternative)
    plain = re.sub(r"\[[^\]]*\][+*?]*|\\[dwSs][+*?]*|\\?.[+*?]+", "\0", inner)
    plain = re.sub(r"\\(.)", r"\1", plain)
    return max(plain.split("\0"), key=len)


def _bounded(file: TextIOBase) -> Iterator[str]:
    """The beginning of every line."""
    while line := file.readline(_LONGEST):
        rest = line
        while len(rest) == _LONGEST and not rest.endswith("\n"):
            rest = file.readline(_LONGEST)
        yield line


@cache
def _by_literal() -> tuple[tuple[str, LogClass], ...]:
    return tuple((literal, kind) for kind in log_classes() for literal in kind.literals)


def read_log(lines: Iterable[str]) -> LogReport:
    """Read a log line by line; memory grows neither with its length nor, if it is a file, with that of a line."""
    reader = _Reader()
    for line in _bounded(lines) if isinstance(lines, TextIOBase) else lines:
        reader.number += 1
        if reader.listed or any(token in line for token in _TOKENS):
            reader.read(line[:_LONGEST].rstrip("\r\n"))
    return reader.report()


class _Reader:
    def __init__(self) -> None:
        self.number = 0
        self._version = self._command = self._outcome = ""
        self._findings: dict[str, LogFinding] = {}
        self._dla: list[str] = []
        self._gpu: list[str] = []
        self._unknown = self._errors = 0
        self._examples: list[str] = []
        self._error_examples: list[str] = []
        self.listed = ""
        """The device whose layers the next line lists."""

    def read(self, line: str) -> None:
        prefix = _PREFIX.match(line)
        assert prefix is not None
        text = line[prefix.end() :]
        if self._frame(text) or self._summary(text):
            return
        for literal, kind in _by_literal():
            if literal in text and (found := kind.pattern.search(text)):
                self._note(kind, text, found)
                return
        if "E" in (prefix["severity"], prefix["word"]) or prefix["level"] == "ERROR" or _ERROR.search(text):
            self._errors += 1
            if len(self._error_examples) < _SHOWN:
                self._error_examples.append(text[:300])
        if _ABOUT_DLA.search(text) and not text.startswith(("=", "---")) and "--" not in text[:2]:
            self._unknown += 1
            if len(self._examples) < _SHOWN:
                self._examples.append(text[:300])

    def _frame(self, text: str) -> bool:
        """Version, command and outcome."""
        version = _VERSION.search(text)
        if version and not self._version:
            self._version = version["dotted"] or _unpacked(version["packed"])
        command = _COMMAND.search(text)
        if command:
            self._command = command["command"]
        outcome = _OUTCOME.search(text)
        if outcome:
            self._outcome = outcome["outcome"]
        return bool(version or command or outcome)

    def _summary(self, text: str) -> bool:
        """The partition summary."""
        device, self.listed = self.listed, ""
        if found := _LISTED.match(text):
            self.listed = found["device"]
            return True
        if "Layers Running on" in text:
            return True
        if device and text.rstrip().endswith(",") and "Layer]" not in text.split("{")[0]:
            return self._list(device, text)
        if found := _DLA_LAYER.search(text):
            if len(self._dla) < _MOST_NAMES:
                self._dla.append(found["layer"])
            return True
        if found := _GPU_LAYER.search(text):
            if len(self._gpu) < _MOST_NAMES:
                self._gpu.append(found["layer"])
            return True
        return False

    def _list(self, device: str, text: str) -> bool:
        """The one line that names all layers of a device: `{a,b}, {c},` or `a, b + c,`."""
        if device == "DLA":
            self._dla += _SETS.findall(text)[: _MOST_NAMES - len(self._dla)]
        else:
            names = [name.strip() for name in text.split(", ")]
            self._gpu += [name.rstrip(",") for name in names if name.strip(",")][: _MOST_NAMES - len(self._gpu)]
        return True

    def _note(self, kind: LogClass, text: str, found: re.Match[str]) -> None:
        finding = self._findings.get(kind.id)
        groups = {key: value for key, value in found.groupdict().items() if value is not None}
        layer = groups.pop("layer", "").strip()
        if finding is None:
            finding = self._findings[kind.id] = LogFinding(kind, 0, self.number, text[:500], Counter(), groups)
        finding.lines += 1
        if layer and (layer in finding.names or len(finding.names) < _MOST_NAMES):
            finding.names[layer] += 1

    def report(self) -> LogReport:
        return LogReport(
            self.number,
            self._version,
            self._command,
            self._outcome,
            tuple(sorted(self._findings.values(), key=lambda finding: finding.first_line)),
            tuple(self._dla),
            tuple(self._gpu),
            self._unknown,
            tuple(self._examples),
            self._errors,
            tuple(self._error_examples),
        )


def _unpacked(digits: str) -> str:
    """`8502` is 8.5.2, `8601` 8.6.1, `100300` 10.3.0: the way trtexec prints its version."""
    number = int(digits)
    if number >= 100_000:
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
