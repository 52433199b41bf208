"""Every difference between gradio 3.41, 4.40 and 6 that the panel meets. gradio is imported inside the functions: it
takes seconds, and a command line that shows no panel must not pay for it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI

_JOBS_AT_ONCE = 4
"""More than one, so that a second page is told that a job runs instead of waiting without a word."""


def gradio_major() -> int:
    """The first number of the installed gradio's version."""
    import gradio

    return int(gradio.__version__.split(".")[0])


def new_blocks(title: str) -> Any:
    """An empty page that sends nothing home and takes generators as events."""
    import gradio

    options: dict[str, Any] = {} if _theme_at_mount() else {"theme": _theme()}
    blocks = gradio.Blocks(title=title, analytics_enabled=False, **options)
    if gradio_major() < 4:
        return blocks.queue(concurrency_count=_JOBS_AT_ONCE, api_open=False)
    return blocks.queue(default_concurrency_limit=_JOBS_AT_ONCE, api_open=False)


def mount(app: FastAPI, blocks: Any, folders: Sequence[Path]) -> FastAPI:
    """Serve the page at ``/`` of ``app``; pictures may come from ``folders``."""
    import gradio

    allowed = [str(folder) for folder in folders]
    parameters = inspect.signature(gradio.mount_gradio_app).parameters
    wanted: dict[str, Any] = {
        "allowed_paths": allowed, "ssr_mode": False, "show_error": True, "footer_links": [], "run_history": False,
    }
    if _theme_at_mount():
        wanted["theme"] = _theme()
    if "allowed_paths" not in parameters:
        blocks.allowed_paths = allowed
    options = {name: value for name, value in wanted.items() if name in parameters}
    mounted: FastAPI = gradio.mount_gradio_app(app, blocks, path="/", **options)
    return mounted


def _theme_at_mount() -> bool:
    import gradio

    return "theme" in inspect.signature(gradio.mount_gradio_app).parameters


def _theme() -> Any:
    """gradio's own look in fonts that are on the machine: its default fetches them from the internet."""
    import gradio

    return gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])


def event_options(*, queue: bool) -> dict[str, Any]:
    """Options of an event that is no part of the public API and has no progress overlay of gradio's."""
    hidden: dict[str, Any] = {"api_visibility": "private"} if gradio_major() >= 6 else {"api_name": False}
    if gradio_major() >= 4 and queue:
        hidden["concurrency_limit"] = _JOBS_AT_ONCE
    return {"queue": queue, "show_progress": "hidden", **hidden}


def gallery(**options: Any) -> Any:
    """A gallery with a download button and none for sharing."""
    import gradio

    if gradio_major() >= 6:
        options["buttons"] = ["download", "fullscreen"]
    else:
        options.update(show_share_button=False, show_download_button=True)
    if gradio_major() >= 4:
        options["interactive"] = False
    return gradio.Gallery(**options)


def html_slot(markup: str, **options: Any) -> Any:
    """Markup without the frame and padding that newer versions put around it."""
    import gradio

    known = inspect.signature(gradio.HTML.__init__).parameters
    plain = {name: False for name in ("padding", "container", "show_label") if name in known}
    return gradio.HTML(markup, **{**plain, **options})
