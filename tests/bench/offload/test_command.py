"""What a person types: clear sentences for what cannot be, the plan, and a whole rehearsal."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from sd_webui_spillway.bench.offload.__main__ import main
from sd_webui_spillway.cli import main as spillway

STREAM = "stream"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--peers", "stream,faster"], "There is no peer “faster”; choose from stream,"),
        (["--peers", "a1111-lowvram"], "There is no peer “a1111-lowvram”; it needs --peer a1111=FOLDER."),
        (["--models", "sd9"], "There is no model “sd9”; choose from sdxl, flux, sd15, tiny."),
        (["--peer", "a1111"], "“a1111” names no folder; write --peer a1111=FOLDER."),
        (["--peer", "a1111=/nowhere"], "There is no folder /nowhere with the sources of a1111."),
        (["--peer", "krita=."], "There is no tool “krita” to run from its sources; choose from a1111"),
        (["--report", "--json", "/nowhere/r.json"], "There are no results in /nowhere/r.json."),
        (["--rehearsal"], "Say with --json which file the results go to."),
        (["--budgets", "much"], "“much” is not a memory size"),
    ],
)
def test_what_cannot_be_is_one_clear_sentence(arguments, sentence, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(sentence)
    assert captured.err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_offers_a_rehearsal(capsys, tmp_path):
    assert main(["--json", str(tmp_path / "r.json")]) == 2
    assert "torch finds no GPU here; --rehearsal" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


def test_a_rehearsal_is_never_mixed_with_measurements(capsys, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"about": {"simulated": False, "commands": []}, "cells": []}))
    assert main(["--rehearsal", "--json", str(path)]) == 2
    assert "holds measurements; give this run a file of its own" in capsys.readouterr().err


def test_the_plan_lists_every_cell_with_a_time(capsys):
    assert spillway(["bench", "offload", "--plan", "--models", "sdxl", "--peers", "stream,to", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["sdxl stream in 1.3 GB (switching)", "sdxl stream in 0.6 GB"]
    assert lines[-1].startswith("6 cells, about ")


def test_a_rehearsal_from_the_command_to_the_table(tmp_path, capsys):
    diffusers = pytest.importorskip("diffusers", reason="needs diffusers")
    others = ["to", "accelerate-sequential"]
    if find_spec(f"{diffusers.__name__}.hooks"):
        others.append("diffusers-leaf")
    path = tmp_path / "rehearsal.json"
    arguments = ["--rehearsal", "--rounds", "1", "--json", str(path), "--peers"]
    assert main([*arguments, ",".join([STREAM, *others, "first-come"])]) == 0
    content = json.loads(path.read_text())
    about, cells = content["about"], content["cells"]
    assert about["simulated"] is True
    assert about["device"] == "rehearsal on the processor: no measurement"
    assert "--rehearsal --rounds 1" in about["commands"][0]
    steps = [cell for cell in cells if cell["what"] == "step" and cell["why"] is None]
    assert {cell["peer"] for cell in steps} == {STREAM, *others}
    for cell in steps:
        assert cell["equal_to_dedicated"] is True
        assert len(cell["step_seconds"]) >= 10
        assert len(cell["dedicated_seconds"]) == 10
        assert cell["step"]["first_quartile"] <= cell["step"]["median"] <= cell["step"]["third_quartile"]
        assert cell["bound_seconds"] >= cell["dedicated"]["median"]
    small, large = (cell for cell in steps if cell["peer"] == STREAM)
    assert small["budget_bytes"] < large["budget_bytes"]
    assert small["resident_bytes"] <= small["budget_bytes"] < large["resident_bytes"] <= large["budget_bytes"]
    assert small["peak_dedicated_bytes"] < large["peak_dedicated_bytes"]
    assert 0 < small["pinned_bytes"] <= small["cap_bytes"]
    assert small["predicted_step_seconds"] > 0
    [switch] = [cell for cell in cells if cell["what"] == "switch"]
    assert len(switch["switches"]) == 2
    assert {cell["why"] for cell in cells if cell["peer"] == "first-come"} == {"it needs a CUDA card"}
    assert path.with_suffix(".md").read_text().startswith("**A rehearsal")
    assert (tmp_path / "rehearsal-tiny.svg").read_text().startswith("<svg")
    capsys.readouterr()
    assert main([*arguments, STREAM]) == 0, "everything is there: no process starts"
    again = json.loads(path.read_text())
    table = path.with_suffix(".md")
    table.unlink()
    assert main(["--report", "--json", str(path)]) == 0
    assert table.read_text().startswith("**A rehearsal")
    assert again["cells"] == cells
    assert len(again["about"]["commands"]) == 2
