"""Handing finished pictures to gradio's gallery."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)


class Pictures:
    """Gives each picture a path that gradio is willing to serve, under the same file name.

    gradio serves nothing from below a folder whose name begins with a dot, as ``~/.local`` does, even where it was
    told to: such pictures are copied to a folder of their own, which lasts as long as this object.
    """

    def __init__(self, output_folder: Path) -> None:
        self._output = output_folder.resolve()
        self._copies: tempfile.TemporaryDirectory[str] | None = None
        if _has_dot(self._output):
            self._copies = tempfile.TemporaryDirectory(prefix="spillway-pictures-")

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where served pictures lie."""
        return (self._output,) if self._copies is None else (self._output, Path(self._copies.name).resolve())

    def servable(self, paths: Iterable[Path]) -> list[str]:
        """The same pictures where gradio serves them; those whose file is gone are left out."""
        return [str(placed) for placed in map(self._placed_or_none, paths) if placed is not None]

    def _placed_or_none(self, path: Path) -> Path | None:
        try:
            return self._placed(path.resolve(strict=True))
        except OSError as error:
            logger.warning("the picture %s cannot be shown: %s", path, error)
            return None

    def _placed(self, path: Path) -> Path:
        if self._copies is None or not _has_dot(path):
            return path
        copy = Path(self._copies.name).resolve() / path.name
        if not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime:
            shutil.copyfile(path, copy)
        return copy


def _has_dot(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
