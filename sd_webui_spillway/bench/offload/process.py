"""A child process that answers orders, and is ended when it does not."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sd_webui_spillway

_TAIL_BYTES = 4096
_ENDING_SECONDS = 10.0


class ChildFailedError(Exception):
    """The child died, hung or answered nonsense; ``str`` says which."""


class Child:
    """Orders go in as JSON lines, answers come out as JSON lines, one for one; the first one by itself."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        environment = {**os.environ, "PYTHONPATH": _with_this_package(os.environ.get("PYTHONPATH"))}
        self._process = subprocess.Popen(  # noqa: S603 - our own module, or a test's
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="spillway-bench-answers", daemon=True)
        self._reader.start()

    def answer(self, timeout_seconds: float) -> dict[str, Any]:
        """The next answer.

        Raises:
            ChildFailedError: it does not come; the process has ended then.
        """
        try:
            line = self._answers.get(timeout=timeout_seconds)
        except queue.Empty:
            self.kill()
            raise ChildFailedError(f"no answer within {timeout_seconds:.0f} s; it was ended") from None
        if not line:
            code = self._wait()
            raise ChildFailedError(f"its process ended with code {code}{self._last_words()}")
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.kill()
            raise ChildFailedError(f"its answer is not one: {line[:80]!r}")
        return found

    def order(self, timeout_seconds: float, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer. Raises as :meth:`answer` does."""
        with contextlib.suppress(OSError):  # it is gone; the end of its answers tells why
            self._say(order)
        return self.answer(timeout_seconds)

    def end(self) -> None:
        """Ask it to end, and see to it; a child that has ended already is only cleared away."""
        with contextlib.suppress(OSError):
            self._say({"do": "end"})
        self._wait()
        self._reader.join(_ENDING_SECONDS)
        for stream in (self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def _say(self, order: dict[str, Any]) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def _wait(self) -> int:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            return self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def _last_words(self) -> str:
        if self._errors.closed:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL_BYTES))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


def peer_command(peer: str, folder: Path | None, *, rehearsal: bool) -> list[str]:
    """What starts the process of a peer."""
    command = [sys.executable, "-m", "sd_webui_spillway.bench.offload.child", "--peer", peer]
    if folder is not None:
        command += ["--folder", str(folder)]
    return [*command, "--rehearsal"] if rehearsal else command


def _with_this_package(path: str | None) -> str:
    own = str(Path(sd_webui_spillway.__file__).parents[1])
    return os.pathsep.join([own, *([path] if path else [])])
