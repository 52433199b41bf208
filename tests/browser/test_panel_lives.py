"""The panel without a job: it comes up once, moves, rests while hidden, and survives a dead server."""

from __future__ import annotations

import pytest

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.units import GIB

from .chromium import PRETEND_HIDDEN

CARDS = ("meter", "progress", "profiles", "cap", "log")


def taken_at(page):
    return float(page.locator("#spillway-meter .spillway-card").get_attribute("data-taken-at"))


def test_the_page_loads_whole_and_without_an_error_of_ours(open_page):
    watched = open_page()
    for name in CARDS:
        assert watched.page.locator(f"#spillway-{name} > .spillway-card").count() == 1
    assert watched.page.locator("#spillway-root h1").inner_text() == "Spillway"
    assert watched.complaints == []


def test_the_meter_moves_and_says_that_it_is_simulated(open_page):
    page = open_page().page
    first, figure = taken_at(page), page.locator('[data-name="dedicated"] .spillway-figure')
    assert figure.inner_text().endswith("of 4.0 GiB")
    path = page.locator(".spillway-plot-dedicated").get_attribute("d")
    page.wait_for_function("(first) => Number(document.querySelector('#spillway-meter .spillway-card')"
                           ".dataset.takenAt) > first + 0.5", arg=first, timeout=5000)
    # Waited for, not compared once: the fake's figures repeat, so one later moment may look like the first.
    page.wait_for_function("(path) => document.querySelector('.spillway-plot-dedicated').getAttribute('d') !== path",
                           arg=path, timeout=5000)
    assert page.locator("#spillway-meter .spillway-state-word").inner_text() == "comfortable"
    assert page.locator("#spillway-meter .spillway-tag").inner_text() == "simulated"


def test_a_spill_is_a_word(open_page, served):
    page = open_page().page
    served.host.memory.spilled_bytes = GIB
    try:
        page.wait_for_selector('.spillway-state[data-state="spilling"]', timeout=5000)
    finally:
        served.host.memory.spilled_bytes = 0
    assert "spilled 1.0" in page.locator('[data-name="shared"] .spillway-parts').inner_text()
    page.wait_for_selector('.spillway-state[data-state="comfortable"]', timeout=5000)


def test_a_profile_switch_shows_and_what_cannot_be_had_says_why(open_page, served):
    page = open_page().page
    auto = page.locator("label", has=page.locator("#spillway-profile-auto"))
    assert "that are free." in auto.inner_text()
    page.check("#spillway-profile-medvram")
    page.wait_for_function("document.querySelector('#spillway-profiles .spillway-notice').textContent"
                           ".startsWith('Switched to medvram in')", timeout=5000)
    assert served.session.settings.profile is Profile.MEDVRAM
    assert page.locator("#spillway-profile-medvram").is_checked()
    gone = page.locator("label", has=page.locator("#spillway-profile-sequential"))
    assert "unavailable: it has not been measured on a real GPU yet" in gone.inner_text()
    assert page.locator("#spillway-profile-sequential").is_disabled()
    other = open_page().page
    assert other.locator("#spillway-profile-medvram").is_checked()
    other.check("#spillway-profile-auto")
    page.wait_for_function("document.querySelector('#spillway-profile-auto').checked", timeout=5000)


def test_the_needs_follow_the_size_in_the_form(open_page):
    page = open_page().page
    needs = page.locator("label", has=page.locator("#spillway-profile-dedicated")).locator(".spillway-need")
    before = needs.inner_text()
    page.fill("#spillway-width input", "1024")
    page.fill("#spillway-height input", "1024")
    page.wait_for_function("document.querySelector('#spillway-profiles .spillway-caption').textContent"
                           ".includes('1024×1024')", timeout=5000)
    assert needs.inner_text() != before
    assert "more than is free" in needs.inner_text()


