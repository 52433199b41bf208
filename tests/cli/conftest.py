"""The command line over a tiny model; nothing outside the test's folders is read or written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answer:
    """What a command wrote and how it ended."""

    code: int
    out: str
    err: str

    def sentence(self) -> str:
        """The one line on standard error, apart from what every run says of the model and the card."""
        assert "Traceback" not in self.err
        notices = ("There is no GPU here", "The embedded model is small")
        lines = [line for line in self.err.splitlines() if line.strip() and not line.startswith(notices)]
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def needed():
    missing = [n for n in ("diffusers", "transformers", "rich", "platformdirs") if importlib.util.find_spec(n) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if not any(importlib.util.find_spec(name) for name in ("open_clip", "clip")):
        pytest.skip("needs the package open_clip_torch, which carries CLIP's vocabulary")


@pytest.fixture(scope="session")
def caches(tmp_path_factory, needed) -> Path:
    return tmp_path_factory.mktemp("cli-cache")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory, needed) -> Path:
    """A tiny SD 1 checkpoint in the original layout."""
    from sd_webui_spillway.models import make_checkpoint

    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny.safetensors", "sd1", "tiny", 0)


@pytest.fixture(scope="session")
def loaded(tiny, caches):
    from sd_webui_spillway.models import load_model

    return load_model(tiny, caches, torch.float32)


@pytest.fixture
def spillway(tmp_path, caches, monkeypatch, capfd) -> Callable[..., Answer]:
    """Runs ``spillway`` in this process, its data in the test's folder."""
    from sd_webui_spillway.cli import main
    from sd_webui_spillway.hosts import standalone

    monkeypatch.setattr(standalone, "cache_folder", lambda: caches)
    monkeypatch.setenv("COLUMNS", "400")  # so that no sentence is wrapped
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def run(*words: object, data: Path | None = None) -> Answer:
        capfd.readouterr()
        try:
            code = main(["--data-folder", str(data or tmp_path / "data"), *map(str, words)])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run


@pytest.fixture
def reuse(monkeypatch, loaded, tiny):
    """The tiny model is loaded once for all tests whose subject is something else."""
    from sd_webui_spillway.hosts import standalone

    load = standalone.load_model

    def load_once(path, *rest):
        return loaded if path == tiny else load(path, *rest)

    monkeypatch.setattr(standalone, "load_model", load_once)


@pytest.fixture
def process(tmp_path, caches) -> Callable[..., subprocess.Popen]:
    """Starts ``python -m sd_webui_spillway`` with its data and caches in the test's folders."""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200",
        "XDG_CACHE_HOME": str(caches), "LOCALAPPDATA": str(caches), "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    started = []

    def start(*words: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "sd_webui_spillway", "--data-folder", str(tmp_path / "data"), *map(str, words)]
        started.append(subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.communicate()
