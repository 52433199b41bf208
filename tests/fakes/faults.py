"""Out-of-memory where a test wants it: at a call's entry, inside one of its operations, or in a copy."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from .faulty_card import out_of_memory


class CallFault(TorchDispatchMode):
    """Watches one method of one module. At its ``at_call``-th call that has to succeed, raises ``times`` times:
    at the entry, or at the call's ``operation``-th operation."""

    def __init__(
        self, module: Any, call: str, at_call: int, *, operation: int | None = None, times: int = 1,
        error: BaseException | None = None,
    ) -> None:
        super().__init__()
        self.left = times
        self.attempts = 0
        self.done = 0
        self.finished: list[int] = []
        """Operations of each call that came to its end."""
        self._at_call, self._operation = at_call, operation
        self._error = error
        self._inside = False
        self._operations = 0
        original = getattr(module, call)

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self._call():
                return original(*args, **kwargs)

        setattr(module, call, watched)

    @contextmanager
    def _call(self):
        self.attempts += 1
        if self._operation is None:
            self._raise_if_due()
        self._inside, self._operations = True, 0
        try:
            yield
        finally:
            self._inside = False
        self.done += 1
        self.finished.append(self._operations)

    def _raise_if_due(self) -> None:
        if self.left and self.done == self._at_call:
            self.left -= 1
            raise self._error or out_of_memory()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self._inside:
            self._operations += 1
            if self._operation is not None and self._operations > self._operation:
                self._inside = False
                self._raise_if_due()
                self._inside = True
        return func(*args, **(kwargs or {}))
