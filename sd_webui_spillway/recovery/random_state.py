"""Random numbers, so that a call that is made again draws the same ones."""

from __future__ import annotations

import torch


class RandomState:
    """The state of torch's random number generators as it was when this was made."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
