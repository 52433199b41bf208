"""The overhead bench runs and writes figures under unit-named keys. How large they are is not a test."""

from __future__ import annotations

import json

import pytest

from sd_webui_spillway.bench.overhead import main


def test_json_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--samples", "20", "--seconds", "0.6", "--rows", "30"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["read"]["samples"] == 20
    assert figures["read"]["median_seconds"] > 0
    assert figures["monitor"]["samples"] >= 1
    assert figures["monitor"]["cpu_seconds_per_second"] >= 0
    assert figures["log_rows"] == 30
    assert figures["log"]["append"]["p95_seconds"] >= figures["log"]["append"]["median_seconds"] > 0


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--samples", "20", "--seconds", "0.1", "--rows", "5"]) == 0
    text = capsys.readouterr().out
    assert "log append" in text
    assert "monitor at 4 Hz" in text
