"""Frames of several kinds as arrays: pandas, pyarrow, dicts of columns, iterables of dicts."""

from __future__ import annotations

import array
import datetime
import difflib
import math
import re
from typing import Any, Iterable, Mapping, Optional, Sequence

from . import _arrays
from .errors import FrameError

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]
try:
    import pandas as pd  # type: ignore[import]
except ImportError:
    pd = None

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9})\d*)?)?)?(Z|[+-]\d\d:\d\d)?$"
)


class Rows:
    """The columns of a frame that a specification names, as arrays."""

    def __init__(self, times: Any, features: list[Any], codes: Any, keys: list[list[str]]) -> None:
        self.times = times  # nanoseconds since 1970
        self.features = features
        self.codes = codes  # indices of keys; None without a key
        self.keys = keys

    def __len__(self) -> int:
        return len(self.times)

    def part(self, begin: int, end: int) -> "Rows":
        """Return some of the rows."""
        codes = None if self.codes is None else self.codes[begin:end]
        return Rows(self.times[begin:end], [x[begin:end] for x in self.features], codes, self.keys)

    def body(self) -> bytes:
        """Return the rows as the body of a request."""
        arrays = {"time": ("<i8", self.times, 0)}
        for i, x in enumerate(self.features):
            arrays[f"x{i}"] = ("<f8", x, 0)
        documents: dict[str, Any] = {}
        if self.codes is not None:
            arrays["key"] = ("<u4", self.codes, 0)
            documents["keys"] = self.keys
        return _arrays.write(arrays, documents)


def rows_of(frame: Any, timestamp: str, key: Sequence[str], features: Sequence[str]) -> Rows:
    """Return the rows of a frame. It raises FrameError for columns that are missing or wrong."""
    columns = _columns(frame, [timestamp, *key, *features])
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise FrameError(f"the columns of the frame have different lengths: {text} rows")
    times = _times(timestamp, columns[timestamp])
    numbers = [_numbers(name, columns[name]) for name in features]
    if not key:
        return Rows(times, numbers, None, [])
    codes, keys = _keys(key, [columns[name] for name in key])
    return Rows(times, numbers, codes, keys)