def test_the_cap_is_set_and_a_bad_one_is_a_sentence(open_page, served):
    page = open_page().page
    cap = page.locator("#spillway-cap")
    cap.locator("select").select_option("gib")
    cap.locator("input").fill("2.5")
    cap.locator("button", has_text="Apply").click()
    page.wait_for_function("document.querySelector('#spillway-cap .spillway-caption').textContent"
                           ".includes('2.5 GiB')", timeout=5000)
    assert served.session.settings.cap_bytes == int(2.5 * GIB)
    cap.locator("select").select_option("percent")
    cap.locator("input").fill("140")
    cap.locator("button", has_text="Apply").click()
    cap.locator(".spillway-sentence", has_text="from 0 to 100 % of RAM").wait_for(timeout=5000)
    cap.locator("select").select_option("default")
    cap.locator("button", has_text="Apply").click()
    page.wait_for_function("document.querySelector('#spillway-cap .spillway-caption').textContent"
                           ".includes('4.8 GiB')", timeout=5000)
    assert served.session.settings.cap_bytes is None


def test_a_hidden_tab_asks_for_nothing(open_page):
    page = open_page().page
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/spillway/" in request.url else None)
    page.wait_for_timeout(1600)
    assert 2 <= len(asked) <= 6, "about two questions a second while seen"
    page.evaluate(PRETEND_HIDDEN, True)
    page.wait_for_timeout(700)
    asked.clear()
    page.wait_for_timeout(2000)
    assert asked == []
    page.evaluate(PRETEND_HIDDEN, False)
    page.wait_for_timeout(1200)
    assert asked


def test_a_panel_out_of_sight_asks_for_nothing(open_page):
    page = open_page().page
    page.evaluate("document.querySelector('.gradio-container').style.display = 'none'")
    page.wait_for_timeout(700)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/spillway/" in request.url else None)
    page.wait_for_timeout(1500)
    assert asked == []


def test_a_dead_server_is_said_asked_less_often_and_found_again(open_page):
    page = open_page().page
    asked = []

    def die(route):
        if "/memory" in route.request.url:
            asked.append(route.request.url)
        route.abort()

    page.route("**/spillway/v1/**", die)
    page.wait_for_selector('.spillway-state[data-state="unavailable"]', timeout=8000)
    assert page.locator("#spillway-meter .spillway-state-word").inner_text() == "unavailable"
    asked.clear()
    page.wait_for_timeout(2500)
    assert len(asked) <= 3, "backed off"
    page.unroute("**/spillway/v1/**")
    page.wait_for_selector('.spillway-state[data-state="comfortable"]', timeout=15_000)
    before = taken_at(page)
    page.wait_for_timeout(1300)
    assert taken_at(page) > before


def test_a_reload_or_a_second_load_of_the_script_leaves_one_panel(open_page):
    page = open_page().page
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("#spillway-meter [data-taken-at]", timeout=60_000)
    for name in ("spillway", "meter", "api"):
        page.evaluate(
            "(name) => import(`/spillway/v1/assets/${name}.mjs?again`)", name
        )
    page.wait_for_timeout(600)
    for name in CARDS:
        assert page.locator(f"#spillway-{name} > .spillway-card").count() == 1
    assert page.locator(".spillway-header").count() == 1


def test_a_part_that_the_host_draws_anew_comes_back(open_page):
    page = open_page().page
    page.evaluate("document.querySelector('#spillway-meter').replaceChildren()")
    page.wait_for_selector("#spillway-meter > .spillway-card", timeout=3000)


def test_names_are_shown_as_written_never_as_markup(open_page):
    page = open_page().page
    page.wait_for_function("document.querySelector('.spillway-host').textContent.includes('<b>shapes</b>')")
    assert page.locator(".spillway-host b").count() == 0


@pytest.mark.parametrize("options", [{"query": "?lang=zh"}, {"query": "", "locale": "zh-CN"}])
def test_chinese_by_address_or_by_browser(open_page, options):
    page = open_page(**options).page
    assert page.locator("#spillway-meter h2").inner_text() == "内存"
    assert page.locator('[data-name="dedicated"] .spillway-label').inner_text() == "专用显存"
    assert page.locator("button#spillway-generate").inner_text().strip() == "生成"
    assert page.locator('#spillway-prompt [data-testid="block-info"]').inner_text().strip() == "提示词"
