"""The command line as a process of its own: the demo, Ctrl-C, a reader that goes away."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest


@pytest.mark.timeout(420)
def test_the_demo_runs_out_recovers_and_delivers_everything(process, tmp_path):
    out, err = (demo := process("demo", "--no-serve")).communicate(timeout=400)
    assert demo.returncode == 0, err
    assert "Traceback" not in err
    assert "8 of 8 images in" in out
    assert out.count("delivered") == 8  # a row for each
    assert "8 of 8 images" in out
    assert "ran out" in out
    assert "simulated card" in err
    assert "The embedded model is small" in err
    pictures = list((tmp_path / "data" / "outputs").glob("*.png"))
    assert len(pictures) == 8
    assert "as “dedicated”. Needs" in out.splitlines()[0]


def first_lines(process, count: int) -> list[str]:
    return [process.stdout.readline() for _ in range(count)]


@pytest.mark.skipif(os.name == "nt", reason="needs signals as POSIX has them")
def test_watching_memory_ends_with_ctrl_c(process):
    watching = process("memory", "--watch", "--json")
    lines = first_lines(watching, 2)
    assert all("ram_total_bytes" in json.loads(line) for line in lines)
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=30)
    assert watching.returncode in (0, 130)
    assert "Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="needs pipes as POSIX has them")
def test_a_reader_that_goes_away_is_no_error(process):
    watching = process("memory", "--watch", "--json")
    first_lines(watching, 1)
    watching.stdout.close()
    deadline = time.monotonic() + 30
    while watching.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert watching.returncode == 0
    assert "Traceback" not in watching.stderr.read()
    watching.stdout = None
    watching.stderr = None


@pytest.mark.skipif(os.name == "nt", reason="needs signals as POSIX has them")
def test_ctrl_c_in_the_middle_of_a_job_keeps_what_is_finished(process, tiny, tmp_path):
    outputs = tmp_path / "pictures"
    making = process("generate", "a cat", "--model", tiny, "--simulated-card", "1GiB", "--width", 64, "--height", 64,
                     "--steps", 4, "--batch-count", 500, "--output", outputs)  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list(outputs.glob("*.png")) if outputs.exists() else []) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    making.send_signal(signal.SIGINT)
    _, err = making.communicate(timeout=60)
    assert making.returncode == 130, err
    assert "Traceback" not in err
    pictures = list(outputs.iterdir())
    assert len(pictures) >= 2
    assert all(path.suffix == ".png" and not path.name.startswith(".") for path in pictures)