def _columns(frame: Any, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the wanted columns: of pandas as Series, and otherwise as sequences."""
    if hasattr(frame, "column_names") and hasattr(frame, "column"):  # of pyarrow
        _present(wanted, list(frame.column_names))
        if pd is not None:
            return {name: frame.column(name).to_pandas() for name in wanted}
        return {name: frame.column(name).to_pylist() for name in wanted}
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # of pandas
        names = [str(c) for c in frame.columns]
        if wanted[0] not in names and frame.index.name == wanted[0]:
            frame, names = frame.reset_index(), [wanted[0], *names]
        _present(wanted, names)
        return {name: frame[name] for name in wanted}
    if isinstance(frame, Mapping):
        _present(wanted, [str(c) for c in frame])
        return {name: _sequence(name, frame[name]) for name in wanted}
    if isinstance(frame, (str, bytes)) or not isinstance(frame, Iterable):
        raise FrameError(
            f"a frame is a pandas DataFrame, a pyarrow Table, a dict of columns, or an iterable of dicts, and not "
            f"{type(frame).__name__}"
        )
    out: dict[str, list[Any]] = {name: [] for name in wanted}
    for number, row in enumerate(frame, 1):
        if not isinstance(row, Mapping):
            raise FrameError(f"row {number} of the frame is a {type(row).__name__}: rows are dicts")
        for name in wanted:
            if name not in row:
                raise FrameError(f"row {number}: {_missing(name, [str(c) for c in row])}")
            out[name].append(row[name])
    return out


def _sequence(name: str, values: Any) -> Any:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise FrameError(f"column {name!r} is a {type(values).__name__}: use a list or an array")
    return values


def _missing(name: str, there: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, there, 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return (
        f"the frame has no column {name!r}, it has {', '.join(map(repr, there[:20]))}{hint} The specification names the "
        "columns with timestamp, key and features"
        if near
        else f"the frame has no column {name!r}, it has {', '.join(map(repr, there[:20]))}: name the columns in the "
        "specification with timestamp, key and features"
    )


def _present(wanted: Sequence[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            raise FrameError(_missing(name, there))


def _numbers(name: str, values: Any) -> Any:
    if np is not None:
        try:
            return np.ascontiguousarray(values, dtype="<f8")
        except (TypeError, ValueError):
            pass  # find the value
    out = array.array("d")
    for number, v in enumerate(values, 1):
        if v is None:
            v = math.nan
        if isinstance(v, (str, bytes)) or not hasattr(v, "__float__"):
            raise FrameError(f"column {name!r}, row {number}: {v!r} is not a number")
        try:
            out.append(float(v))
        except (TypeError, ValueError) as error:
            raise FrameError(f"column {name!r}, row {number}: {v!r} is not a number") from error
    return out if np is None else np.asarray(out)


def time_of(value: Any) -> int:
    """Return a time as nanoseconds since 1970. Times without a zone are UTC.

    A number is seconds since 1970 or, by its size, milliseconds, microseconds or nanoseconds.
    """
    if isinstance(value, str):
        match = _TIME.match(value)
        if match is None:
            try:
                return time_of(int(value))
            except ValueError:
                raise ValueError(f"{value!r} is not a time: use 2006-01-02 15:04:05, RFC 3339, or a datetime") from None
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        days = datetime.date(int(year), int(month), int(day)).toordinal() - 719163
        whole = days * 86400 + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
        if zone and zone != "Z":
            offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
            whole -= offset if zone[0] == "+" else -offset
        return whole * 10**9 + (int(fraction.ljust(9, "0")) if fraction else 0)
    if hasattr(value, "timestamp"):  # datetime, and Timestamp of pandas
        if hasattr(value, "value"):
            return int(value.value)
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.timezone.utc)
        since = value - _EPOCH
        return int((since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000)
    if isinstance(value, bool) or not hasattr(value, "__float__") or value != value:
        raise ValueError(f"{value!r} is not a time: use a datetime, a text such as 2006-01-02 15:04:05, or a number")
    for scale in (10**9, 10**6, 10**3, 1):
        if abs(value) < 1e11 * 1e9 / scale and abs(value) * scale < 2**63 - 1:
            return int(value * scale)
    raise ValueError(f"{value!r} is not a time")


def _times(name: str, values: Any) -> Any:
    if np is not None:
        kind = getattr(getattr(values, "dtype", None), "kind", "")
        zoned = pd is not None and isinstance(values, pd.Series) and hasattr(values.dtype, "tz")
        if zoned:
            values, kind = values.dt.tz_convert("UTC").dt.tz_localize(None), "M"
        if kind == "M":
            got = np.asarray(values).astype("datetime64[ns]")
            if np.isnat(got).any():
                row = int(np.flatnonzero(np.isnat(got))[0]) + 1
                raise FrameError(f"column {name!r}, row {row}: there is no time: drop the row")
            return got.astype("<i8")
    out = array.array("q")
    for number, v in enumerate(values, 1):
        try:
            out.append(time_of(v))
        except (ValueError, OverflowError) as error:
            raise FrameError(f"column {name!r}, row {number}: {error}") from error
    return out if np is None else np.asarray(out)


def key_text(name: str, number: int, value: Any) -> str:
    """Return a value of a key as the text that the server compares."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "true" if value else "false"
    if hasattr(value, "__index__"):
        return str(int(value))
    raise FrameError(f"column {name!r}, row {number}: {value!r} is not a text, an integer or a boolean, as a key is")


def _keys(names: Sequence[str], columns: list[Any]) -> tuple[Any, list[list[str]]]:
    if pd is not None and len(columns) == 1 and isinstance(columns[0], pd.Series):
        codes, values = pd.factorize(columns[0])
        if len(codes) and codes.min() < 0:
            row = int((codes < 0).argmax()) + 1
            raise FrameError(f"column {names[0]!r}, row {row}: there is no value, and it is a key: drop the row")
        firsts = [[key_text(names[0], int((codes == i).argmax()) + 1 if i < 3 else 0, v)] for i, v in enumerate(values)]
        return codes.astype("<u4"), firsts
    known: dict[Any, int] = {}
    keys: list[list[str]] = []
    out = array.array("I")
    rows: Iterable[Any] = columns[0] if len(columns) == 1 else zip(*columns)
    single = len(columns) == 1
    for number, value in enumerate(rows, 1):
        # True and 1 are one key of a dict, and two entities.
        known_as = (type(value), value)
        code: Optional[int] = known.get(known_as)
        if code is None:
            code = known[known_as] = len(keys)
            values = [value] if single else list(value)
            keys.append([key_text(name, number, v) for name, v in zip(names, values)])
        out.append(code)
    return (out if np is None else np.asarray(out, dtype="<u4")), keys
