"""A stand-in interpreter that notes what it is asked to do; no network, nothing installed."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_STUB = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__)
words = sys.argv[1:]
with open({calls!r}, "a") as stream:
    stream.write(json.dumps([here.name, words]) + "\\n")
if words[:2] == ["-m", "venv"]:
    folder = pathlib.Path(words[2]) / "bin"
    folder.mkdir(parents=True)
    target = folder / "python"
    target.write_text(here.read_text())
    target.chmod(0o755)
answer = pathlib.Path({answers!r}) / (words[1] if words[:1] == ["-m"] else "other")
if answer.exists():
    code, text = answer.read_text().split("\\n", 1)
    print(text)
    sys.exit(int(code))
"""


class StubPython:
    """An executable that writes down each call and answers as told; ``-m venv`` makes a folder with a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stub-python"
        self._calls, self._answers = folder / "calls.jsonl", folder / "answers"
        self._answers.mkdir()
        self.path.write_text(_STUB.format(python=sys.executable, calls=str(self._calls), answers=str(self._answers)))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def answer(self, module: str, code: int, text: str) -> None:
        """What ``-m module`` prints and returns from now on (``other``: what is no ``-m``)."""
        (self._answers / module).write_text(f"{code}\n{text}")

    def calls(self) -> list[list[str]]:
        """The arguments of every call so far, in order; forgotten once read."""
        if not self._calls.exists():
            return []
        lines = self._calls.read_text().splitlines()
        self._calls.unlink()
        return [json.loads(line)[1] for line in lines]


@pytest.fixture
def stub(tmp_path) -> StubPython:
    if os.name == "nt":
        pytest.skip("needs scripts that run by their first line, which Windows lacks")
    folder = tmp_path / "stub"
    folder.mkdir()
    return StubPython(folder)


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with the requirement files that the program has, all of them empty."""
    folder = tmp_path / "project" / "requirements"
    folder.mkdir(parents=True)
    for name in ("standalone", "vocabulary", "test", "gradio-3"):
        (folder / f"{name}.txt").write_text("")
    return folder.parent


@pytest.fixture
def commands(monkeypatch) -> list[list[str]]:
    """What would have been run in the foreground; every command ends with exit code 7."""
    from sd_webui_spillway.bootstrap import main

    seen: list[list[str]] = []

    def run(command: list[str], root: Path) -> int:
        seen.append(command)
        return 7

    monkeypatch.setattr(main_module(main), "_run", run)
    return seen


def main_module(function: Callable):
    """The module behind the function that the package exports under the same name."""
    return sys.modules[function.__module__]
