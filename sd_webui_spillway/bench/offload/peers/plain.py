"""What anybody would try first: everything on the card, or one block at a time."""

from __future__ import annotations

from torch import nn

from ....placement.component import blocks
from .base import Peer, Step, Work, plain_step


class PlainTo(Peer):
    """``module.to("cuda")``."""

    name = "to"
    summary = "plain .to(): every weight on the card"
    holds_all = True

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        return plain_step(work.new_module().to(work.machine.device), work)


class BlockAtATime(Peer):
    """As AUTOMATIC1111's ``lowvram`` does it: before a block runs, the one before goes back to pageable memory with
    ``.to()``, then it comes to the card with ``.to()``."""

    name = "block-pageable"
    summary = "one block at a time with .to(), pageable memory (as A1111's lowvram does)"
    guessed_bytes_per_second = 3.3e9

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        module = work.new_module()
        device = work.machine.device
        on_card: list[nn.Module] = []

        def bring(block: nn.Module, _: object) -> None:
            if on_card and on_card[0] is block:
                return
            while on_card:
                on_card.pop().to("cpu")
            block.to(device)
            on_card.append(block)

        for _, block in blocks(module):
            block.register_forward_pre_hook(bring)
        return plain_step(module, work)
