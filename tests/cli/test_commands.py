"""What the commands do when all is well."""

from __future__ import annotations

import csv
import io
import json

import pytest

pytestmark = pytest.mark.usefixtures("reuse")
SMALL = ("--width", 64, "--height", 64, "--steps", 1)


def test_generate_as_json(spillway, tiny, tmp_path):
    answer = spillway("generate", "a cat", "--model", tiny, "--simulated-card", "1GiB", *SMALL, "--batch-size", 2,
                      "--profile", "medvram", "--seed", 9, "--output", tmp_path / "pictures", "--json")  # fmt: skip
    assert answer.code == 0, answer.err
    records = json.loads(answer.out)
    assert [record["seed"] for record in records] == [9, 10]
    assert {record["outcome"] for record in records} == {"delivered"}
    assert {record["profile_used"] for record in records} == {"medvram"}
    assert all(record["simulated"] for record in records)
    files = sorted(str(path) for path in (tmp_path / "pictures").iterdir())
    assert sorted(record["file_path"] for record in records) == files
    assert "There is no GPU here; memory is counted on a simulated card" in answer.err
    logged = spillway("log", "--json")
    assert {record["record_id"] for record in json.loads(logged.out)} == {record["record_id"] for record in records}


def test_generate_for_a_person(spillway, tiny, tmp_path):
    answer = spillway("generate", "a cat", "--model", tiny, "--simulated-card", "1GiB", *SMALL)
    assert answer.code == 0, answer.err
    assert "What every image cost" in answer.out
    assert "1 of 1 image in" in answer.out
    assert "auto chose dedicated" in answer.out
    assert f"Saved in {tmp_path / 'data' / 'outputs'}" in answer.out


def test_a_job_that_recovers_says_so(spillway, tiny, loaded):
    from sd_webui_spillway.host_port import ImageRequest
    from sd_webui_spillway.hosts.diffusers_model import PipelineShapes, components_of
    from sd_webui_spillway.hosts.footprint_meter import FootprintMeter
    from sd_webui_spillway.placement import Profile
    from sd_webui_spillway.planning.footprint import AllocatorOverhead

    request = ImageRequest(width=64, height=64, batch_size=2)
    meter = FootprintMeter(components_of(loaded.pipeline), PipelineShapes(loaded.pipeline), AllocatorOverhead())
    card = int(meter.footprint(request).peak_bytes(Profile.DEDICATED) * 0.97)
    answer = spillway("generate", "a cat", "--model", tiny, "--simulated-card", card, *SMALL, "--batch-size", 2,
                      "--profile", "dedicated")  # fmt: skip
    assert answer.code == 0, answer.err
    assert "2 of 2 images in" in answer.out
    assert "ran out" in answer.out
    assert "0 out-of-memory" not in answer.out
    assert "nothing lost" in answer.out


def test_profiles(spillway, tiny):
    from sd_webui_spillway.placement import Profile

    words = ("profiles", "--model", tiny, "--simulated-card", "1GiB", *SMALL)
    said = json.loads(spillway(*words, "--json").out)
    assert said["choice"]["profile"] == "dedicated"
    rows = {row["profile"]: row for row in said["profiles"]}
    assert list(rows) == [profile.value for profile in Profile]
    assert "CUDA" in rows["stream"]["unavailable_because"]
    assert rows["dedicated"]["fits"] is True
    assert rows["dedicated"]["predicted_dedicated_bytes"] > rows["medvram"]["predicted_dedicated_bytes"]
    table = spillway(*words)
    assert table.code == 0
    assert "auto would take dedicated" in table.out
    assert "unavailable, because it needs a CUDA card" in table.out


def test_memory(spillway):
    answer = spillway("memory", "--json")
    assert answer.code == 0
    said = json.loads(answer.out)
    assert said["ram_total_bytes"] > said["ram_used_bytes"] > 0
    if said["dedicated_total_bytes"] is None:
        assert said["unknown_because"]["dedicated_total_bytes"]
    table = spillway("memory")
    assert "RAM" in table.out
    assert "memory on the card, this process" in table.out


def test_the_log(spillway, tiny, tmp_path):
    assert "No image is in the log yet." in spillway("log").out
    spillway("generate", "a cat", "--model", tiny, "--simulated-card", "1GiB", *SMALL, "--batch-count", 2)
    assert "delivered" in spillway("log").out
    assert len(json.loads(spillway("log", "--json").out)) == 2
    assert len(json.loads(spillway("log", "--json", "--limit", 1).out)) == 1
    assert json.loads(spillway("log", "--json", "--profile", "lowvram").out) == []
    rows = list(csv.DictReader(io.StringIO(spillway("log", "--csv", "-").out)))
    assert {row["model"] for row in rows} == {"tiny"}
    answer = spillway("log", "--csv", tmp_path / "log.csv")
    assert f"2 images written to {tmp_path / 'log.csv'}" in answer.out
    assert len((tmp_path / "log.csv").read_text(encoding="utf-8-sig").splitlines()) == 3


def test_clearing_the_log_asks_and_keeps_the_pictures(spillway, tiny, tmp_path):
    spillway("generate", "a cat", "--model", tiny, "--simulated-card", "1GiB", *SMALL)
    asked = spillway("log", "--clear")
    assert asked.code == 2
    assert "--yes" in asked.sentence()
    assert len(json.loads(spillway("log", "--json").out)) == 1
    assert spillway("log", "--clear", "--yes").out.strip() == "1 images forgotten."
    assert json.loads(spillway("log", "--json").out) == []
    assert len(list((tmp_path / "data" / "outputs").glob("*.png"))) == 1


@pytest.mark.parametrize("words", [("--limit", 0), ("--csv", "folder/that/is/not/there.csv")])
def test_a_log_that_cannot_be_shown_so(spillway, words):
    answer = spillway("log", *words)
    assert answer.code in (1, 2)
    assert str(words[1]) in answer.sentence()


def test_making_a_model(spillway, tmp_path, tiny):
    answer = spillway("model", "make", tmp_path / "new" / "made.safetensors", "--kind", "sd1", "--seed", 0)
    assert answer.code == 0, answer.err
    assert "made.safetensors" in answer.out
    assert "its weights are random" in answer.out
    assert "made.safetensors: tensors" in answer.err
    assert (tmp_path / "new" / "made.safetensors").read_bytes() == tiny.read_bytes()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["made.safetensors", "made.yaml"]


def test_a_model_that_cannot_be_made(spillway, tmp_path):
    (tmp_path / "file").write_text("kept")
    for path, code in ((tmp_path / "file" / "m.safetensors", 1), (tmp_path / "m.bin", 2)):
        answer = spillway("model", "make", path)
        assert answer.code == code
        assert path.name in answer.sentence() or path.suffix in answer.sentence()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_version_and_help(spillway):
    from sd_webui_spillway import __version__

    assert __version__ in spillway("--version").out
    assert "COMMAND" in spillway("--help").out
    assert spillway().code == 2
