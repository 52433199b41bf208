"""A run of cells: their order, what is written, what goes on after a failure, a pause or a lack of time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sd_webui_spillway.bench.offload.cells import Cell, estimate_seconds, plan
from sd_webui_spillway.bench.offload.models import MODELS
from sd_webui_spillway.bench.offload.peers import make_peers
from sd_webui_spillway.bench.offload.run import OffloadRun, RunOptions
from sd_webui_spillway.bench.results import ResultFile

from .fake_children import child

SPEC = replace(MODELS["sdxl"], budgets_bytes=(600_000_000, 1_300_000_000))
SPECS = {"sdxl": SPEC}
PEERS = {name: peer for name, peer in make_peers({}).items() if name in ("stream", "diffusers-leaf", "to")}
STREAM, LEAF, TO = "stream", "diffusers-leaf", "to"


class Rehearsed:
    """A run with children of given behaviours, and who was started."""

    def __init__(self, path: Path, behaviours: Mapping[str, str] | None = None, **options: float) -> None:
        self.path = path
        self.started: list[str] = []
        self._behaviours = behaviours or {}
        self.results = ResultFile(path)
        quick = RunOptions(patience_seconds=1.0, patience_factor=0.0)
        self._run = OffloadRun(self.results, SPECS, PEERS, replace(quick, **options), self._start)  # type: ignore[arg-type]

    def run(self, cells: list[Cell]) -> list[Cell]:
        return self._run.run(cells)

    def rows(self) -> list[dict]:
        return json.loads(self.path.read_text())["cells"]

    def _start(self, peer: str):
        self.started.append(peer)
        return child(self._behaviours.get(peer, "answers"))


def test_the_first_round_tells_the_most_first_and_later_ones_alternate():
    cells = plan([SPEC], PEERS, 2)
    low, high = SPEC.budgets_bytes
    assert [(cell.peer, cell.budget_bytes, cell.what) for cell in cells if cell.round == 0] == [
        (STREAM, high, "switch"), (STREAM, low, "step"), (STREAM, high, "step"), (LEAF, None, "step"),
        (TO, None, "step"),
    ]  # fmt: skip
    assert [(cell.peer, cell.budget_bytes) for cell in cells if cell.round == 1] == [
        (STREAM, low), (LEAF, None), (TO, None), (STREAM, high),
    ]  # fmt: skip


def test_every_model_has_its_cells_and_slow_peers_are_expected_to_take_longer():
    cells = plan(list(MODELS.values()), make_peers({}), 1)
    assert {cell.model for cell in cells} == set(MODELS)
    budgets = {cell.budget_bytes for cell in cells if (cell.model, cell.peer) == ("flux", STREAM)}
    assert budgets == {6 * 10**8, 6 * 10**9, 12 * 10**9}
    estimates = {
        name: estimate_seconds(Cell("sdxl", name, 600_000_000, 0), SPEC, peer, 10)
        for name, peer in make_peers({}).items()
    }
    assert estimates["stream"] < estimates["diffusers-leaf"] < estimates["accelerate-sequential"] < 60


def test_each_cell_is_a_row_and_a_process_stays_warm(tmp_path):
    rehearsed = Rehearsed(tmp_path / "r.json")
    cells = plan([SPEC], PEERS, 2)
    assert rehearsed.run(cells) == []
    assert rehearsed.started == [STREAM, LEAF, TO]
    rows = rehearsed.rows()
    assert [{name: row[name] for name in cell.key} for row, cell in zip(rows, cells, strict=True)] == [
        cell.key for cell in cells
    ]
    row = rows[1]
    assert row["step"]["median"] == pytest.approx(0.1)
    assert row["bound_seconds"] == pytest.approx(4.4e9 / 5e10)
    assert row["step_to_bound"] == pytest.approx(0.1 / 0.088)
    assert row["predicted_to_step"] == pytest.approx(0.98)
    assert row["cpu_added_seconds"] == pytest.approx(0.005)
    assert rows[4]["bound_seconds"] == pytest.approx(0.06), "with every weight on the card the link does not matter"


def test_what_is_there_is_not_measured_again(tmp_path):
    cells = plan([SPEC], PEERS, 1)
    Rehearsed(tmp_path / "r.json").run(cells[:3])
    second = Rehearsed(tmp_path / "r.json")
    second.run(cells)
    assert second.started == [LEAF, TO]
    assert len(second.rows()) == len(cells)
    third = Rehearsed(tmp_path / "r.json")
    third.run(cells)
    assert third.started == []


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("dies", "its process ended with code 1: RuntimeError: the link is down"),
        ("hangs", "no answer within 1 s; it was ended"),
        ("mumbles", "its answer is not one"),
        ("fails", "out of memory"),
        ("cannot", "it lacks a limb"),
    ],
)
def test_a_peer_that_fails_is_a_row_that_says_why_and_the_others_go_on(tmp_path, behaviour, why):
    rehearsed = Rehearsed(tmp_path / "r.json", {LEAF: behaviour})
    cells = plan([SPEC], PEERS, 2)
    assert rehearsed.run(cells) == []
    rows = rehearsed.rows()
    assert len(rows) == len(cells)
    for row in rows:
        if row["peer"] == LEAF:
            assert row["why"].startswith(why)
        else:
            assert row["why"] is None


def test_a_failed_cell_has_the_next_one_in_a_new_process_until_it_failed_twice(tmp_path):
    rehearsed = Rehearsed(tmp_path / "r.json", {STREAM: "dies"})
    rehearsed.run(plan([SPEC], PEERS, 2))
    assert rehearsed.started.count(STREAM) == 2
    assert all(row["why"] for row in rehearsed.rows() if row["peer"] == STREAM)


def test_no_more_processes_than_asked_for_are_kept(tmp_path):
    rehearsed = Rehearsed(tmp_path / "r.json", warm=1)
    rehearsed.run(plan([SPEC], PEERS, 1))
    assert rehearsed.started == [STREAM, LEAF, TO]
    assert all(row["why"] is None for row in rehearsed.rows())


def test_large_models_have_fewer_processes_at_once():
    options = RunOptions(card_bytes=150 * 10**9)
    assert options.warm_for(MODELS["sdxl"]) == 8
    assert options.warm_for(MODELS["flux"]) == 3
    assert RunOptions(card_bytes=12 * 10**9).warm_for(MODELS["flux"]) == 1


def test_what_does_not_fit_in_the_time_is_left_out_and_said(tmp_path):
    rehearsed = Rehearsed(tmp_path / "r.json", seconds=8.0)  # the estimates are of a real card
    cells = plan([SPEC], PEERS, 1)
    left_out = rehearsed.run(cells)
    assert left_out == cells
    assert json.loads(rehearsed.path.read_text())["left_out"] == [str(cell) for cell in cells]
    assert Rehearsed(tmp_path / "r.json").run(cells) == []
    assert json.loads(rehearsed.path.read_text())["left_out"] == []


def test_time_that_ends_while_a_child_hangs_leaves_the_cell_out(tmp_path):
    rehearsed = Rehearsed(tmp_path / "r.json", {TO: "hangs"}, seconds=12.0, patience_seconds=60.0)
    cells = [cell for cell in plan([SPEC], PEERS, 1) if cell.peer == TO]
    assert rehearsed.run(cells) == cells
    assert rehearsed.rows() == []
