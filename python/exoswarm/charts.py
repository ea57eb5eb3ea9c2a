"""Charts as SVG for notebooks. They need no library, no script and no network."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

if TYPE_CHECKING:
    from .decisions import Decisions

_WIDTH, _HEIGHT, _SCORE = 720, 150, 30
_LEFT, _TOP = 60, 22


@dataclass
class Chart:
    """A series with its scores and the spans of its incidents. Times are nanoseconds since 1970.

    Each pixel of the width shows the least and the greatest value of its rows, so no spike is lost.
    """

    title: str
    times: Sequence[int]
    values: Sequence[float]
    scores: Sequence[float]
    spans: Sequence[tuple[int, int]]

    def svg(self) -> str:
        """Return the chart as an SVG element."""
        from .decisions import text_of

        total = _TOP + _HEIGHT + _SCORE + 26
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 10} {total}" role="img" '
            f'width="{_LEFT + _WIDTH + 10}" style="max-width:100%;font:12px sans-serif" '
            f'aria-label="{html.escape(self.title)}: {len(self.spans)} incidents">',
            f'<text x="{_LEFT}" y="14" fill="currentColor">{html.escape(self.title)}</text>',
        ]
        finite = [v for v in self.values if math.isfinite(v)]
        if not finite:
            return "".join([*out, f'<text x="{_LEFT}" y="60" fill="currentColor">no values</text></svg>'])
        begin, end = min(self.times), max(self.times)
        low, high = min(finite), max(finite)

        def x(at: int) -> float:
            return _LEFT + (at - begin) / ((end - begin) or 1) * _WIDTH

        def y(value: float) -> float:
            return _TOP + _HEIGHT - (value - low) / ((high - low) or 1) * _HEIGHT

        for first, last in self.spans:
            width = max(x(last) - x(first), 2)
            out.append(
                f'<rect class="incident" x="{x(first) - 1:.1f}" y="{_TOP}" width="{width + 2:.1f}" '
                f'height="{_HEIGHT + _SCORE}" fill="#d33" fill-opacity="0.25"><title>{text_of(first)} to {text_of(last)}'
                "</title></rect>"
            )
        ranges: dict[int, tuple[float, float, float]] = {}
        for at, value, score in zip(self.times, self.values, self.scores):
            if not math.isfinite(value):
                continue
            pixel = int(x(at))
            least, most, worst = ranges.get(pixel, (value, value, 0.0))
            if not math.isfinite(score):
                score = 0.0
            ranges[pixel] = (min(least, value), max(most, value), max(worst, score))
        points, bars = [], []
        for pixel, (least, most, worst) in sorted(ranges.items()):
            points.append(f"{pixel},{y(least):.1f}")
            if most != least:
                points.append(f"{pixel},{y(most):.1f}")
            if worst > 0.02:
                top = _TOP + _HEIGHT + _SCORE * (1 - worst)
                bars.append(f"M{pixel} {_TOP + _HEIGHT + _SCORE}V{top:.1f}")
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="#27c" stroke-width="1.2"/>')
        out.append(f'<path d="{"".join(bars)}" stroke="#d33" stroke-width="1.2"><title>score</title></path>')
        for value in (low, high):
            out.append(f'<text x="{_LEFT - 4}" y="{y(value) + 4:.0f}" text-anchor="end" fill="currentColor">{value:.4g}</text>')
        for at, anchor in ((begin, "start"), (end, "end")):
            out.append(
                f'<text x="{x(at):.0f}" y="{total - 6}" text-anchor="{anchor}" fill="currentColor">{text_of(at)}</text>'
            )
        return "".join([*out, "</svg>"])

    def _repr_html_(self) -> str:
        return self.svg()


def page(decisions: "Decisions", most: int = 10, charts: int = 3) -> str:
    """Return a table of the incidents with the highest scores, and charts of their entities."""
    from .decisions import text_of

    incidents = decisions.incidents()
    names = list(decisions.features)
    out = [
        f"<p>{len(decisions)} rows, {len(decisions.entities())} entities, {len(incidents)} incidents, "
        f"{decisions.rejected} rejected rows</p>"
    ]
    if incidents:
        heads = ["entity", "begin", "end", "rows", "score", *names] + (["why"] if decisions.explained else [])
        out.append("<table><thead><tr>" + "".join(f"<th>{html.escape(h)}</th>" for h in heads) + "</tr></thead><tbody>")
        for one in incidents[:most]:
            cells = [one.entity, text_of(one.begin), text_of(one.end), str(one.rows), f"{one.score:.2f}"]
            cells += [f"{one.values[name]:.4g}" for name in names]
            if decisions.explained:
                cells.append(str(one.why or ""))
            out.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
        out.append("</tbody></table>")
        if len(incidents) > most:
            out.append(f"<p>and {len(incidents) - most} more: incidents() returns all</p>")
    seen: list[str] = []
    for one in incidents:
        if one.entity not in seen and len(seen) < charts:
            seen.append(one.entity)
            out.append(decisions.chart(one.entity).svg())
    return "".join(out)
