"""A running job can be asked to go on with less on the card."""

from __future__ import annotations

import threading
import time

import pytest

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement.profile import Profile
from tests.fakes.host import FakeHost
from tests.fakes.session import open_session

REQUEST = ImageRequest(width=64, height=64, steps=40)


@pytest.fixture
def session(tmp_path):
    session = open_session(FakeHost(), tmp_path)
    yield session
    session.close()


def begin(session, profile: Profile) -> threading.Thread:
    thread = threading.Thread(target=session.generate, args=(REQUEST, profile))
    thread.start()
    deadline = time.monotonic() + 10
    while not (progress := session.progress()) or progress.step < 1:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return thread


def test_a_running_job_steps_down_once(session):
    assert session.step_down() is False, "no job runs"
    job = begin(session, Profile.DEDICATED)
    assert session.step_down() is True
    job.join()
    (image,) = session.last_job().images
    assert [words.split(": ")[-1] for words in image.record.rungs] == ["went from dedicated to lowvram"]


def test_there_is_nothing_below_the_smallest_placement(session):
    with session.foreign_job(REQUEST, Profile.SEQUENTIAL) as job:
        with pytest.raises(UnavailableError, match="Nothing smaller than sequential is left"):
            session.step_down()
        assert not job.tracker.takes_step_down()
