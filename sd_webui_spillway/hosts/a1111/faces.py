"""Face restoration that runs out of memory: room is made, and at worst the face stays as it was."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from ...errors import first_line
from ...recovery.method_patch import PatchSet
from ...recovery.out_of_memory import is_out_of_memory
from .rescue import OutOfRoomError
from .stages import Watch


class Faces:
    """The webui reports an out-of-memory inside it and goes on without; it is looked for there too."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._inside = False
        self._swallowed: str | None = None

    def install(self, patches: PatchSet) -> None:
        patches.wrap(importlib.import_module("modules.face_restoration"), "restore_faces", self._restore)
        patches.wrap(importlib.import_module("modules.errors"), "report", self._report)

    def _restore(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        picture = args[0] if args else kwargs["np_image"]
        if run.finishing_lost:
            return picture
        try:
            return run.guarded(
                "Face restoration", lambda: self._once(original, args, kwargs), lambda: None
            )
        except OutOfRoomError as error:
            run.told.say(f"A face was left as it was. {error}")
        return picture

    def _once(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._inside, self._swallowed = True, None
        try:
            restored = original(*args, **kwargs)
        finally:
            self._inside = False
        if self._swallowed is not None:
            raise torch.cuda.OutOfMemoryError(self._swallowed)
        return restored

    def _report(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        error = sys.exc_info()[1]
        if self._inside and error is not None and is_out_of_memory(error):
            self._swallowed = first_line(error)
            return None
        return original(*args, **kwargs)
