"""What is ours may fail; the webui's own work goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class Unharmed:
    """``with unharmed("…"):`` logs what fails inside, each thing once in full, and goes on after the block."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """``what`` says what comes of a failure."""
        try:
            yield
        except Exception as error:
            words = f"{what}: {error}"
            if words in self._said:
                logger.debug("%s", words)
            else:
                self._said.add(words)
                logger.exception("%s", what)
