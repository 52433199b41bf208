"""Everything that can be wrong with what a person types: one clear sentence, an exit code, and nothing lost."""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.records import make_record

pytestmark = pytest.mark.usefixtures("reuse")
GENERATE = ("generate", "a cat", "--simulated-card", "1GiB")
SMALL = ("--width", 64, "--height", 64, "--steps", 1)


@pytest.fixture
def logged(tmp_path) -> Path:
    """A data folder with one image in its log and one among its pictures."""
    from sd_webui_spillway.timing import ImageLog

    log = ImageLog.open(tmp_path / "data" / "images.sqlite3")
    log.append(make_record(0))
    log.close()
    (tmp_path / "data" / "outputs").mkdir()
    (tmp_path / "data" / "outputs" / "kept.png").write_bytes(b"kept")
    return tmp_path / "data"


def nothing_lost(data: Path) -> None:
    from sd_webui_spillway.timing import ImageLog

    log = ImageLog.open(data / "images.sqlite3")
    assert log.count() == 1
    log.close()
    assert [path.name for path in (data / "outputs").iterdir()] == ["kept.png"]
    assert (data / "outputs" / "kept.png").read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--width", 0), ["width", "8", "8192", "0"]),
        (("--height", 0), ["height", "8", "8192"]),
        (("--width", -64), ["width", "-64"]),
        (("--width", 10**9), ["width", "8192", "1000000000"]),
        (("--width", 65), ["width", "multiple of 8", "65"]),
        (("--height", 100), ["height", "multiple of 8", "100"]),
        (("--steps", 0), ["steps", "1000"]),
        (("--batch-size", 0), ["batch size", "64"]),
        (("--batch-count", 10**6), ["batch count", "1000"]),
        (("--seed", -1), ["seed", "-1"]),
        (("--guidance-scale", "nan"), ["guidance scale", "nan"]),
        (("--strength", 0), ["strength", "above 0"]),
        (("--init-image", "nowhere.png"), ["no picture", "nowhere.png"]),
        (("--sampler", "magic"), ["sampler", "magic", "euler"]),
        (("--profile", "huge"), ["profile", "huge", "medvram"]),
        (("--profile", "stream"), ["stream", "unavailable", "CUDA"]),
        (("--profile", "spill"), ["spill", "unavailable", "CUDA"]),
        (("--precision", "fp8"), ["precision", "fp8", "fp16"]),
    ],
)
def test_a_request_that_cannot_be_made(spillway, tiny, logged, words, said):
    answer = spillway(*GENERATE, "--model", tiny, *words)
    sentence = answer.sentence()
    assert answer.code == 2, sentence
    assert all(word in sentence for word in said), sentence
    assert answer.out == ""
    nothing_lost(logged)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dedicated-limit", "lots"), ["lots", "memory size", "3GiB"]),
        (("--dedicated-limit", "0"), ["0", "above zero"]),
        (("--simulated-card", "-3GiB"), ["-3GiB"]),
        (("--dedicated-limit", "3GiB", "--simulated-card", "3GiB"), ["--dedicated-limit", "--simulated-card", "both"]),
    ],
)
def test_a_limit_that_is_none(spillway, tiny, logged, words, said):
    if words[1].startswith("-"):
        words = (f"{words[0]}={words[1]}",)
    answer = spillway("generate", "a cat", "--model", tiny, *SMALL, *words)
    sentence = answer.sentence()
    assert answer.code == 2
    assert all(word in sentence for word in said), sentence
    nothing_lost(logged)


def test_a_word_instead_of_a_number(spillway, tiny, logged):
    answer = spillway(*GENERATE, "--width", "wide")
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert "argument --width: invalid int value: 'wide'" in answer.err
    nothing_lost(logged)


def test_a_strength_that_leaves_no_step(spillway, tiny, logged, tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "start.png")
    answer = spillway(*GENERATE, *SMALL, "--model", tiny, "--init-image", tmp_path / "start.png", "--strength", 0.5)
    assert answer.code == 2
    assert "strength of 0.5 leaves none of 1 steps" in answer.sentence()
    nothing_lost(logged)


def test_a_start_picture_that_is_none(spillway, tiny, logged, tmp_path):
    (tmp_path / "notes.png").write_text("milk, eggs")
    answer = spillway(
        *GENERATE, *SMALL, "--steps", 2, "--model", tiny, "--init-image", tmp_path / "notes.png"
    )
    assert answer.code == 2
    assert "notes.png" in answer.sentence()
    assert "picture" in answer.sentence()
    nothing_lost(logged)


