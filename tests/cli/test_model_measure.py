"""``spillway model measure`` over a tiny model with random weights: what is written and refused."""

from __future__ import annotations

import json

import pytest

from sd_webui_spillway.models import embedded
from sd_webui_spillway.models.training.classifier import Classifier


@pytest.fixture
def untrained(tmp_path, monkeypatch):
    """A classifier that knows nothing takes the place of the packaged one."""
    path = tmp_path / "classifier.safetensors"
    Classifier(side_pixels=64, width=8).save(path)
    monkeypatch.setattr(embedded, "CLASSIFIER_FILE", path)


def test_figures_failures_and_sheet(spillway, tiny, tmp_path, untrained):
    answer = spillway(
        "model", "measure", "--model", tiny, "--captions", 6, "--steps", 1, "--size", 64, "--batch-size", 4,
        "--json", tmp_path / "figures.json", "--sheet", tmp_path / "sheets",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "of 6 captions it never saw" in answer.out
    assert "colour on its shape" in answer.out
    assert "1 steps of" in answer.out
    found = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert (found["model"]["name"], found["settings"]["captions"]) == ("tiny", 6)
    assert len(found["drawn_by_model"]["failures"]) == 6
    assert (tmp_path / "sheets" / "wrong.png").is_file()
    assert not (tmp_path / "sheets" / "right.png").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--captions", 0), "from 1 to 600"),
        (("--steps", 0), "--steps must be at least 1"),
        (("--batch-size", 0), "--batch-size must be at least 1"),
        (("--size", 100), "multiple of 8"),
        (("--sampler", "magic"), "no sampler “magic”"),
        (("--device", "cuda"), "finds no GPU"),
        (("--device", "toaster"), "no device “toaster”"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(spillway, tiny, words, sentence):
    answer = spillway("model", "measure", "--model", tiny, *words)
    assert answer.code == 2
    assert sentence in answer.sentence()


def test_a_missing_classifier_is_said_in_a_sentence(spillway, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "CLASSIFIER_FILE", tmp_path / "classifier.safetensors")
    answer = spillway("model", "measure", "--model", tiny)
    assert answer.code == 1
    assert "classifier" in answer.sentence()
    assert "missing" in answer.sentence()
