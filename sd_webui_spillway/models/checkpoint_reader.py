"""Reading a checkpoint file into named tensors, without running anything that it holds."""

from __future__ import annotations

import json
import logging
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelFileError, StorageError, first_line
from .restricted_pickle import RefusedObjectError, RestrictedPickle

_log = logging.getLogger(__name__)
PICKLE_SUFFIXES = (".ckpt", ".pt", ".pth", ".bin")
SUFFIXES = (".safetensors", *PICKLE_SUFFIXES)
_MAX_HEADER_BYTES = 100_000_000
"""The safetensors format's own limit for its JSON header."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: tensors by name (``state_dict`` already unwrapped), and plain facts beside them as text."""

    tensors: dict[str, Tensor]
    path: Path
    metadata: dict[str, str] = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a ``.safetensors``, ``.ckpt``, ``.pt`` or ``.pth`` file, on system memory.

    Safetensors and torch's zip format stay mapped to the file: a tensor's bytes are read when it is first used.

    Raises:
        ModelFileError: missing, empty, truncated, no checkpoint, or a pickle that asks for more than tensors.
        StorageError: the file is there and cannot be read.
    """
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder without model_index.json, not a model.")
    if not path.is_file():
        raise ModelFileError(f"There is no model file at {path}.")
    if path.suffix.lower() not in SUFFIXES:
        raise ModelFileError(f"“{path.name}” is not a model file: it must end in {', '.join(SUFFIXES)}.")
    try:
        with path.open("rb") as file:
            head = file.read(512)
        if not head:
            raise ModelFileError(f"“{path.name}” is empty (0 bytes): the download or copy did not finish.")
        _refuse_text(path, head)
        if path.suffix.lower() == ".safetensors" and not head.startswith((b"PK\x03\x04", b"\x80\x02")):
            return _read_safetensors(path)
        return _read_pickle(path, head)
    except OSError as error:
        raise StorageError(f"“{path.name}” cannot be read: {first_line(error)}.", detail=repr(error)) from error


def _refuse_text(path: Path, head: bytes) -> None:
    """A web page saved in a model's place, or what Git LFS leaves when the file was not fetched."""
    if head.startswith(b"version https://git-lfs"):
        raise ModelFileError(f"“{path.name}” is a Git LFS pointer, not the model itself: fetch it with git lfs pull.")
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelFileError(f"“{path.name}” is a web page, not a model: the download did not give the file.")
    if not any(byte < 9 or 13 < byte < 32 for byte in head):
        raise ModelFileError(f"“{path.name}” is a text file, not a model.")


def _safetensors_header(path: Path) -> dict[str, Any]:
    """The header, after a check that the file is as long as it says; the library's own errors name byte counts only."""
    size_bytes = path.stat().st_size
    truncated = f"“{path.name}” is truncated"
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if size_bytes < 8 or header_bytes > _MAX_HEADER_BYTES or header_bytes < 2:
            raise ModelFileError(f"“{path.name}” is not a safetensors file.")
        if size_bytes < 8 + header_bytes:
            raise ModelFileError(f"{truncated}: even its list of tensors is incomplete.")
        try:
            header: dict[str, Any] = json.loads(file.read(header_bytes))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            needed_bytes = 8 + header_bytes + max(ends, default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ModelFileError(f"“{path.name}” is not a safetensors file.", detail=repr(error)) from error
    if size_bytes < needed_bytes:
        raise ModelFileError(f"{truncated}: it has {size_bytes:,} of the {needed_bytes:,} bytes that it should have.")
    return header


def _read_safetensors(path: Path) -> Checkpoint:
    from safetensors import SafetensorError, safe_open

    header = _safetensors_header(path)
    try:
        with safe_open(str(path), framework="pt", device="cpu") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise ModelFileError(f"“{path.name}” is damaged: {first_line(error)}.", detail=repr(error)) from error
    if not tensors:
        raise ModelFileError(f"“{path.name}” holds no weights.")
    metadata = header.get("__metadata__") or {}
    return Checkpoint(tensors, path, {str(key): str(value) for key, value in metadata.items()})


def _read_pickle(path: Path, head: bytes) -> Checkpoint:
    zipped = _checked_archive(path) if head.startswith(b"PK") else False
    if not zipped and (head[:1] != b"\x80" or head[257:262] == b"ustar"):
        raise ModelFileError(f"“{path.name}” is not a checkpoint: it is no PyTorch file.")
    try:
        with warnings.catch_warnings():
            # torch warns of its own deprecated storage classes while it rebuilds the file's tensors.
            warnings.simplefilter("ignore")
            held = torch.load(
                str(path), map_location="cpu", pickle_module=RestrictedPickle(), weights_only=False, mmap=zipped
            )
    except RefusedObjectError as error:
        raise ModelFileError(
            f"“{path.name}” was refused: it asks to use {error.name}, which no set of weights needs; nothing was run.",
            detail=repr(error),
        ) from error
    except OSError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"“{path.name}” is truncated or damaged and cannot be read.", detail=f"{type(error).__name__}: {error}"
        ) from error
    return _checkpoint_of(path, held)


def _checked_archive(path: Path) -> bool:
    """Whether torch may open this zip file; its list of entries stands at the end, so a cut file has none."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile as error:
        raise ModelFileError(f"“{path.name}” is truncated or damaged and cannot be read.", detail=str(error)) from error
    # torch.load hands an archive with constants.pkl to the TorchScript loader, past our unpickler.
    if any(name.endswith("/constants.pkl") or name == "constants.pkl" for name in names):
        raise ModelFileError(f"“{path.name}” is a TorchScript program, not a set of weights.")
    if not any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        raise ModelFileError(f"“{path.name}” is a zip archive, not a checkpoint.")
    return True


def _checkpoint_of(path: Path, held: Any) -> Checkpoint:
    outer = held if isinstance(held, Mapping) else {}
    inner = outer.get("state_dict", outer)
    inner = inner if isinstance(inner, Mapping) else {}
    tensors = {name: value.detach() for name, value in inner.items() if isinstance(value, Tensor) and type(name) is str}
    if not tensors:
        raise ModelFileError(f"“{path.name}” holds no weights.")
    facts = {
        key: str(value) for key, value in outer.items() if type(key) is str and isinstance(value, str | int | float)
    }
    _log.debug("%s: %d tensors", path.name, len(tensors))
    return Checkpoint(tensors, path, facts)
