"""What a person is told of a request: which images could not be made, and what else was done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

logger = logging.getLogger(__name__)


class Told:
    """The sentences about one job."""

    def __init__(self, p: Any, notices: Sequence[str]) -> None:
        """``p`` is the webui's processing object, which carries sentences to the person; ``notices`` come before."""
        self._p = p
        self.notices = list(notices)
        self.said: list[str] = []
        """Those of :attr:`notices` that a person should read beside the images."""
        self.losses: list[str] = []
        """Those of them that name images which could not be made."""

    def say(self, sentence: str) -> None:
        """For the person who asked: under the gallery, in the API's answer and in the job's result."""
        logger.warning("%s", sentence)
        self._p.comment(sentence)
        if sentence not in self.said:
            self.said.append(sentence)
            self.notices.append(sentence)

    def lost(self, reasons: Mapping[int, str]) -> None:
        """These images could not be made: why, by their number in the request, from 0."""
        for because in dict.fromkeys(reasons.values()):
            numbers = [number for number, why in reasons.items() if why == because]
            self.losses.append(f"{_named(numbers, len(self._p.all_seeds))} could not be made: {because}")
            self.say(self.losses[-1])


def _named(numbers: Sequence[int], count: int) -> str:
    first, last = numbers[0] + 1, numbers[-1] + 1
    if len(numbers) == 1:
        return f"Image {first} of {count}"
    if last - first + 1 == len(numbers):
        return f"Images {first} to {last} of {count}"
    return f"Images {', '.join(str(number + 1) for number in numbers[:-1])} and {last} of {count}"
