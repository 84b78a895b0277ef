"""The one class of errors that a user can cause."""

from __future__ import annotations

__all__ = ["MissingExtraError", "OrinportError", "first_line"]


class OrinportError(Exception):
    """Bad input or usage: one sentence and, where there is one, a hint what to do.

    The command line prints it on one line and exits with status 2. Anything else that escapes is a
    defect of orinport.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class MissingExtraError(OrinportError):
    """A command needs an optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}, which is not installed.",
            f"Install it with: pip install 'orinport[{extra}]'",
        )
        self.package = package
        self.extra = extra


def first_line(error: BaseException) -> str:
    """What another library's exception says, in one line; its class if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
