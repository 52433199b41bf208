"""A plot, as SVG by hand: step time against dedicated bytes, both in powers of two, with the bound drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from .figures import bound_seconds
from .table import Row

_WIDTH, _HEIGHT = 900, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 250, 46, 54
_COLOURS = (
    "#0b6e99", "#c2410c", "#15803d", "#7e22ce", "#334155", "#be123c", "#b59b00", "#4338ca", "#0d9488", "#a21caf",
    "#78350f", "#64a30d", "#f472b6", "#38bdf8", "#9f1239", "#94a3b8",
)  # fmt: skip
_BOUND_POINTS = 80
_STYLE = "text{font:12px sans-serif;fill:#222}.grid{stroke:#ddd}.bound{fill:none;stroke:#222;stroke-dasharray:5 4}"


def svg(title: str, rows: Sequence[Row]) -> str | None:
    """The picture of one model's cells; ``None`` where none has both a step and a peak."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.figures and row.figures["peak_dedicated_bytes"]:
            point = (row.figures["peak_dedicated_bytes"] / 1e9, row.figures["step"]["median"] * 1e3)
            points.setdefault(row.peer, []).append(point)
    if not points:
        return None
    bound = list(_bound(rows))
    every = [*bound, *(point for line in points.values() for point in line)]
    across = _Axis([x for x, _ in every], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([y for _, y in every], _HEIGHT - _BOTTOM, _TOP)
    parts = [*_frame(title, across, up)]
    if bound:
        parts.append(f'<polyline class="bound" points="{_path(bound, across, up)}"/>')
    for number, (peer, line) in enumerate(points.items()):
        parts += _series(number, peer, sorted(line), across, up)
    parts += _legend_line(len(points), "bound", "#222", dashed=True) if bound else []
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<title>{escape(title)}</title><style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        + "".join(parts) + "</svg>\n"
    )  # fmt: skip


class _Axis:
    """From a figure to a place, in powers of two."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self._low = math.floor(math.log2(min(values)) * 2) / 2
        self._high = max(math.ceil(math.log2(max(values)) * 2) / 2, self._low + 1)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = (math.log2(value) - self._low) / (self._high - self._low)
        return round(self._first + share * (self._last - self._first), 1)

    def ticks(self) -> Iterator[float]:
        """Every power of two inside; every other one where they are many."""
        low, high = math.ceil(self._low), math.floor(self._high)
        for exponent in range(low, high + 1, 1 if high - low <= 10 else 2):
            yield 2.0**exponent


def _bound(rows: Sequence[Row]) -> Iterator[tuple[float, float]]:
    """Dedicated gigabytes and the bound in milliseconds, from nothing resident to every weight; what a step takes
    beside its weights is counted in, as it is in the peaks. By the medians of all cells."""
    figures = [row.figures for row in rows if row.figures and row.figures["dedicated"]]
    activations = [one["activation_bytes"] for one in figures if one["activation_bytes"] is not None]
    if not figures or not activations:
        return
    middle = len(figures) // 2
    dedicated = sorted(one["dedicated"]["median"] for one in figures)[middle]
    link = sorted(one["link_bytes_per_second"] for one in figures)[middle]
    weights = figures[0]["weights_bytes"]
    beside = max(activations[len(activations) // 2], 1)
    for step in range(_BOUND_POINTS + 1):
        resident = weights * step // _BOUND_POINTS
        seconds = bound_seconds(dedicated, weights, resident, link)
        if seconds is not None:
            yield (resident + beside) / 1e9, seconds * 1e3


def _frame(title: str, across: _Axis, up: _Axis) -> Iterator[str]:
    right, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    yield f'<text x="{_LEFT}" y="24" font-weight="bold">{escape(title)}</text>'
    for value in across.ticks():
        yield f'<path class="grid" d="M{across(value)} {_TOP}V{low}"/>'
        yield f'<text x="{across(value)}" y="{low + 18}" text-anchor="middle">{value:.3g}</text>'
    for value in up.ticks():
        yield f'<path class="grid" d="M{_LEFT} {up(value)}H{right}"/>'
        yield f'<text x="{_LEFT - 8}" y="{up(value) + 4}" text-anchor="end">{value:g}</text>'
    yield f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">dedicated memory, peak, GB</text>'
    middle = (_TOP + low) / 2
    yield f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">step, ms</text>'


def _series(
    number: int, peer: str, line: Sequence[tuple[float, float]], across: _Axis, up: _Axis
) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    yield f'<polyline fill="none" stroke="{colour}" points="{_path(line, across, up)}"/>'
    for x, y in line:
        words = escape(f"{peer}: {y:.1f} ms at {x:.3g} GB")
        yield f'<circle cx="{across(x)}" cy="{up(y)}" r="4" fill="{colour}"><title>{words}</title></circle>'
    yield from _legend_line(number, peer, colour, dashed=False)


def _legend_line(number: int, words: str, colour: str, *, dashed: bool) -> Iterator[str]:
    x, y = _WIDTH - _RIGHT + 20, _TOP + 10 + 22 * number
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    yield f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="2"{dashes}/>'
    yield f'<text x="{x + 30}" y="{y + 4}">{escape(words)}</text>'


def _path(line: Sequence[tuple[float, float]], across: _Axis, up: _Axis) -> str:
    return " ".join(f"{across(x)},{up(y)}" for x, y in line)


def titles(model: str, about: Mapping[str, str]) -> str:
    """A plot's title."""
    return f"{model}: step time against dedicated memory, {about['device']}, {about['date']}"
