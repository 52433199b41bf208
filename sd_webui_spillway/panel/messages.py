"""What the panel says after a job or instead of one, as markup that carries no markup of anyone else's."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..errors import SpillwayError
from ..host_port import JobResult
from ..words import LANGUAGES, translate


def error_markup(error: SpillwayError) -> str:
    """The sentence, and the technical line under it in small print."""
    detail = f'<code class="spillway-detail">{escape(error.detail)}</code>' if error.detail else ""
    return (
        '<div class="spillway-message" data-kind="error" role="alert">'
        f'<p class="spillway-sentence">{_in_all_languages(str(error))}</p>{detail}'
        f'<button type="button" class="spillway-copy">{_in_all_languages("Copy")}</button></div>'
    )


def notice_markup(sentences: Sequence[str]) -> str:
    """One paragraph a sentence; nothing where there is none."""
    if not sentences:
        return ""
    lines = "".join(f'<p class="spillway-sentence">{_in_all_languages(sentence)}</p>' for sentence in sentences)
    return f'<div class="spillway-message" data-kind="notice" role="status">{lines}</div>'


def _in_all_languages(sentence: str) -> str:
    """The style sheet shows the one that the page's script found to be the reader's."""
    said = ((language, translate(sentence, language)) for language in LANGUAGES)
    return "".join(f'<span class="spillway-said" data-language="{code}">{escape(text)}</span>' for code, text in said)


def result_sentences(result: JobResult) -> list[str]:
    """What a person must know besides the pictures: which were given up and why, and what went otherwise."""
    lost = [
        f"The image with seed {record.seed} was given up: {record.message or 'no reason was given'}."
        for record in result.given_up
    ]
    stopped = ["The job was stopped; what was finished is kept."] if result.interrupted else []
    return [*stopped, *lost, *result.notices]
