"""What the real AUTOMATIC1111's gallery shows on each image, and its page in Chinese, in a real browser."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image

from tests.browser.chromium import running_browser
from tests.browser.test_chinese import SAID, english
from tests.hosts.webui import NEEDED, WEBUI

from .real_page import THUMBNAILS, RealPage, idle, running_host

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
BOXES = """
() => [...document.querySelectorAll('#txt2img_gallery img')]
  .map((image) => JSON.stringify(image.getBoundingClientRect()))
"""
PREVIEW = "#txt2img_gallery .preview .spillway-badge"


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def host(browser, tmp_path_factory):
    with running_host(tmp_path_factory.mktemp("a1111-badges"), localization="zh_CN") as host:
        yield host


@pytest.fixture
def real(host, browser):
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 1000})
    real = RealPage(context.new_page(), f"{host.address}/?__theme=light")
    yield real
    context.close()
    idle(host)


def right(images: list[dict], records: dict[str, dict]) -> None:
    """Each image has the badge of its own record."""
    for image in images:
        ((name, words),) = image["badges"]
        record = records[name]
        assert name == image["file"]
        assert words == record["badge"]


def of_files(host, images: list[dict]) -> dict[str, dict]:
    asked = "&".join(f"files={image['file']}" for image in images)
    return host.ask(f"/spillway/v1/images?{asked}&lang=zh")["files"]


def test_each_image_has_its_own_badge_and_the_grid_has_none(real, host):
    grid, *images = real.generate(2, batch_size=2)
    assert (grid["file"].startswith("grid"), grid["badges"]) == (True, [])
    records = of_files(host, images)
    right(images, records)
    shown = real.page.locator("#txt2img_gallery .thumbnail-lg .spillway-badge").first
    record = records[images[0]["file"]]
    assert shown.get_attribute("data-short") == f"{record['total_seconds']:.2f} s · {record['profile_used']}"
    assert {record["seed"] for record in records.values()} == {int(image["file"][6:-4]) for image in images}
    real.show("spillway")
    real.show("txt2img")
    real.page.wait_for_timeout(500)
    assert real.page.evaluate(THUMBNAILS) == [grid, *images]
    grid, *again = real.generate(2, batch_size=2)
    assert grid["badges"] == []
    assert not {image["file"] for image in again} & {image["file"] for image in images}
    right(again, of_files(host, again))


def test_what_was_not_saved_is_known_by_its_id(real, host):
    host.ask("/sdapi/v1/options", {"samples_save": False, "grid_save": False})
    try:
        grid, *images = real.generate(2, batch_size=2)
        assert grid["badges"] == []
        records = {}
        for image in images:
            assert image["file"].startswith("tmp"), "the host's own name for a picture that it does not keep"
            shown = real.page.locator(f"#txt2img_gallery .thumbnail-lg img[src*='{image['file']}']")
            source = shown.get_attribute("src")
            picture = Image.open(io.BytesIO(real.page.request.get(source).body()))
            record_id = re.search(r"Spillway id: (\w+)", picture.info["parameters"])[1]
            records[image["file"]] = host.ask(f"/spillway/v1/images?ids={record_id}&lang=zh")["ids"][record_id]
        assert len({record["record_id"] for record in records.values()}) == 2
        right(images, records)
    finally:
        host.ask("/sdapi/v1/options", {"samples_save": True, "grid_save": True})


def test_the_preview_has_the_badge_of_the_image_that_it_shows(real):
    _, first, second = real.generate(2, batch_size=2)
    assert real.page.locator(PREVIEW).count() == 0, "the host shows the grid first"
    for number, image in ((1, first), (2, second), (1, first)):
        real.page.locator("#txt2img_gallery .thumbnail-small").nth(number).click()
        real.page.wait_for_function(
            f"(file) => document.querySelector('{PREVIEW}')?.dataset.file === file", arg=image["file"], timeout=5000
        )
        assert real.page.locator(PREVIEW).count() == 1
    real.page.locator("#txt2img_gallery .thumbnail-small").first.click()
    real.page.wait_for_function(f"!document.querySelector('{PREVIEW}')", timeout=5000)


def test_a_badge_moves_nothing_and_comes_and_goes_by_one_switch(real, host):
    real.generate(2, batch_size=2)
    page = real.page
    page.locator("#txt2img_gallery .thumbnail-small").nth(1).click()
    page.wait_for_selector(PREVIEW)
    page.mouse.move(2, 2)
    page.wait_for_timeout(400)
    badged = page.evaluate(BOXES)
    real.show("spillway")
    page.uncheck("#spillway-badges-shown")
    page.wait_for_function("!document.querySelector('.spillway-badge')", timeout=5000)
    real.show("txt2img")
    page.wait_for_timeout(400)
    assert page.evaluate(BOXES) == badged
    assert host.ask("/sdapi/v1/options")["spillway_badges"] is False
    real.show("spillway")
    page.check("#spillway-badges-shown")
    page.wait_for_function("document.querySelectorAll('.spillway-badge').length === 3", timeout=5000)


def test_in_the_hosts_chinese_nothing_of_ours_is_left_in_english(real):
    page = real.page
    assert page.evaluate("document.documentElement.dataset.spillwayLanguage") == "zh"
    real.open_accordion()
    real.generate(1)
    page.hover(PREVIEW)
    page.wait_for_selector(".spillway-details:not([hidden]) .spillway-stage-bar", timeout=5000)
    real.show("spillway")
    page.wait_for_selector("#spillway-log .spillway-table td", timeout=8000)
    page.evaluate("document.querySelector('#spillway-profile-lowvram').click()")
    page.locator("#spillway-profiles .spillway-notice", has_text="已切换到 lowvram").wait_for(timeout=10_000)
    assert page.locator("#spillway-meter h2").inner_text() == "内存"
    assert english(page.evaluate(SAID)) == {}
    labels = page.locator("[id^=setting_spillway]").evaluate_all(
        "(nodes) => nodes.map((node) => node.querySelector('[data-testid=block-info], label span').textContent)"
    )
    assert len(labels) == 4
    assert english(labels) == {}
