"""Detectors: swarms of groups that a program feeds, and whose decisions it gets in the answers."""

from __future__ import annotations

import os
import secrets
from typing import Any, Mapping, Optional, Sequence, Union

from . import _arrays, _client, _frames, _specs
from .decisions import Decision, Decisions
from .errors import ExoswarmError, FrameError, RequestError, SpecError

BATCH = 200_000
"""The number of rows of a request."""


class Detector:
    """A detector on a server.

    spec is a dict, a text of YAML or the path of a file. A swarm with the name in it is made, or
    continued if it exists with the same specification, so a program that starts again goes on where
    it ended. name replaces the name in the specification. The detector learns from every row that it
    scores. A detector may be used by several threads; their calls follow one another.
    """

    def __init__(
        self, spec: _specs.Spec, name: Optional[str] = None, client: Optional[_client.Client] = None
    ) -> None:
        self.client = client or _client.default()
        body = {"spec": _specs.text_of(spec), "open": True}
        if name is not None:
            body["name"] = name
        try:
            about = self.client.call("POST", "swarms", body)
        except ExoswarmError as error:
            raise _specs.refused(error) from error
        if about["addressed"] != "group":
            raise SpecError(f"{about['id']}: its agents are addressed, and rows are for groups: use Swarm")
        self.name: str = about["id"]
        self.timestamp: str = about["timestamp"]
        self.key: list[str] = about["key"]
        self.features: list[str] = about["features"]
        self.candidates: list[str] = about["candidates"]

    def __repr__(self) -> str:
        return f"Detector({self.name!r})"

    def _feed(self, rows: _frames.Rows) -> Decisions:
        features = dict(zip(self.features, rows.features))
        out = Decisions(rows.times, features, rows.codes, rows.keys, self.candidates)
        for first in range(0, len(rows), BATCH):
            part = rows.part(first, first + BATCH)
            try:
                _, _, content = self.client.request(
                    "POST", f"swarms/{_client.quote(self.name)}/rows", part.body(), _client.ARRAYS, _client.ARRAYS
                )
            except RequestError as error:
                if error.status == 400:
                    raise FrameError(str(error)) from error
                raise
            out._take(first, _arrays.read(content))
        return out

    def learn_one(
        self, key: Any, t: Any, x: Union[float, Sequence[float], Mapping[str, float]]
    ) -> Decision:
        """Feed one row, and return the decision about it.

        key names the entity: a text, an integer, or a tuple for a key of several columns; None for a
        specification without a key. t is a datetime, a text, or a number of seconds since 1970. x is
        the value of the feature, or a sequence or a dict of the values of all features.
        """
        if isinstance(x, Mapping):
            _frames._present(self.features, list(x))
            values = [x[name] for name in self.features]
        else:
            values = list(x) if isinstance(x, (list, tuple)) or hasattr(x, "__len__") else [x]  # type: ignore[arg-type]
        if len(values) != len(self.features):
            raise FrameError(f"{len(values)} values for the features {', '.join(self.features)}: give one for each")
        keys = list(key) if isinstance(key, tuple) else [] if key is None else [key]
        if len(keys) != len(self.key):
            raise FrameError(
                f"{len(keys)} values for the key, which is {', '.join(self.key) or 'none'}: give one for each column"
            )
        frame = {self.timestamp: [t]}
        frame.update({name: [v] for name, v in zip(self.key, keys)})
        frame.update({name: [v] for name, v in zip(self.features, values)})
        got = self._feed(_frames.rows_of(frame, self.timestamp, self.key, self.features))
        if got.rejects:
            raise FrameError(f"the row was rejected: {got.rejects[0]['reason']}")
        first: Decision = got[0]
        return first

    def score_many(self, frame: Any) -> Decisions:
        """Feed all rows of a frame, and return the decisions in the order of the rows.

        A frame is a pandas DataFrame, a pyarrow Table, a dict of columns, or an iterable of dicts,
        with the columns that the specification names. The rows of an entity are in the order of
        their times; a row that comes late is dropped. Rows that cannot be used are in rejects.
        """
        return self._feed(_frames.rows_of(frame, self.timestamp, self.key, self.features))

    def fit_predict(self, frame: Any) -> Decisions:
        """Forget everything that was learned, and return the decisions about a frame.

        The function fit_predict does the same with a detector that does not remain.
        """
        self.reset()
        return self.score_many(frame)

    def score_text(self, text: Union[str, bytes], media: str = "text/csv") -> bytes:
        """Feed CSV, or NDJSON with media application/x-ndjson, and return the decisions as NDJSON.

        The lines are the output of exoswarm run for the same rows, in the order of the rows.
        """
        data = text.encode() if isinstance(text, str) else text
        _, _, content = self.client.request(
            "POST", f"swarms/{_client.quote(self.name)}/rows", data, media, "application/x-ndjson"
        )
        return content

    def reset(self) -> None:
        """Forget everything that was learned. Entities keep their groups."""
        self.client.call("POST", f"swarms/{_client.quote(self.name)}/reset")

    def delete(self) -> None:
        """Delete the detector with its state."""
        self.client.call("DELETE", f"swarms/{_client.quote(self.name)}")


def fit_predict(spec: _specs.Spec, frame: Any, client: Optional[_client.Client] = None) -> Decisions:
    """Return the decisions of a new detector about a frame. Nothing of it remains on the server."""
    detector = Detector(spec, name=f"py-{os.getpid()}-{secrets.token_hex(8)}", client=client)
    try:
        return detector.score_many(frame)
    finally:
        detector.delete()
