"""What follows from a cell's raw figures: medians with quartiles, the bound, and how near it the step is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it, in seconds."""

    median: float
    first_quartile: float
    third_quartile: float


def spread(seconds: Sequence[float]) -> Spread:
    """Of at least one figure."""
    if len(seconds) < 2:
        return Spread(seconds[0], seconds[0], seconds[0])
    first, middle, third = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(middle, first, third)


def bound_seconds(
    dedicated_seconds: float | None, weights_bytes: int, resident_bytes: int, link_bytes_per_second: float
) -> float | None:
    """``max(all-dedicated step, (weights − budget) ÷ link)``: no placement that keeps to the budget is faster. ``None``
    is unknown: without a dedicated step to compare with there is no bound."""
    if dedicated_seconds is None:
        return None
    return max(dedicated_seconds, max(0, weights_bytes - resident_bytes) / link_bytes_per_second)


def derived(raw: Mapping[str, Any], budget_bytes: int | None, *, holds_all: bool) -> dict[str, Any]:
    """The figures for the table, from what a child has answered to a measure order.

    Args:
        budget_bytes: what weights may take; ``None`` for a peer that cannot be told, which is measured against nothing
            resident, unless it ``holds_all``.
    """
    step = spread(raw["step_seconds"])
    dedicated = spread(raw["dedicated_seconds"]) if raw["dedicated_seconds"] else None
    resident = raw["weights_bytes"] if holds_all else budget_bytes or 0
    bound = bound_seconds(
        dedicated.median if dedicated else None, raw["weights_bytes"], resident, raw["link_bytes_per_second"]
    )
    predicted, spent = raw["predicted_step_seconds"], raw["dedicated_cpu_seconds"]
    return {
        "step": asdict(step),
        "dedicated": asdict(dedicated) if dedicated else None,
        "bound_seconds": bound,
        "step_to_bound": step.median / bound if bound else None,
        "predicted_to_step": predicted / step.median if predicted is not None else None,
        "cpu_added_seconds": raw["step_cpu_seconds"] - spent if spent is not None else None,
    }
