"""Decisions of a detector, and the incidents in them."""

from __future__ import annotations

import array
import datetime
from dataclasses import dataclass, field
from typing import Any, Iterator, Optional, Sequence

from . import _arrays, charts

NONE = 0xFFFFFFFF
_DROPPED = ("", "late", "duplicate")


@dataclass(frozen=True)
class Why:
    """Why a row, or the incident at its peak, is not normal."""

    feature: str  # the one that surprises most
    kind: str  # point, level, spread, missing, frozen, relation or together
    side: str  # above or below what was expected; empty for neither
    expected: float  # NaN where too few rows came before
    low: float  # the edges of what is usual
    high: float
    before: int  # earlier incidents of the entity with the same feature and kind

    def __str__(self) -> str:
        if self.expected != self.expected:
            return f"{self.kind} of {self.feature}"
        where = f" {self.side} {self.expected:.4g}" if self.side else f", expected {self.expected:.4g}"
        return f"{self.kind} of {self.feature}{where} (usual: {self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class Decision:
    """What a group has decided about one row."""

    entity: str  # the values of the key, with commas between them
    time: int  # nanoseconds since 1970
    score: float  # how unusual the row is, from 0 to 1
    decision: str  # the name of a candidate: normal, suspicious or anomalous; none for a dropped row
    counts: tuple[int, ...]  # votes for each candidate
    leader: int  # the id of the agent that leads
    round: int  # of the entity, from 1
    dropped: str = ""  # late or duplicate, for a row that changed nothing
    why: Optional[Why] = None  # with explain: true in the specification, of a row that is not normal

    @property
    def anomalous(self) -> bool:
        """Report whether an incident begins here."""
        return self.decision == "anomalous"


@dataclass(frozen=True)
class Incident:
    """A run of surprising rows of one entity: from an alarm to the row before the next normal one."""

    entity: str
    begin: int  # nanoseconds since 1970
    end: int
    peak: int  # the time of the highest score
    score: float  # at the peak
    rows: int
    values: dict[str, float] = field(default_factory=dict)  # the features at the peak
    why: Optional[Why] = None  # with explain: true in the specification

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value:g}" for name, value in self.values.items())
        text = f"{self.entity or 'incident'}: {text_of(self.begin)} to {text_of(self.end)}, score {self.score:.2f}, {values}"
        return f"{text}: {self.why}" if self.why else text


def text_of(nanoseconds: int) -> str:
    """Return a time as RFC 3339 in UTC, in whole seconds."""
    since = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=nanoseconds // 10**9)
    return since.isoformat() + "Z"


