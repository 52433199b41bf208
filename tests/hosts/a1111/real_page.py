"""The real webui's page in a real browser: opening it, going to its tabs, making images with its own buttons."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.hosts.webui import WebUi, add_this_extension

MODEL = "图画"
"""A name that is Chinese already: what is then left in English on the page is ours."""
SEEN_METER = "#spillway-meter .spillway-card[data-taken-at]"
THUMBNAILS = """
() => [...document.querySelectorAll('#txt2img_gallery .thumbnail-lg')].map((thumbnail) => ({
  file: decodeURIComponent(thumbnail.querySelector('img').src.split('?')[0].split('/').pop()),
  badges: [...thumbnail.querySelectorAll('.spillway-badge')].map((badge) => [badge.dataset.file, badge.textContent]),
}))
"""
BADGED = f"""
([count, before]) => {{
  const all = ({THUMBNAILS})();
  return all.flatMap(({{ badges }}) => badges).length === count && !all.some(({{ file }}) => before.includes(file));
}}
"""


@contextmanager
def running_host(data: Path, **options: Any) -> Iterator[WebUi]:
    """The webui with the extension and the embedded model, on a card with room for it; ``options`` are its own."""
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder

    checkpoint = data / "models" / "Stable-diffusion" / f"{MODEL}.safetensors"
    convert_folder(embedded_folder(), checkpoint)
    add_this_extension(data)
    config = {"live_previews_enable": False, "list_hidden_files": True, **options}
    (data / "config.json").write_text(json.dumps(config), encoding="utf-8")
    host = WebUi(data, checkpoint, "--spillway-dedicated-limit", "400MiB", page=True)
    try:
        host.wait()
        yield host
    finally:
        host.close()


def idle(host: WebUi) -> None:
    """Until no job runs, with the profile that a test began with."""
    deadline = time.monotonic() + 60
    while host.ask("/spillway/v1/jobs/current")["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    host.ask("/spillway/v1/profile", {"profile": "auto"}, "PUT")


class RealPage:
    """One page, and what was asked of our routes since :meth:`forget`."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.asked: list[str] = []
        self.broken: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url) if "/spillway/" in request.url else None)
        page.on("pageerror", lambda error: self._complain(str(error.stack)))
        page.goto(address, wait_until="domcontentloaded")
        self.ready()

    def _complain(self, stack: str) -> None:
        if "/spillway/" in stack or "sd-webui-spillway" in stack:
            self.broken.append(stack)

    def ready(self) -> None:
        """Until the host's page is built and ours has looked at it."""
        self.page.wait_for_selector("#txt2img_generate", state="visible", timeout=60_000)
        self.page.wait_for_selector("#spillway-meter .spillway-card", state="attached", timeout=30_000)

    def show(self, tab: str) -> None:
        """One of the host's tabs, by its id."""
        index = self.page.evaluate(
            "(id) => [...document.querySelectorAll('#tabs > .tabitem')].findIndex((tab) => tab.id === id)", f"tab_{tab}"
        )
        self.page.locator("#tabs > .tab-nav > button").nth(index).click()
        self.page.locator(f"#tab_{tab}").wait_for(state="visible", timeout=5000)

    def open_accordion(self) -> None:
        self.page.locator("#tab_txt2img .gradio-accordion:has(.spillway-compact) > .label-wrap").click()
        self.page.locator("#tab_txt2img .spillway-compact select").wait_for(state="visible", timeout=5000)

    def fill(self, **numbers: int) -> None:
        for name, value in {"width": 64, "height": 64, "steps": 3, "batch_size": 1, **numbers}.items():
            field = self.page.locator(f"#txt2img_{name} input[type=number]")
            field.fill(str(value))
            field.press("Tab")

    def files(self) -> list[str]:
        return [thumbnail["file"] for thumbnail in self.page.evaluate(THUMBNAILS)]

    def generate(self, badges: int, **numbers: int) -> list[dict[str, Any]]:
        """Make images with the host's button; its gallery, once it has other images and so many badges."""
        before = self.files()
        self.fill(**numbers)
        self.page.click("#txt2img_generate")
        self.page.wait_for_function(BADGED, arg=[badges, before], timeout=90_000)
        found: list[dict[str, Any]] = self.page.evaluate(THUMBNAILS)
        return found

    def panels(self) -> dict[str, int]:
        """How many there are of each part."""
        parts = ("meter", "progress", "profiles", "cap", "settings", "log")
        return {name: self.page.locator(f"#spillway-{name} > .spillway-card").count() for name in parts}

    def reload_ui(self) -> None:
        """The host's own button; it builds its page anew and the browser loads it again."""
        self.page.evaluate("window.spillwayTestWasHere = true")
        self.page.evaluate("gradioApp().querySelector('#settings_restart_gradio').click()")
        self.page.wait_for_function("window.spillwayTestWasHere === undefined", timeout=120_000)
        self.page.wait_for_selector("#txt2img_generate", state="visible", timeout=60_000)
