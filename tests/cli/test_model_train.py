"""``spillway model train``: progress, pausing, and what is refused."""

from __future__ import annotations

import pytest

from sd_webui_spillway.models.training import train as training_module


@pytest.fixture(autouse=True)
def packages():
    for name in training_module._PACKAGES:
        pytest.importorskip(name, reason=f"needs {name}")


def test_pausing_and_going_on(spillway, tmp_path):
    words = ("model", "train", tmp_path / "run", "--recipe", "tiny", "--device", "cpu")
    paused = spillway(*words, "--minutes", 0.0001)
    assert paused.code == 3
    assert "the same command goes on from there" in paused.out
    finished = spillway(*words)
    assert finished.code == 0, finished.err
    assert "autoencoder" in finished.err
    assert "loss" in finished.err
    assert (tmp_path / "run" / "release" / "model" / "model_index.json").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("--minutes", 0), "must be above 0"), (("--device", "cuda"), "finds no GPU")],
)
def test_what_cannot_be_done_is_said_in_a_sentence(spillway, tmp_path, words, sentence):
    answer = spillway("model", "train", tmp_path / "run", "--recipe", "tiny", *words)
    assert answer.code == 2
    assert sentence in answer.sentence()


def test_a_missing_package_is_said_before_anything_is_begun(spillway, tmp_path, monkeypatch):
    monkeypatch.setattr(training_module, "_PACKAGES", ("a_package_nobody_has",))
    answer = spillway("model", "train", tmp_path / "run", "--recipe", "tiny", "--device", "cpu")
    assert answer.code == 1
    assert "a_package_nobody_has" in answer.sentence()
    assert not (tmp_path / "run").exists()


def test_days_of_work_on_a_processor_are_announced(spillway, tmp_path, monkeypatch):
    monkeypatch.setattr(training_module.Training, "run", lambda self: tmp_path)
    answer = spillway("model", "train", tmp_path / "run", "--device", "cpu")
    assert answer.code == 0
    assert "takes days" in answer.err