class Decisions(Sequence[Decision]):
    """The decisions about the rows of a frame, in the order of the rows.

    The arrays score, decision, counts, leader, round and dropped have an element for each row.
    They are arrays of NumPy when it is present. A decision is an index of candidates, or 4294967295 for none.
    rejected is the number of rows that were not used, and rejects the first of them with the
    reasons, by their number from 1. Their score is NaN.

    With explain: true in the specification the arrays expected, low and high have an element for each
    row and feature, row by row, and why returns what is known about a row.
    """

    def __init__(
        self, times: Any, features: dict[str, Any], codes: Any, keys: list[list[str]], candidates: list[str]
    ) -> None:
        n = len(times)
        self.time = times
        self.features = features
        self.candidates = candidates
        self._codes, self._names = codes, [", ".join(values) for values in keys]
        self.score = _filled("<f4", n, float("nan"))
        self.decision = _filled("<u4", n, NONE)
        self.counts = _filled("<u4", n * len(candidates), 0)
        self.leader = _filled("<u8", n, 0)
        self.round = _filled("<u8", n, 0)
        self.dropped = _filled("|u1", n, 0)
        self.rejected = 0
        self.rejects: list[dict[str, Any]] = []
        self._kinds: list[str] = []  # empty without explanations

    def _take(self, first: int, got: dict[str, Any]) -> None:
        """Take the answer to the rows from number first on, from 0."""
        about, rows, width = got["about"], got["row"], len(self.candidates)
        n = about["rows"] + about["rejected"]
        self.rejected += about["rejected"]
        for reject in about["rejects"]:
            self.rejects.append({"row": reject["row"] + first, "reason": reject["reason"]})
        self._take_reasons(first, about, got)
        counts = got["counts"]
        if not _arrays.have_numpy():
            counts = counts.data
        elif width:
            counts = counts.reshape(-1)
        if about["rejected"] == 0:
            for name in ("score", "decision", "leader", "round", "dropped"):
                getattr(self, name)[first : first + n] = got[name]
            self.counts[first * width : (first + n) * width] = counts
            return
        for i, row in enumerate(rows):
            at = first + int(row) - 1
            for name in ("score", "decision", "leader", "round", "dropped"):
                getattr(self, name)[at] = got[name][i]
            self.counts[at * width : (at + 1) * width] = counts[i * width : (i + 1) * width]

    def _take_reasons(self, first: int, about: dict[str, Any], got: dict[str, Any]) -> None:
        if "expected" not in got:
            return
        rows, features = len(self.time), len(self.features)
        if not self._kinds:
            self._kinds = about["kinds"]
            for name in ("expected", "low", "high"):
                setattr(self, name, _filled("<f8", rows * features, float("nan")))
            self._fault, self._side = _filled("|u1", rows, 255), _filled("|u1", rows, 0)
            self._kind, self._before = _filled("|u1", rows, 0), _filled("<u4", rows, 0)
        flat = {}
        for name in ("expected", "low", "high"):
            values = got[name]
            flat[name] = values.reshape(-1) if _arrays.have_numpy() else getattr(values, "data", values)
        if about["rejected"] == 0:
            end = first + about["rows"]
            for name, values in flat.items():
                getattr(self, name)[first * features : end * features] = values
            for name in ("fault", "side", "kind", "before"):
                getattr(self, "_" + name)[first:end] = got[name]
            return
        for i, row in enumerate(got["row"]):
            at = first + int(row) - 1
            for name, values in flat.items():
                getattr(self, name)[at * features : (at + 1) * features] = values[i * features : (i + 1) * features]
            for name in ("fault", "side", "kind", "before"):
                getattr(self, "_" + name)[at] = got[name][i]

    @property
    def explained(self) -> bool:
        """Report whether the decisions have explanations."""
        return bool(self._kinds)

    def why(self, i: int, peak: Optional[int] = None) -> Optional[Why]:
        """Return why row i is not normal; None for a usual row and without explanations.

        With peak, it is why the incident that ends at row i has its peak at that row.
        """
        if not self._kinds or int(self._fault[i]) == 255:
            return None
        peak = i if peak is None else peak
        fault = int(self._fault[i])
        name, at = list(self.features)[fault], peak * len(self.features) + fault
        side = ("", "above", "below")[int(self._side[peak])]
        if int(self._fault[peak]) != fault or int(self._kind[peak]) != int(self._kind[i]):
            off = float(self.features[name][peak]) - float(self.expected[at])
            side = "above" if off > 0 else "below" if off < 0 else ""
        return Why(
            name, self._kinds[int(self._kind[i])], side,
            float(self.expected[at]), float(self.low[at]), float(self.high[at]), int(self._before[i]),
        )

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        i %= len(self)
        width = len(self.candidates)
        return Decision(
            self.entity(i), int(self.time[i]), float(self.score[i]), self.name(i),
            tuple(int(c) for c in self.counts[i * width : (i + 1) * width]), int(self.leader[i]), int(self.round[i]),
            _DROPPED[int(self.dropped[i])], self.why(i),
        )

    def __iter__(self) -> Iterator[Decision]:
        return (self[i] for i in range(len(self)))

    def entity(self, i: int) -> str:
        """Return the name of the entity of a row: empty for a specification without a key."""
        return self._names[int(self._codes[i])] if self._codes is not None else ""

    def name(self, i: int) -> str:
        """Return the name of the decision about a row."""
        d = int(self.decision[i])
        return self.candidates[d] if d < len(self.candidates) else "none"

    def entities(self) -> list[str]:
        """Return the names of the entities, in the order of their first rows."""
        return list(self._names) if self._codes is not None else [""]

    def incidents(self) -> list[Incident]:
        """Return the incidents, the highest score first.

        An incident begins with a row that is anomalous, and ends before the next one that is normal.
        """
        bad, good = _index(self.candidates, "anomalous"), _index(self.candidates, "normal")
        open_at: dict[int, list[int]] = {}
        done: list[tuple[int, list[int]]] = []
        decisions = self.decision.tolist()
        codes = self._codes.tolist() if self._codes is not None else None
        for i, d in enumerate(decisions):
            code = codes[i] if codes is not None else 0
            if d == good:
                rows = open_at.pop(code, None)
                if rows:
                    done.append((code, rows))
            elif d == bad or d != NONE and code in open_at:
                open_at.setdefault(code, []).append(i)
        done += open_at.items()
        all_incidents = []
        for code, rows in done:
            peak = max(rows, key=lambda i: float(self.score[i]))
            all_incidents.append(
                Incident(
                    self.entity(rows[0]), int(self.time[rows[0]]), int(self.time[rows[-1]]), int(self.time[peak]),
                    float(self.score[peak]), len(rows),
                    {name: float(values[peak]) for name, values in self.features.items()},
                    self.why(rows[-1], peak),  # the last row knows all of the incident
                )
            )
        return sorted(all_incidents, key=lambda one: (-one.score, one.begin, one.entity))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns entity, time, score, decision and dropped as lists.

        With explanations also feature, kind and side, empty for usual rows, and expected_NAME, low_NAME
        and high_NAME of each feature.
        """
        columns: dict[str, list[Any]] = {
            "entity": [self.entity(i) for i in range(len(self))],
            "time": self.time.tolist(),
            "score": self.score.tolist(),
            "decision": [self.name(i) for i in range(len(self))],
            "dropped": [_DROPPED[d] for d in self.dropped.tolist()],
        }
        if self._kinds:
            reasons = [self.why(i) for i in range(len(self))]
            for name in ("feature", "kind", "side"):
                columns[name] = [getattr(one, name) if one else "" for one in reasons]
            for f, name in enumerate(self.features):
                for what in ("expected", "low", "high"):
                    columns[f"{what}_{name}"] = getattr(self, what)[f :: len(self.features)].tolist()
        return columns

    def to_pandas(self) -> Any:
        """Return a DataFrame with the columns of to_dict, and time as times in UTC."""
        import pandas  # type: ignore[import]

        frame = pandas.DataFrame(self.to_dict())
        frame["time"] = pandas.to_datetime(frame["time"], utc=True)
        return frame

    def chart(self, entity: Optional[str] = None, feature: Optional[str] = None) -> "charts.Chart":
        """Return a chart of a feature of an entity, with its incidents.

        Without an entity it is the entity of the incident with the highest score, and without a feature the one at
        fault in the entity's worst incident, or the first.
        """
        if entity is None:
            first = self.incidents()[:1]
            entity = first[0].entity if first else self.entities()[0]
        if entity not in self.entities():
            raise KeyError(f"there is no entity {entity!r} among the rows")
        worst = next((one for one in self.incidents() if one.entity == entity and one.why), None)
        feature = feature or (worst.why.feature if worst else next(iter(self.features)))
        at = [i for i in range(len(self)) if self.entity(i) == entity]
        return charts.Chart(
            title=f"{entity} {feature}".strip(),
            times=[int(self.time[i]) for i in at],
            values=[float(self.features[feature][i]) for i in at],
            scores=[float(self.score[i]) for i in at],
            spans=[(one.begin, one.end) for one in self.incidents() if one.entity == entity],
        )

    def _repr_html_(self) -> str:
        return charts.page(self)


def _index(names: list[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _filled(kind: str, n: int, value: Any) -> Any:
    out = _arrays.column(kind, array.array("d" if isinstance(value, float) else "Q", [value]))
    if _arrays.have_numpy():
        return out.repeat(n)
    return out * n
