"""A simulated card whose copies can be told to fail."""

from __future__ import annotations

import torch

from sd_webui_spillway.placement.simulated import SimulatedCard


def out_of_memory() -> torch.cuda.OutOfMemoryError:
    return torch.cuda.OutOfMemoryError("CUDA out of memory. Planned by the test.")


class FaultyCard(SimulatedCard):
    """Counts ``put`` and ``fetch``; those told of raise instead and change nothing."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(total_bytes)
        self.puts = self.fetches = 0
        self._failing_puts: set[int] = set()
        self._failing_fetches: set[int] = set()
        self.raised = 0

    def fail_put(self, index: int, times: int = 1) -> None:
        """The ``index``-th put from now on fails, and those after it up to ``times`` in all."""
        self._failing_puts = {self.puts + index + more for more in range(times)}

    def fail_fetch(self, index: int, times: int = 1) -> None:
        """As :meth:`fail_put`, for copies into system memory."""
        self._failing_fetches = {self.fetches + index + more for more in range(times)}

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        self.puts += 1
        self._raise_if(self.puts - 1 in self._failing_puts)
        return super().put(tensor)

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        self.fetches += 1
        self._raise_if(self.fetches - 1 in self._failing_fetches)
        return super().fetch(tensor)

    def _raise_if(self, planned: bool) -> None:
        if planned:
            self.raised += 1
            raise out_of_memory()
