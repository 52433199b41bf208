"""What a card knows of memory, as the first provider of the chain."""

from __future__ import annotations

from ..memory.shared_ledger import SharedLedger
from ..memory.snapshot import Reading
from ..placement.card import Card


class CardMemory:
    """All dedicated and shared figures of a simulated card; of a real one its name and this process's limit."""

    name = "card"

    def __init__(self, card: Card, ledger: SharedLedger | None = None) -> None:
        self._card = card
        self._ledger = ledger

    def read(self) -> Reading:
        card = self._card
        if not card.simulated:
            return Reading({"device_name": card.label, "dedicated_limit_bytes": card.limit_bytes})
        used = card.used_bytes()
        return Reading({
            "device_name": card.label,
            "simulated": True,
            "dedicated_total_bytes": card.total_bytes,
            "dedicated_limit_bytes": card.limit_bytes,
            "dedicated_used_bytes": used,
            "dedicated_process_bytes": used,
            "shared_pinned_bytes": self._ledger.pinned_bytes if self._ledger else 0,
            "shared_spilled_bytes": 0,
        })
