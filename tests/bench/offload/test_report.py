"""The figures that follow, the tables and the plot."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sd_webui_spillway.bench.offload.figures import bound_seconds, derived, spread
from sd_webui_spillway.bench.offload.plot import svg
from sd_webui_spillway.bench.offload.table import rows, tables

from .fake_children import RAW

ABOUT = {"device": "NVIDIA Example", "date": "2026-12-01", "torch": "2.11.0", "simulated": False}
HOLDS_ALL = {"to": True}


def cell(peer="stream", budget=600_000_000, why=None, number=0, model="sdxl", what="step", **raw):
    figures = {} if why else {**RAW, **raw}
    return {
        "model": model, "peer": peer, "budget_bytes": budget, "round": number, "what": what, "why": why, **figures,
    }  # fmt: skip


def switch(seconds: float) -> dict:
    one = {"to_stream_added_seconds": seconds, "to_stream_seconds": 0.4, "to_dedicated_seconds": 0.2,
           "pinned_bytes": 5_130_000_000}  # fmt: skip
    return {**cell(what="switch"), "switches": [one, {**one, "to_stream_added_seconds": seconds / 4}]}


def test_the_bound_is_the_slower_of_computing_and_copying():
    assert bound_seconds(0.058, 5_130_000_000, 0, 55.1e9) == pytest.approx(0.0931, rel=1e-3)
    assert bound_seconds(0.058, 5_130_000_000, 3_900_000_000, 55.1e9) == 0.058
    assert bound_seconds(0.058, 5_130_000_000, 9_000_000_000, 55.1e9) == 0.058
    assert bound_seconds(None, 5_130_000_000, 0, 55.1e9) is None


def test_a_spread_is_a_median_with_its_quartiles():
    assert spread([3.0]).median == 3.0
    found = spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.first_quartile, found.median, found.third_quartile) == (2.0, 3.0, 4.0)


def test_without_a_dedicated_step_nothing_is_invented():
    found = derived({**RAW, "dedicated_seconds": [], "dedicated_cpu_seconds": None, "predicted_step_seconds": None},
                    None, holds_all=False)  # fmt: skip
    assert found["bound_seconds"] is found["step_to_bound"] is found["dedicated"] is None
    assert found["predicted_to_step"] is found["cpu_added_seconds"] is None


def test_rounds_of_a_cell_are_taken_together():
    slow = [0.2] * 5
    [row] = rows([cell(), cell(number=1, step_seconds=slow, equal_to_dedicated=False)], HOLDS_ALL)
    assert row.figures is not None
    assert row.figures["step"]["median"] == pytest.approx(0.155)
    assert row.figures["equal_to_dedicated"] is False
    [row] = rows([cell(), cell(number=1, why="it died")], HOLDS_ALL)
    assert row.figures is not None
    assert row.figures["step"]["median"] == pytest.approx(0.1)


def test_the_table_has_a_line_for_each_cell_and_says_why_one_is_empty():
    content = {
        "about": ABOUT,
        "cells": [cell(), cell("to", None), cell("mmgp", 600_000_000, why="mmgp is not installed"), switch(1.2)],
        "left_out": ["sdxl first-come in 0.6 GB"],
    }
    text = tables(content, HOLDS_ALL, {"stream": "our ring"})
    lines = text.splitlines()
    stream = next(line for line in lines if line.startswith("| `stream`"))
    assert stream == (
        "| `stream` | 0.60 GB | 100.0 (100.0–100.0) | 60.0 | 88.0 | 1.14 | 98.0 (0.98 ×) | 1.00 | 5.00 of 6.00 | 5.0 | "
        "yes |"
    )
    assert next(line for line in lines if line.startswith("| `to`")).startswith(
        "| `to` | – | 100.0 (100.0–100.0) | 60.0 | 60.0 | 1.67 |"
    )
    empty = next(line for line in lines if line.startswith("| `mmgp`"))
    assert "no figures, because mmgp is not installed" in empty
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert "first time: dedicated to `stream` 1.20 s" in text
    assert "second time: dedicated to `stream` 0.30 s" in text
    assert "Left out for lack of time: sdxl first-come in 0.6 GB." in text
    assert "- `stream`: our ring" in text
    assert "rehearsal" not in text


def test_a_rehearsal_says_so_before_anything_else():
    content = {"about": {**ABOUT, "simulated": True}, "cells": [cell()]}
    assert tables(content, HOLDS_ALL, {}).startswith("**A rehearsal on a processor: these figures measure nothing.**")


def test_the_plot_has_every_peer_and_the_bound():
    cells = [cell(), cell(budget=1_300_000_000, peak_dedicated_bytes=1_700_000_000),
             cell("diffusers-leaf", None, step_seconds=[0.25] * 5),
             cell("to", None, peak_dedicated_bytes=5_600_000_000),
             cell("mmgp", why="mmgp is not installed")]  # fmt: skip
    picture = svg("SDXL <on> a card", rows(cells, HOLDS_ALL))
    assert picture is not None
    root = ET.fromstring(picture)
    names = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"stream", "diffusers-leaf", "to", "bound", "SDXL <on> a card"} <= names
    assert "mmgp" not in names
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 4
    assert all(0 < float(one.get("cx", 0)) < 900 and 0 < float(one.get("cy", 0)) < 520 for one in circles)
    heights = {one[0].text: float(one.get("cy", 0)) for one in circles}
    assert heights["diffusers-leaf: 250.0 ms at 1 GB"] < heights["stream: 100.0 ms at 1 GB"], "slower is higher"


def test_there_is_no_plot_without_a_peak():
    assert svg("x", rows([cell(peak_dedicated_bytes=None)], HOLDS_ALL)) is None
