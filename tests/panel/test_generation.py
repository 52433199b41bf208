"""What the buttons do: pictures as they come, sentences for errors, and a job that outlives its page."""

from __future__ import annotations

import threading
import time

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.panel.form import FIELDS
from sd_webui_spillway.panel.generation import Generation
from sd_webui_spillway.panel.pictures import Pictures
from tests.fakes.host import DEAD_PROMPT, LOST_PROMPT

SAME = object()
VALUES = {
    "prompt": "", "negative_prompt": "", "width": 64, "height": 64, "steps": 3, "sampler": "default",
    "guidance_scale": 7, "seed": 5, "batch_size": 1, "batch_count": 1,
}


@pytest.fixture
def generation(session):
    return Generation(session, Pictures(session.output_folder), lambda: SAME)


def run(generation, **fields):
    values = {**VALUES, **fields}
    return list(generation.generate(*(values[name] for name in FIELDS)))


def test_all_pictures_arrive_and_nothing_needs_saying(generation, session):
    pictures, message = run(generation, batch_size=2, batch_count=2)[-1]
    assert [name.rsplit("-", 1)[1] for name in pictures] == ["00005.png", "00006.png", "00007.png", "00008.png"]
    assert message == ""
    assert generation.last_pictures() == pictures


def test_pictures_are_shown_while_the_job_still_runs(generation, host):
    host.step_pause_seconds = 0.2
    counts = [len(pictures) for pictures, _ in run(generation, batch_count=3) if pictures is not SAME]
    assert counts[-1] == 3
    assert any(0 < count < 3 for count in counts)
    assert counts == sorted(counts)


def test_a_picture_given_up_is_said_and_the_others_are_kept(generation):
    pictures, message = run(generation, prompt=LOST_PROMPT, batch_size=2)[-1]
    assert len(pictures) == 1
    assert "seed 6 was given up: The UNet does not fit in 4.0 GiB however small its work is made." in message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"width": 100}, "The width must be a multiple of 8, not 100."),
        ({"steps": None}, "The steps must be a number"),
        ({"sampler": "magic"}, "There is no sampler “magic”"),
        ({"prompt": DEAD_PROMPT}, "no memory left at all"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_the_gallery_stays(generation, fields, words):
    pictures, message = run(generation, **fields)[-1]
    assert pictures is SAME
    assert words in message
    assert "Traceback" not in message


def test_what_nobody_foresaw_is_a_sentence_too(generation, host, monkeypatch, caplog):
    def broken(*_args):
        raise ZeroDivisionError("by design")

    monkeypatch.setattr(host, "generate", broken)
    _, message = run(generation)[-1]
    assert "for a reason this program does not know" in message
    assert "ZeroDivisionError: by design" in message
    assert "by design" in caplog.text


def test_a_second_job_is_refused_and_stop_ends_the_first(generation, session, host):
    host.step_pause_seconds = 0.05
    first = threading.Thread(target=session.generate, args=(ImageRequest(width=64, height=64, steps=100),))
    first.start()
    while session.progress() is None:
        time.sleep(0.01)
    assert "A job is running" in run(generation)[-1][1]
    assert generation.stop() == ""
    first.join(5)
    assert not first.is_alive()
    assert "No job is running" in generation.stop()


def test_a_job_goes_on_when_its_page_is_closed(generation, session, host):
    host.step_pause_seconds = 0.05
    events = generation.generate(*({**VALUES, "batch_count": 3}[name] for name in FIELDS))
    next(events)
    next(events)
    events.close()
    deadline = time.monotonic() + 10
    while session.last_job() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(session.last_job().images) == 3


def test_pictures_below_a_hidden_folder_are_copied_to_where_gradio_serves_them(tmp_path):
    hidden = tmp_path / ".local" / "outputs"
    hidden.mkdir(parents=True)
    (hidden / "a.png").write_bytes(b"picture")
    pictures = Pictures(hidden)
    [shown] = pictures.servable([hidden / "a.png", hidden / "gone.png"])
    assert "/." not in shown.replace("\\", "/")
    assert shown.endswith("a.png")
    assert any(shown.startswith(str(folder)) for folder in pictures.folders)