class Runs:
    def __reduce__(self):
        return os.mkdir, ("was-run",)


def bad_model(kind: str, tiny: Path, folder: Path) -> Path:
    if kind == "missing":
        return folder / "missing.safetensors"
    if kind == "empty":
        (folder / "empty.safetensors").touch()
        return folder / "empty.safetensors"
    if kind == "truncated":
        (folder / "truncated.safetensors").write_bytes(tiny.read_bytes()[:-5000])
        return folder / "truncated.safetensors"
    if kind == "unknown layout":
        save_file({"blocks.0.weight": torch.zeros(4, 4)}, folder / "other.safetensors")
        return folder / "other.safetensors"
    if kind == "code":
        torch.save({"state_dict": {"weight": torch.zeros(2), "more": Runs()}}, folder / "evil.ckpt")
        return folder / "evil.ckpt"
    if kind == "plain pickle":
        (folder / "plain.ckpt").write_bytes(pickle.dumps(Runs(), protocol=2))
        return folder / "plain.ckpt"
    (folder / "folder").mkdir()
    return folder / "folder"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "no model file"), ("empty", "empty"), ("truncated", "truncated"),
        ("unknown layout", "not a whole SD model"),
        ("code", "refused"), ("plain pickle", "refused"), ("folder", "folder"),
    ],
)
def test_a_model_that_is_none(spillway, tiny, logged, tmp_path, monkeypatch, kind, said):
    monkeypatch.chdir(tmp_path)
    path = bad_model(kind, tiny, tmp_path)
    answer = spillway(*GENERATE, "--model", path, *SMALL)
    assert answer.code == 1
    sentence = answer.sentence()
    assert said in sentence, sentence
    assert path.name in sentence
    assert not (tmp_path / "was-run").exists()
    nothing_lost(logged)


def test_a_data_folder_that_cannot_be(spillway, tiny, tmp_path):
    (tmp_path / "file").write_text("kept")
    for command in ((*GENERATE, "--model", tiny, *SMALL), ("log",), ("serve", "--model", tiny, "--simulated-card=1G")):
        answer = spillway(*command, data=tmp_path / "file" / "data")
        assert answer.code == 1
        assert str(tmp_path / "file" / "data") in answer.sentence()
        assert "--data-folder" in answer.sentence()
    assert (tmp_path / "file").read_text() == "kept"


def test_an_output_folder_that_cannot_be(spillway, tiny, logged, tmp_path):
    (tmp_path / "file").write_text("kept")
    answer = spillway(*GENERATE, "--model", tiny, *SMALL, "--output", tmp_path / "file" / "pictures")
    assert answer.code == 1
    assert str(tmp_path / "file" / "pictures") in answer.sentence()
    nothing_lost(logged)


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_busy_port(spillway, tiny, logged, command, monkeypatch):
    pytest.importorskip("uvicorn", reason="needs gradio's web server")
    pytest.importorskip("gradio", reason="needs gradio")
    from sd_webui_spillway.cli import run_job

    def nothing_done(*_):
        raise AssertionError("the port is looked at first")

    monkeypatch.setattr(run_job, "_open", nothing_done)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        answer = spillway(command, "--model", tiny, "--simulated-card", "1GiB", "--port", port, "--no-browser")
    assert answer.code == 1
    assert f"Port {port} is in use" in answer.sentence()
    nothing_lost(logged)


def test_a_port_that_is_none(spillway, tiny, logged):
    pytest.importorskip("gradio", reason="needs gradio")
    answer = spillway("serve", "--model", tiny, "--simulated-card", "1GiB", "--port", 99999, "--no-browser")
    assert answer.code == 2
    assert "from 0 to 65535" in answer.sentence()


def test_memory_for_nothing_at_all(spillway, tiny, logged):
    answer = spillway("generate", "a cat", "--simulated-card", "400KiB", "--model", tiny, *SMALL)
    assert answer.code == 1
    lines = [line for line in answer.err.splitlines() if line.startswith("No image could be made")]
    assert len(lines) == 1
    assert "Traceback" not in answer.err
    assert (logged / "outputs" / "kept.png").exists()
