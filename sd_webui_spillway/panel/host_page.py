"""The panel's places on the page of a host that has pages of its own."""

from __future__ import annotations

from typing import Any

from ..session import Session
from .panel import build_compact, build_panel


def build_tab(session: Session) -> Any:
    """The panel as gradio ``Blocks``, for the host to show as one of its tabs."""
    import gradio

    with gradio.Blocks(analytics_enabled=False) as page:
        build_panel(session, None)
    return page


def build_accordion(session: Session, tab: str) -> None:
    """The compact form inside what is open of the host's page; see :func:`~.panel.build_compact`."""
    import gradio

    with gradio.Accordion("Spillway", open=False):
        build_compact(session, tab)
