"""Commands that load a model: demo, serve, generate, profiles."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from ..errors import BadInputError
from ..host_port import ImageRequest, JobResult
from ..placement.profile import Profile
from ..session import Session
from ..timing import job_sentence
from ..units import format_bytes, format_seconds, parse_bytes
from .output import console, errors_console, image_table, shown_progress

if TYPE_CHECKING:
    from ..hosts.standalone import StandaloneOptions
    from ..models import LoadedModel
    from ..placement.card import Card

DEMO_BATCH_SIZE, DEMO_BATCH_COUNT, DEMO_STEPS = 4, 2, 12
DEMO_PROMPT = "a red house and a tree on green grass under a yellow sun"
DEMO_CARD_SHARE = 0.4
"""The demo's card has this share of what the batch would need: the weights fit, calls of the batch do not."""
DEMO_GPU_SCALE = 4
"""On a GPU the embedded model makes pictures so many times as wide and high: at its own size what CUDA's libraries take
for themselves would be most of it."""


def generate(options: argparse.Namespace) -> int:
    """``spillway generate``: exit code 1 where an image could not be made."""
    profile = Profile.parse(options.profile) if options.profile else None
    session = _open(options)
    try:
        request = _request(options, session)
        with shown_progress(session):
            result = session.generate(request, profile)
        if options.json:
            records = [*(image.record for image in result.images), *result.given_up]
            sys.stdout.write(json.dumps([record.as_dict() for record in records], indent=2) + "\n")
        else:
            _show(result, request)
        return 0 if len(result.images) == request.image_count else 1
    finally:
        session.close()


def profiles(options: argparse.Namespace) -> int:
    """``spillway profiles``."""
    session = _open(options)
    try:
        request = _request(options, session)
        rows = session.profile_rows(request)
        choice = session.choose(request)
    finally:
        session.close()
    if options.json:
        answer = {"choice": asdict(choice), "profiles": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        return 0
    title = f"{request.width}×{request.height}, batch of {request.batch_size}. auto would take {choice.reason}"
    table = Table(title=title, title_justify="left")
    for column in ("profile", "what it does", "needs on the card", "measured", "remarks"):
        table.add_column(column)
    for row in rows:
        measured = "not measured yet"
        if row.measured_seconds is not None:
            measured = f"{format_seconds(row.measured_seconds)} an image ({row.measured_count})"
        needs = "–" if row.predicted_dedicated_bytes is None else format_bytes(row.predicted_dedicated_bytes)
        remarks = f"unavailable, because {row.unavailable_because}" if row.unavailable_because else row.note
        table.add_row(row.profile.value, row.summary, needs, measured, remarks)
    console().print(table)
    return 0


def serve(options: argparse.Namespace) -> int:
    """``spillway serve``."""
    _check_port(options.port)
    session = _open(options)
    try:
        _serve(session, options)
    finally:
        session.close()
    return 0


def demo(options: argparse.Namespace) -> int:
    """``spillway demo``: a card too small for the batch, and every image delivered all the same."""
    if not options.no_serve:
        _check_port(options.port)
    session = _open(options, _small_card(options))
    try:
        request = _demo_request(options, session.info().default_size, on_gpu=not session.info().simulated)
        notes = {row.profile: row.note for row in session.profile_rows(request)}
        console().print(
            f"{request.batch_count} × {request.batch_size} images of {request.width}×{request.height} on a card of "
            f"{format_bytes(session.memory().dedicated_limit_bytes)}, as “dedicated”. {notes[Profile.DEDICATED]}"
        )
        with shown_progress(session):
            result = session.generate(request, Profile.DEDICATED)
        _show(result, request)
        if len(result.images) < request.image_count:
            return 1
        if not options.no_serve:
            _serve(session, options)
    finally:
        session.close()
    return 0


def _demo_request(options: argparse.Namespace, size: tuple[int, int], *, on_gpu: bool) -> ImageRequest:
    scale = DEMO_GPU_SCALE if on_gpu and options.model is None else 1
    return ImageRequest(
        prompt=DEMO_PROMPT,
        width=size[0] * scale,
        height=size[1] * scale,
        steps=DEMO_STEPS,
        batch_size=DEMO_BATCH_SIZE,
        batch_count=DEMO_BATCH_COUNT,
    )


def _small_card(options: argparse.Namespace) -> Callable[[LoadedModel], Card] | None:
    """A card too small for the demo's batch, unless the user gave a size."""
    from ..hosts.standalone import on_gpu, open_small_card

    if options.dedicated_limit or options.simulated_card:
        return None
    standalone = _standalone_options(options)
    gpu = on_gpu(standalone)

    def small_card(model: LoadedModel) -> Card:
        request = _demo_request(options, model.default_size, on_gpu=gpu)
        return open_small_card(standalone, model, request, DEMO_CARD_SHARE)

    return small_card


def _check_port(port: int) -> None:
    """Say that the port is taken before the work, not after it."""
    from ..panel.app import bind

    bind(port).close()


def _serve(session: Session, options: argparse.Namespace) -> None:
    from ..panel.app import serve as serve_panel

    def ready(address: str) -> None:
        errors_console().print(f"The panel is at {address} (Ctrl-C ends it).")

    serve_panel(session, options.port, open_browser=not options.no_browser, on_ready=ready)


def _show(result: JobResult, request: ImageRequest) -> None:
    out = console()
    out.print(image_table([*(image.record for image in result.images), *result.given_up]))
    out.print(job_sentence(result, request.image_count))
    for notice in result.notices:
        out.print(notice)
    if result.paths:
        out.print(f"Saved in {result.paths[-1].parent}")


def _open(options: argparse.Namespace, card_for: Callable[[LoadedModel], Card] | None = None) -> Session:
    """The session for these options, its notices shown."""
    from ..hosts.standalone import open_session

    with errors_console().status("loading the model"):
        session = open_session(_standalone_options(options), card_for)
    for notice in (*session.info().notices, *session.log.notices):
        errors_console().print(notice)
    return session


def _standalone_options(options: argparse.Namespace) -> StandaloneOptions:
    from ..hosts.standalone import StandaloneOptions
    from ..models import LoraChoice

    if options.dedicated_limit and options.simulated_card:
        raise BadInputError("Give --dedicated-limit or --simulated-card, not both.")
    return StandaloneOptions(
        model=options.model,
        loras=tuple(LoraChoice.parse(text) for text in options.lora),
        precision=options.precision,
        dedicated_limit_bytes=parse_bytes(options.dedicated_limit) if options.dedicated_limit else None,
        simulated_card_bytes=parse_bytes(options.simulated_card) if options.simulated_card else None,
        data_folder=options.data_folder,
        output_folder=options.output,
    )


def _request(options: argparse.Namespace, session: Session) -> ImageRequest:
    width, height = session.info().default_size
    return ImageRequest(
        prompt=getattr(options, "prompt", ""),
        negative_prompt=options.negative_prompt,
        width=width if options.width is None else options.width,
        height=height if options.height is None else options.height,
        steps=options.steps,
        guidance_scale=options.guidance_scale,
        sampler=options.sampler,
        seed=options.seed,
        batch_size=options.batch_size,
        batch_count=options.batch_count,
        init_image=options.init_image,
        strength=options.strength,
    ).validated()
