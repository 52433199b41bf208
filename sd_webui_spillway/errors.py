"""The errors a person is meant to read: one sentence each."""

from __future__ import annotations


class SpillwayError(Exception):
    """Something a person can act on. ``str(error)`` is one clear sentence; ``detail`` is the technical line."""

    def __init__(self, sentence: str, *, detail: str | None = None) -> None:
        super().__init__(sentence)
        self.detail = detail


class BadInputError(SpillwayError):
    """What was asked for cannot be done as asked: a size, a name, a file."""


class ModelFileError(SpillwayError):
    """A model file cannot be used: truncated, unknown layout, or unsafe to open."""


class StorageError(SpillwayError):
    """A folder, a disk or a database cannot be written or read."""


class UnavailableError(SpillwayError):
    """An operation this machine or host lacks: "unavailable, because …"."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class name where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
