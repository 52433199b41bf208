"""The panel itself: the form and the gallery are gradio's, the rest are places that the page's own script fills."""

from __future__ import annotations

from html import escape
from typing import Any

from ..host_port import ImageRequest
from ..session import Session
from .generation import Generation
from .gradio_compat import event_options, gallery, html_slot
from .pictures import Pictures
from .routes import PREFIX

_RANDOM_SEED = -1


def build_panel(session: Session, pictures: Pictures | None, *, standalone: bool = False) -> None:
    """Add the panel to the gradio ``Blocks`` that is open. In a host that makes its own images it has no form and no
    gallery: those are on the host's pages.

    The page must also load ``style.css`` and ``javascript/spillway.mjs`` and serve :func:`~.routes.build_router`.

    Args:
        session: what is shown and steered.
        pictures: how the gallery reaches the session's images; not used where the host has a gallery of its own.
        standalone: the page holds nothing else, so gradio's own footer is left out.
    """
    import gradio

    _slot("root", api=PREFIX.lstrip("/") + "/", standalone="yes" if standalone else "no")
    with gradio.Row(elem_classes="spillway-columns"):
        if pictures is None or session.info().makes_its_own_images:
            with _column(5):
                _slot("meter")
                _slot("progress")
                _slot("cap")
                _slot("settings")
            with _column(7):
                _slot("profiles")
        else:
            _add_generation(session, pictures)
    _slot("log")


def build_compact(session: Session, tab: str) -> None:
    """Add the meter and the choice of a profile in a few lines to what is open of a host's page; ``tab`` tells apart
    the places of one page, of which any number may exist. :func:`build_panel` must be on the same page."""
    html_slot(
        f'<div class="spillway spillway-compact" data-tab="{escape(tab)}">{session.settings.profile}</div>',
        elem_id=f"spillway-compact-{tab}",
        elem_classes="spillway-slot",
    )


def _add_generation(session: Session, pictures: Pictures) -> None:
    """The form, the gallery and their events, with the places for everything else around them."""
    import gradio

    generation = Generation(session, pictures, gradio.update)
    with _column(5):
        fields = _form(session)
        with gradio.Row(elem_classes="spillway-buttons"):
            start = gradio.Button("Generate", variant="primary", elem_id="spillway-generate")
            stop = gradio.Button("Stop", variant="stop", elem_id="spillway-stop")
        message = html_slot("", elem_id="spillway-message", elem_classes="spillway-slot")
        _slot("profiles")
        _slot("cap")
        _slot("settings")
    with _column(7):
        _slot("meter")
        _slot("progress")
        images = gallery(
            value=generation.last_pictures, label="Images", columns=2, object_fit="contain",
            elem_id="spillway-gallery",
        )
        # Pressed by the page's script when a job ends that another page began.
        refresh = gradio.Button("Show the last job's images", elem_id="spillway-refresh")
    start.click(generation.generate, inputs=fields, outputs=[images, message], **event_options(queue=True))
    stop.click(generation.stop, outputs=message, **event_options(queue=False))
    refresh.click(generation.last_pictures, outputs=images, **event_options(queue=False))


def _column(scale: int) -> Any:
    import gradio

    return gradio.Column(scale=scale, min_width=340, elem_classes="spillway-column")


def _form(session: Session) -> list[Any]:
    """The fields of :data:`~.form.FIELDS`, in that order. Numbers carry no bounds: gradio would refuse with a toast
    where the panel has a sentence."""
    import gradio

    info = session.info()
    fresh = ImageRequest()
    width, height = info.default_size
    prompt = gradio.Textbox(
        label="Prompt", lines=3, placeholder="What to draw", elem_id="spillway-prompt"
    )
    negative = gradio.Textbox(
        label="Negative prompt", lines=1, placeholder="What to avoid", elem_id="spillway-negative-prompt"
    )
    with gradio.Row(elem_classes="spillway-fields"):
        wide = _number("Width", width, "width")
        high = _number("Height", height, "height")
        steps = _number("Steps", fresh.steps, "steps")
    with gradio.Row(elem_classes="spillway-fields"):
        sampler = gradio.Dropdown(
            label="Sampler", choices=list(info.samplers), value=info.samplers[0], elem_id="spillway-sampler",
            min_width=100,
        )
        guidance = _number("Guidance", fresh.guidance_scale, "guidance")
        seed = _number("Seed (-1: random)", _RANDOM_SEED, "seed")
    with gradio.Row(elem_classes="spillway-fields"):
        size = _number("Batch size", fresh.batch_size, "batch-size")
        count = _number("Batch count", fresh.batch_count, "batch-count")
    return [prompt, negative, wide, high, steps, sampler, guidance, seed, size, count]


def _number(label: str, value: float, name: str) -> Any:
    import gradio

    return gradio.Number(label=label, value=value, elem_id=f"spillway-{name}", min_width=100)


def _slot(name: str, **data: str) -> None:
    attributes = "".join(f' data-{key}="{escape(value)}"' for key, value in data.items())
    html_slot(
        f'<div id="spillway-{name}" class="spillway"{attributes}></div>',
        elem_id=f"spillway-{name}-slot",
        elem_classes="spillway-slot",
    )
