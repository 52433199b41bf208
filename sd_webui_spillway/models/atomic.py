"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StorageError, first_line


def _cannot_write(path: Path, error: BaseException) -> StorageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    return StorageError(f"{path} cannot be written: {reason}.", detail=repr(error))


def whole_folder(target: Path, write: Callable[[Path], None]) -> Path:
    """``target``, made by ``write(temporary folder)`` unless it is there. Two processes at once both get a whole one.

    Raises:
        StorageError: the disk is full, or the folder may not be written; nothing is left behind.
    """
    if target.is_dir():
        return target
    building: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        write(building)
        try:
            building.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was first, with the same content
                raise
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        if building is not None:
            shutil.rmtree(building, ignore_errors=True)
    return target


def replaced_folder(target: Path, write: Callable[[Path], None]) -> Path:
    """``target``, made anew by ``write(temporary folder)``; what was there goes once the new one is whole.

    Raises:
        StorageError: the disk is full, or the folder may not be written; the old folder is as it was.
    """
    if not target.is_dir():
        return whole_folder(target, write)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as beside:
        made, old = whole_folder(Path(beside) / "new", write), Path(beside) / "old"
        try:
            target.rename(old)
            made.rename(target)
        except OSError as error:
            if old.is_dir():
                old.rename(target)
            raise _cannot_write(target, error) from error
    return target


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A temporary path beside ``target``, which takes its place when the block ends without an error.

    Raises:
        StorageError: the disk is full, or the folder may not be written; nothing is left behind.
    """
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
