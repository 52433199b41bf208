"""The code is checked by ruff and mypy as part of the tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", [("ruff", "check", "."), ("mypy",)], ids=["ruff", "mypy"])
def test_finds_nothing(command: tuple[str, ...]) -> None:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"checking the code needs {command[0]} (requirements/test.txt)")
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert result.returncode == 0, result.stdout + result.stderr
