"""A spill is told beside the running job, and the two ways on do what they say."""

from __future__ import annotations

import threading
import time

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.units import GIB

from .test_chinese import SAID, english

NOTICE = "#spillway-progress .spillway-spill"


@pytest.fixture
def spilling_job(served):
    """Begins a job of some seconds while the driver spills."""
    threads = []

    def begin() -> None:
        served.host.memory.spilled_bytes = 2 * GIB
        request = ImageRequest(width=64, height=64, steps=600)
        threads.append(threading.Thread(target=served.session.generate, args=(request, Profile.DEDICATED)))
        threads[-1].start()
        deadline = time.monotonic() + 10
        while served.session.progress() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    yield begin
    served.host.memory.spilled_bytes = 0
    served.session.stop()
    for thread in threads:
        thread.join()


def test_step_down_now_steps_down(open_page, served, spilling_job):
    page = open_page().page
    assert page.locator(NOTICE).is_hidden()
    spilling_job()
    page.locator(NOTICE, has_text="2.0 GiB").wait_for(timeout=5000)
    page.locator(NOTICE).get_by_text("Step down now").click()
    taken = page.locator("#spillway-progress .spillway-rungs li", has_text="went from dedicated to lowvram")
    taken.wait_for(timeout=5000)
    assert served.session.progress().profile == "lowvram"
    assert page.locator(f"{NOTICE} button:visible").count() == 0
    served.host.memory.spilled_bytes = 0
    page.locator(NOTICE).wait_for(state="hidden", timeout=12_000)


def test_finish_like_this_lets_it_be_until_the_next_job(open_page, served, spilling_job):
    page = open_page().page
    spilling_job()
    page.locator(NOTICE).get_by_text("Finish like this").click(timeout=5000)
    page.locator(NOTICE).wait_for(state="hidden", timeout=2000)
    page.wait_for_timeout(1200)
    assert page.locator(NOTICE).is_hidden()
    assert served.session.progress().rungs == ()
    served.session.stop()
    page.wait_for_function("!document.documentElement.hasAttribute('data-spillway-running')", timeout=8000)
    spilling_job()
    page.locator(NOTICE).wait_for(timeout=5000)


def test_without_a_job_a_spill_is_only_the_meters_word(open_page, served):
    served.host.memory.spilled_bytes = 2 * GIB
    try:
        page = open_page().page
        page.wait_for_selector('.spillway-state[data-state="spilling"]', timeout=5000)
        assert page.locator(NOTICE).is_hidden()
    finally:
        served.host.memory.spilled_bytes = 0


def test_all_of_it_in_chinese_and_nothing_smaller_is_said(open_page, served, spilling_job, monkeypatch):
    page = open_page("?lang=zh&__theme=light").page
    spilling_job()
    page.locator(NOTICE).wait_for(timeout=5000)
    assert english(page.evaluate(SAID)) == {}
    monkeypatch.setattr(served.session._job, "_profile", Profile.SEQUENTIAL)
    page.locator(NOTICE).get_by_text("立即降级").click()
    page.locator(f"{NOTICE} .spillway-sentence", has_text="没有比 sequential 更小的方式了").wait_for(timeout=5000)
    assert page.locator(NOTICE).get_by_text("就这样完成").is_visible()
