"""Writing finished images: whole or not at all, and never over another."""

from __future__ import annotations

import json
import logging
import tempfile
import uuid
from pathlib import Path
from typing import Any

from PIL.PngImagePlugin import PngInfo

from ..errors import StorageError, first_line

logger = logging.getLogger(__name__)


def check_writable(folder: Path) -> None:
    """Make the folder, and make sure that a file can be written there, before any image is made.

    Raises:
        StorageError: one sentence that names the folder.
    """
    probe = folder / f".spillway-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\0" * 4096)
    except OSError as error:
        raise StorageError(f"Images cannot be saved in {folder}: {error.strerror or first_line(error)}.") from error
    finally:
        _remove(probe)


def save_image(image: Any, folder: Path, name: str, parameters: dict[str, Any]) -> tuple[Path, str | None]:
    """Save a PIL image as ``folder/name.png`` with its parameters inside. Where that fails, the system's folder for
    temporary files takes it, so that a finished image is not lost.

    Returns:
        Where the image is, and a sentence if that is not where it was wanted.

    Raises:
        StorageError: neither place takes it.
    """
    try:
        return _write(image, folder, name, parameters), None
    except OSError as error:
        problem = f"{folder} cannot be written ({error.strerror or first_line(error)})"
    rescue = Path("spillway-rescued")
    try:
        rescue = Path(tempfile.gettempdir()) / rescue
        rescue.mkdir(parents=True, exist_ok=True)
        path = _write(image, rescue, name, parameters)
    except OSError as error:
        raise StorageError(f"{name}.png could not be saved: {problem}, and neither can {rescue}.") from error
    return path, f"{problem}, so {path.name} was saved in {rescue}."


def _write(image: Any, folder: Path, name: str, parameters: dict[str, Any]) -> Path:
    text = PngInfo()
    text.add_text("spillway", json.dumps(parameters, ensure_ascii=True, sort_keys=True))
    path = folder / f"{name}.png"
    temporary = folder / f".{name}.{uuid.uuid4().hex}.part"
    try:
        with temporary.open("wb") as stream:
            image.save(stream, format="PNG", pnginfo=text)
        temporary.replace(path)
    except BaseException:
        _remove(temporary)
        raise
    return path


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.debug("left behind: %s (%s)", path, error)
