"""Sentences are made in English where the facts are; here they are recognised by their pattern and said in another
language.

A table holds a pattern for each sentence, with a named field wherever the facts stand:
``"The {name} must be a multiple of 8, not {value}."``. What a field held is translated by the same table, as it may
be a sentence or a word of ours too; a number, a path or a name stays as it is. A sentence that no pattern knows is
shown in English: better than not at all.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from pathlib import Path

LANGUAGES = ("en", "zh")
_FIELD = re.compile(r"\{(\w+)\}")
_JOINTS = (
    (re.compile(r"; "), "；"),
    (re.compile(r" · "), " · "),
    (re.compile(r"(?<=[.。]) (?=[A-Z“])"), ""),
)
"""What stands between sentences that were put together, and what stands there in Chinese."""


def language_of(asked: str | None) -> str:
    """One of :data:`LANGUAGES` for what a page asks for, or a browser in ``Accept-Language``: the first it names
    decides, and English is for every language that has no table."""
    first = (asked or "").split(",")[0].split(";")[0].strip().lower()
    return "zh" if first.startswith("zh") else "en"


@lru_cache(maxsize=4096)
def translate(text: str, language: str) -> str:
    """The text in that language, as far as its table knows it."""
    if language == "en" or not text:
        return text
    return _table(language).say(text)


@cache
def _table(language: str) -> _Table:
    path = Path(__file__).with_name(f"{language}.json")
    return _Table(json.loads(path.read_text(encoding="utf-8")))


class _Table:
    """One language's sentences by their English patterns."""

    def __init__(self, sentences: dict[str, str]) -> None:
        self._exact = {english: other for english, other in sentences.items() if not _FIELD.search(english)}
        patterns = [english for english in sentences if english not in self._exact]
        # The one with the most words of its own fits best.
        patterns.sort(key=lambda english: len(_FIELD.sub("", english)), reverse=True)
        self._patterns = [(_pattern(english), sentences[english]) for english in patterns]

    def say(self, text: str) -> str:
        return self._whole(text) or self._in_parts(text) or self._otherwise_ended(text) or text

    def _whole(self, text: str) -> str | None:
        if text in self._exact:
            return self._exact[text]
        matches = ((pattern.fullmatch(text), other) for pattern, other in self._patterns)
        said = [
            other.format(**{name: self.say(value) for name, value in match.groupdict().items()})
            for match, other in matches if match
        ]
        # A sentence within another may fit a pattern across both; the right one leaves the least in English.
        return min(said, key=_left, default=None)

    def _in_parts(self, text: str) -> str | None:
        for joint, between in _JOINTS:
            parts = joint.split(text)
            said = [self.say(part) for part in parts] if len(parts) > 1 else parts
            if said != parts:
                return between.join(said)
        return None

    def _otherwise_ended(self, text: str) -> str | None:
        """A part that stands last has the full stop of the whole; a sentence within another has lost its own."""
        if text.endswith("."):
            said = self._whole(text[:-1])
            return None if said is None else f"{said}。"
        said = self._whole(f"{text}.")
        return None if said is None else said.rstrip("。")


def _left(text: str) -> int:
    return sum(letter.isascii() and letter.isalpha() for letter in text)


def _pattern(english: str) -> re.Pattern[str]:
    """Fields are as short as they can be, and never empty."""
    pieces = _FIELD.split(english)
    literal = [re.escape(piece) if index % 2 == 0 else f"(?P<{piece}>.+?)" for index, piece in enumerate(pieces)]
    return re.compile("".join(literal), re.DOTALL)
