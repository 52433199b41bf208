"""An environment of pinned packages: made once, and again only when the pins change."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


class SetupError(Exception):
    """The environment cannot be made; one sentence says why."""


class Environment:
    """A virtual environment in ``folder`` that holds what some requirement files pin."""

    def __init__(
        self,
        folder: Path,
        requirements: Sequence[Path],
        without_dependencies: Sequence[Path] = (),
        base_python: str = sys.executable,
        mark: str = "spillway-installed.json",
        project: Path | None = None,
    ) -> None:
        """``project``, where given, is installed as it stands there, for its commands."""
        self._folder = folder
        self._requirements = tuple(requirements)
        self._without_dependencies = tuple(without_dependencies)
        self._base_python = base_python
        self._mark = mark
        self._project = project

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self._folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def ensure(self) -> None:
        """Make it, or bring it up to its pins; returns at once where nothing has changed.

        Raises:
            SetupError: it cannot be made.
        """
        try:
            self._ensure()
        except OSError as error:
            what = f" ({error.filename})" if error.filename else ""
            raise SetupError(
                f"The environment in {self._folder} cannot be made: {error.strerror or error}{what}."
            ) from error

    def _ensure(self) -> None:
        wanted = self._fingerprint()
        mark = self._folder / self._mark
        if self.python.exists() and _read(mark) == wanted:
            return
        if not self.python.exists():
            _say(f"Making an environment in {self._folder}")
            self._make()
        for path in self._requirements:
            _install(self.python, path.stem, "-r", str(path))
        for path in self._without_dependencies:
            _install(self.python, path.stem, "--no-deps", "-r", str(path))
        if self._project is not None:
            _install(self.python, "spillway", "--no-deps", "--no-build-isolation", "-e", str(self._project))
        mark.write_text(wanted, encoding="utf-8")

    def _make(self) -> None:
        if self._folder.exists():
            shutil.rmtree(self._folder)
        made = False
        try:
            result = subprocess.run(  # noqa: S603 - the interpreter that runs this, or one the user named
                [self._base_python, "-m", "venv", str(self._folder)], capture_output=True, text=True, check=False
            )
            made = result.returncode == 0
        finally:
            if not made:
                # A venv that failed half way has an interpreter and no pip: the next run must begin anew.
                shutil.rmtree(self._folder, ignore_errors=True)
        if not made:
            problem = (result.stderr or result.stdout).strip().splitlines()
            raise SetupError(
                f"An environment cannot be made in {self._folder}: {problem[-1] if problem else 'venv failed'}. "
                "(On Debian and Ubuntu the package python3-venv is needed.)"
            )

    def _fingerprint(self) -> str:
        texts = [_with_included(path) for path in (*self._requirements, *self._without_dependencies)]
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        return json.dumps({"pins": digest, "base": self._base_python, "project": str(self._project)})


def _with_included(path: Path) -> str:
    """A requirement file's text, with the files that it includes by ``-r``."""
    text = path.read_text(encoding="utf-8")
    included = re.findall(r"^-r\s+(\S+)", text, flags=re.MULTILINE)
    return "\n".join([text, *(_with_included(path.parent / name) for name in included)])


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def _install(python: Path, name: str, *arguments: str) -> None:
    """``pip install``, with one line of progress for each package; ``name`` is what to call it."""
    command = [
        str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off",
        *arguments,
    ]  # fmt: skip
    started = time.monotonic()
    seen: list[str] = []
    last_lines: list[str] = []
    with subprocess.Popen(  # noqa: S603 - our own environment's pip
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace"
    ) as process:
        for line in process.stdout or ():
            last_lines = [*last_lines[-5:], line.strip()] if line.strip() else last_lines
            words = line.split()
            if line.startswith("Collecting") and len(words) > 1:
                seen.append(words[1])
                _progress(f"{name}: {len(seen)} packages, {_name(words[1])}", started)
            elif line.lstrip().startswith("Downloading") and len(words) > 2:
                _progress(f"{name}: {len(seen)} packages, downloading {' '.join(words[1:])}", started)
            elif line.startswith("Installing collected"):
                _progress(f"{name}: installing {len(words) - 3} packages", started)
    _end_progress()
    if process.returncode:
        errors = [line for line in last_lines if line.startswith("ERROR")] or last_lines[-1:]
        raise SetupError(f"Installing {name} failed: {errors[0] if errors else 'pip gave no reason'}")
    _say(f"{name} installed in {time.monotonic() - started:.0f} s")


def _name(requirement: str) -> str:
    return re.split(r"[=<>!~;\[ ]", requirement, maxsplit=1)[0]


def _progress(words: str, started: float) -> None:
    text = f"{words} ({time.monotonic() - started:.0f} s)"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + text[:width].ljust(width))
    else:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _end_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
