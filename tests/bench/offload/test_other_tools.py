"""Other tools' own code, from folders of their sources, in the processes in which it is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sd_webui_spillway.bench.offload.peers import SOURCES, ldm
from sd_webui_spillway.bench.offload.peers.foreign import sources
from sd_webui_spillway.models.families import published

FOLDERS = {tool: os.environ.get(f"SPILLWAY_{tool.upper()}") for tool in SOURCES}
"""Where each tool's sources are, from ``SPILLWAY_A1111``, ``SPILLWAY_FORGE`` and ``SPILLWAY_COMFY``."""


@pytest.mark.parametrize("tool", SOURCES)
def test_a_tool_s_own_offloading_draws_what_its_own_unet_draws_dedicated(tool, tmp_path):
    if not FOLDERS[tool]:
        pytest.skip(f"needs the sources of {tool}: SPILLWAY_{tool.upper()}=<folder>")
    peers = SOURCES[tool](Path(str(FOLDERS[tool])))
    names = ",".join(peer.name for peer in peers)
    results = tmp_path / "r.json"
    command = [
        sys.executable, "-m", "sd_webui_spillway.bench.offload", "--rehearsal", "--json", str(results),
        "--rounds", "1", "--steps", "1", "--peer", f"{tool}={FOLDERS[tool]}", "--peers", names,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=280, stdout=subprocess.DEVNULL)
    rows = json.loads(results.read_text())["cells"]
    assert {row["peer"] for row in rows} == {peer.name for peer in peers}
    assert [row.get("why") for row in rows] == [None] * len(rows)
    assert {row["equal_to_dedicated"] for row in rows} == {True}
    assert {row["budget_bytes"] is not None for row in rows} == {peer.budgeted for peer in peers}


def test_blocks_have_the_depths_that_sdxl_and_sd1_are_published_with():
    """As ``huggingface_guess`` of Forge and ``model_detection.py`` of ComfyUI list them."""
    assert ldm.depths(published("sdxl", "real").unet) == {
        "transformer_depth": [0, 0, 2, 2, 10, 10],
        "transformer_depth_middle": 10,
        "transformer_depth_output": [0, 0, 0, 2, 2, 2, 10, 10, 10],
    }
    assert ldm.depths(published("sd1", "real").unet) == {
        "transformer_depth": [1, 1, 1, 1, 1, 1, 0, 0],
        "transformer_depth_middle": 1,
        "transformer_depth_output": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    }


def test_what_a_folder_lacks_is_said(tmp_path):
    (tmp_path / "there.py").touch()
    assert ldm.lacking(tmp_path, ("there.py",), ("torch",)) is None
    assert ldm.lacking(tmp_path, ("there.py", "gone.py"), ()) == "the folder has no gone.py"
    assert ldm.lacking(tmp_path, (), ("no_such_library",)) == "its code needs no_such_library, which is not installed"


def test_a_tool_reads_its_own_command_line_while_it_is_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spillway", "--peer", "x"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with sources(tmp_path / "tool", ["--cpu"]):
        assert sys.argv == ["tool", "--cpu"]
        assert sys.path[0] == str(tmp_path / "tool")
    assert sys.argv == ["spillway", "--peer", "x"]
