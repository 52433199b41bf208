"""The results as tables in Markdown: rounds of one cell taken together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .figures import derived, spread
from .models import MODELS

_COLUMNS = (
    "peer", "weights in", "step ms (quartiles)", "dedicated ms", "bound ms", "÷ bound", "predicted ms", "peak GB",
    "pinned GB", "CPU + ms", "= dedicated",
)  # fmt: skip
_RULE = "No peer that keeps to a budget is faster than its bound, max(dedicated step, (weights − budget) ÷ link)."
_POOLED = ("step_seconds", "dedicated_seconds")


@dataclass(frozen=True)
class Row:
    """One cell of every round: its figures, or why there are none."""

    model: str
    peer: str
    budget_bytes: int | None
    figures: Mapping[str, Any] | None
    why: str | None


def rows(cells: Iterable[Mapping[str, Any]], holds_all: Mapping[str, bool]) -> list[Row]:
    """The steps of a cell's rounds pooled, other figures by their median; a round without figures counts only where
    there is no other."""
    groups: dict[tuple[str, str, int | None], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if cell["what"] == "step":
            groups.setdefault((cell["model"], cell["peer"], cell["budget_bytes"]), []).append(cell)
    found = []
    for (model, peer, budget), group in groups.items():
        measured = [cell for cell in group if not cell["why"]]
        if measured:
            raw = _pooled(measured)
            figures = {**raw, **derived(raw, budget, holds_all=holds_all.get(peer, False))}
            found.append(Row(model, peer, budget, figures, None))
        else:
            found.append(Row(model, peer, budget, None, str(group[-1]["why"])))
    return found


def tables(content: Mapping[str, Any], holds_all: Mapping[str, bool], titles: Mapping[str, str]) -> str:
    """All of a run's results, for people.

    Args:
        holds_all: by peer, whether its bound is the dedicated step.
        titles: by peer, what it is.
    """
    about, cells = content["about"], content["cells"]
    lines = [f"Measured on {about['device']}, {about['date']}, torch {about['torch']}.", "", _RULE]
    if about["simulated"]:
        lines = ["**A rehearsal on a processor: these figures measure nothing.**", "", *lines]
    every = rows(cells, holds_all)
    for model in dict.fromkeys(row.model for row in every):
        mine = [row for row in every if row.model == model]
        lines += ["", f"## {MODELS[model].title if model in MODELS else model}", "", *_about(mine), *_table(mine)]
        lines += _switches([cell for cell in cells if cell["model"] == model and cell["what"] == "switch"])
    names = {row.peer: titles[row.peer] for row in every if row.peer in titles}
    lines += ["", *(f"- `{name}`: {title}" for name, title in names.items())]
    if content.get("left_out"):
        lines += ["", f"Left out for lack of time: {'; '.join(content['left_out'])}."]
    return "\n".join(lines) + "\n"


def _pooled(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    pooled = dict(cells[-1])
    for name, last in cells[-1].items():
        values = [cell[name] for cell in cells if cell.get(name) is not None]
        if name in _POOLED:
            pooled[name] = [seconds for value in values for seconds in value]
        elif isinstance(last, bool):
            pooled[name] = all(values)
        elif isinstance(last, (int, float)):
            pooled[name] = statistics.median(values)
    pooled["peak_dedicated_bytes"] = max((c["peak_dedicated_bytes"] or 0 for c in cells), default=0) or None
    return pooled


def _about(measured: Sequence[Row]) -> list[str]:
    figures = [row.figures for row in measured if row.figures]
    if not figures:
        return []
    weights = figures[0]["weights_bytes"]
    links = spread([one["link_bytes_per_second"] for one in figures])
    return [
        f"Weights {_gb(weights)} GB; link {_gb(links.median)} GB/s ({_gb(links.first_quartile)}–"
        f"{_gb(links.third_quartile)}), pinned to the card, measured in each process.",
        "",
    ]


def _table(mine: Sequence[Row]) -> list[str]:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in mine]
    return lines


def _cells(row: Row) -> list[str]:
    budget = f"{_gb(row.budget_bytes)} GB" if row.budget_bytes is not None else "–"
    if row.figures is None:
        return [f"`{row.peer}`", budget, f"no figures, because {_escaped(row.why or '')}", *["–"] * (len(_COLUMNS) - 3)]
    one, step = row.figures, row.figures["step"]
    dedicated = one["dedicated"]
    predicted = one["predicted_step_seconds"]
    return [
        f"`{row.peer}`",
        budget,
        f"{_ms(step['median'])} ({_ms(step['first_quartile'])}–{_ms(step['third_quartile'])})",
        _ms(dedicated["median"]) if dedicated else "–",
        _ms(one["bound_seconds"]),
        f"{one['step_to_bound']:.2f}" if one["step_to_bound"] is not None else "–",
        f"{_ms(predicted)} ({one['predicted_to_step']:.2f} ×)" if predicted is not None else "–",
        _gb(one["peak_dedicated_bytes"]),
        f"{_gb(one['pinned_bytes'])}{f' of {_gb(cap)}' if (cap := one['cap_bytes']) is not None else ''}",
        _cpu(one),
        {True: "yes", False: "no", None: "–"}[one["equal_to_dedicated"]],
    ]


def _cpu(one: Mapping[str, Any]) -> str:
    """Processor time that a step adds. The hooks' own, where they are known: the whole call's includes waiting for room
    in the card's queue of work."""
    hooks = one.get("hook_cpu_seconds")
    return f"{_ms(hooks)} in {one['hook_calls']:.0f} hooks" if hooks is not None else _ms(one["cpu_added_seconds"])


def _switches(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for cell in cells:
        if cell["why"]:
            lines += ["", f"Switching: no figures, because {cell['why']}."]
            continue
        for turn, one in zip(("first", "second"), cell["switches"], strict=False):
            lines += [
                "",
                f"Switching, {turn} time: dedicated to `{cell['peer']}` {one['to_stream_added_seconds']:.2f} s, of it "
                f"{one['to_stream_seconds']:.2f} s at once and the rest in the next calls, {_gb(one['pinned_bytes'])} "
                f"GB pinned; back {one['to_dedicated_seconds']:.2f} s.",
            ]
    return lines


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f}"


def _gb(size_bytes: float | None) -> str:
    if size_bytes is None:
        return "–"
    return f"{size_bytes / 1e9:.2f}" if size_bytes >= 1e8 or size_bytes == 0 else f"{size_bytes / 1e9:.2g}"


def _escaped(words: str) -> str:
    return words.replace("|", "\\|")
