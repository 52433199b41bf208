"""The environments that tests run in: our own, small ones with only gradio, and the two that WebUI users have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .environment import Environment

GIB = 2**30
_PANEL_TESTS = ("tests/panel", "tests/browser", "tests/test_session.py")
_CORE_TESTS = ("tests", *(f"--ignore=tests/{name}" for name in ("browser", "bootstrap", "cli", "test_style.py")))


@dataclass(frozen=True)
class Stack:
    """One set of pinned packages, and the tests that make sense on it."""

    name: str
    tests: tuple[str, ...]
    python: tuple[int, int] | None = None
    """The Python version it needs; ``None`` is whichever runs this."""
    disk_bytes: int = GIB
    vocabulary: bool = False


STACKS = {
    stack.name: stack
    for stack in (
        Stack("gradio-3", _PANEL_TESTS),
        Stack("gradio-4", _PANEL_TESTS),
        Stack("gradio-6", _PANEL_TESTS),
        Stack("a1111", _CORE_TESTS, (3, 10), 7 * GIB),
        Stack("forge", _CORE_TESTS, (3, 10), 7 * GIB, vocabulary=True),
    )
}


def cache_folder() -> Path:
    """Where stacks are kept between runs, beside what the program itself caches."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "sd-webui-spillway" / "stacks"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sd-webui-spillway" / "stacks"


def cannot_run_because(stack: Stack) -> str | None:
    """Why a stack's tests cannot run here: no such Python, or no room on the disk."""
    if _python_for(stack) is None:
        return f"it needs Python {stack.python[0]}.{stack.python[1]}, and none was found" if stack.python else None
    if (cache_folder() / stack.name).exists():
        return None
    place = next(folder for folder in (cache_folder(), *cache_folder().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if free < stack.disk_bytes + 2 * GIB:
        return f"it needs {stack.disk_bytes / GIB:.0f} GiB of disk and {free / GIB:.1f} GiB are free in {place}"
    return None


def environment_of(stack: Stack, root: Path) -> Environment:
    """The stack's environment, made on first use and kept."""
    folder = root / "requirements"
    extra = (folder / "vocabulary.txt",) if stack.vocabulary else ()
    python = _python_for(stack) or sys.executable
    return Environment(cache_folder() / stack.name, (folder / f"{stack.name}.txt",), extra, python)


def _python_for(stack: Stack) -> str | None:
    if stack.python is None or sys.version_info[:2] == stack.python:
        return sys.executable
    version = f"{stack.python[0]}.{stack.python[1]}"
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for candidate in candidates:
        if candidate and _version_of([candidate]) == stack.python:
            return candidate
    launcher = shutil.which("py")
    if launcher and _version_of([launcher, f"-{version}"]) == stack.python:
        return _output([launcher, f"-{version}", "-c", "import sys; print(sys.executable)"])
    return None


def _version_of(command: list[str]) -> tuple[int, int] | None:
    """A launcher or shim may be on the path with no interpreter behind it, so ask it."""
    answer = _output([*command, "-c", "import sys; print(*sys.version_info[:2])"])
    parts = answer.split() if answer else []
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else None


def _output(command: list[str]) -> str | None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - interpreters on the path
    return result.stdout.strip() if result.returncode == 0 else None
