"""The measuring itself on a real card: a whole run with the small model, and first-come spill."""

from __future__ import annotations

import json

import pytest
import torch

from sd_webui_spillway.bench.offload.__main__ import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU that torch can use"),
]


def test_a_small_model_is_measured_under_ours_and_the_libraries(tmp_path):
    path = tmp_path / "small.json"
    peers = "stream,to,diffusers-leaf-record,diffusers-block,accelerate-sequential,block-pageable,first-come"
    assert main(["--models", "tiny", "--rounds", "1", "--json", str(path), "--peers", peers]) == 0
    content = json.loads(path.read_text())
    assert content["about"]["simulated"] is False
    assert {cell["peer"]: cell["why"] for cell in content["cells"]} == dict.fromkeys(peers.split(","))
    steps = [cell for cell in content["cells"] if cell["what"] == "step"]
    for cell in steps:
        assert cell["equal_to_dedicated"] in (True, None)
        assert cell["link_bytes_per_second"] > 1e9
        assert cell["peak_dedicated_bytes"] > 0
    stream = [cell for cell in steps if cell["peer"] == "stream"]
    for cell in stream:
        assert cell["pinned_bytes"] <= cell["cap_bytes"]
        assert cell["resident_bytes"] <= cell["budget_bytes"]
        assert cell["hook_calls"] > 0
    first_come = [cell for cell in steps if cell["peer"] == "first-come"]
    assert all(cell["pinned_bytes"] > 0 for cell in first_come), "what does not fit is in system memory"
