"""Swarms whose agents are addressed: simulations and other programs that drive agents themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

from . import _arrays, _client, _specs
from .errors import ExoswarmError, FrameError

NO_VOTE = 255
"""The vote of an agent that has never stepped, and the decision of a group that has none."""

NEVER = 2**64 - 1
"""The age of a knowledge node that was never updated."""


@dataclass(frozen=True)
class Vote:
    """The decision of all agents of a swarm."""

    round: int
    decision: str  # the name of the candidate that has won, or none
    counts: tuple[int, ...]  # for each candidate
    abstentions: int  # agents that have never stepped
    quorum_met: bool
    leader: Optional[int]  # id of an agent that votes for decision; None: there is no decision


class Swarm:
    """A swarm on a server.

    spec is a dict, a text of YAML or the path of a file. A swarm with its name is made, or continued
    if it exists with the same specification. name replaces the name in it, and snapshot names the
    snapshot with which the agents begin. Arrays are arrays of NumPy when it is present, and otherwise
    array.array or Matrix. In a with statement the swarm is deleted at the end.
    """

    def __init__(
        self,
        spec: _specs.Spec,
        name: Optional[str] = None,
        snapshot: Optional[str] = None,
        client: Optional[_client.Client] = None,
    ) -> None:
        self.client = client or _client.default()
        body: dict[str, Any] = {"spec": _specs.text_of(spec), "open": True}
        if name is not None:
            body["name"] = name
        if snapshot is not None:
            body["from"] = snapshot
        try:
            about = self.client.call("POST", "swarms", body)
        except ExoswarmError as error:
            raise _specs.refused(error) from error
        self.name: str = about["id"]
        self.created: bool = about["created"]
        self.agents: int = about["agents"]
        self.groups: int = about["groups"]
        self.features: list[str] = about["features"]
        self.candidates: list[str] = about["candidates"]

    def __repr__(self) -> str:
        return f"Swarm({self.name!r}, agents={self.agents})"

    def __enter__(self) -> "Swarm":
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()

    def _path(self, operation: str) -> str:
        return f"swarms/{_client.quote(self.name)}/{operation}"

    def _arrays(self, operation: str, value: dict[str, Any]) -> dict[str, Any]:
        import json

        _, _, content = self.client.request("POST", self._path(operation), json.dumps(value).encode())
        return _arrays.read(content)

    def observe(self, agents: Any, features: Any, items: Any = None) -> dict[str, Any]:
        """Give agents inputs and step those agents once.

        agents are ids, and features a row of inputs for each: a list of rows, a matrix, or one list
        for a cell with one input. The result has the arrays agent, vote and decision: what each agent
        votes for after its step and what its group decides then, as indices of candidates, or 255.
        items are for a swarm with cell.items, one for each agent or -1; the result has the array score
        then, from 0 to 1, or NaN where no score was asked for.
        """
        width = len(self.features)
        values, n = _flat(features, width)
        if n != len(agents):
            raise FrameError(f"{n} rows of inputs for {len(agents)} agents: give one for each")
        arrays = {"agent": ("<u4", agents, 0), "features": ("<f4", values, width)}
        if items is not None:
            if len(items) != len(agents):
                raise FrameError(f"{len(items)} items for {len(agents)} agents: give one for each")
            arrays["item"] = ("<i4", items, 0)
        body = _arrays.write(arrays, {})
        _, _, content = self.client.request("POST", self._path("observe"), body, _client.ARRAYS, _client.ARRAYS)
        return _arrays.read(content)

    def tick(self, count: int = 1) -> dict[str, int]:
        """Step all agents count times. Return the number of votes for each candidate after it."""
        got = self.client.call("POST", self._path("tick"), {"count": count})
        return dict(zip(self.candidates, got["tally"]))

    def query(
        self, agents: Optional[Sequence[int]] = None, groups: Optional[Sequence[int]] = None
    ) -> dict[str, Any]:
        """Return the states of agents or of groups as arrays, without a change.

        Of agents they are agent, vote and state, and of groups group, decision, round and counts. Of
        a detector they are the variables of its cell, as state.NAME, and embedding.
        """
        value = {"agents": [int(i) for i in agents]} if agents is not None else {}
        if groups is not None:
            value["groups"] = [int(i) for i in groups]
        return self._arrays("query", value)

    def vote(self, rule: str = "plurality", **options: Any) -> Vote:
        """Let all agents decide together, by their votes since their last steps.

        rule is plurality, majority, quorum (with quorum="2/3") or unanimous. Other options are of
        (cast or all), round and priority (elected, seeded or uniform).
        """
        got = self.client.call("POST", self._path("vote"), {"v": 1, "rule": rule, **options})
        return Vote(
            got["round"], got["decision"], tuple(got["counts"]), got["abstentions"], got["quorum_met"],
            got["leader"]["agent"] if "leader" in got else None,
        )

    def fuse(self, by: str = "all", nodes: int = 0) -> dict[str, Any]:
        """Return knowledge nodes as the arrays node, count and mean: means of embeddings.

        by is all, vote (a node for each candidate) or group (nodes of them).
        """
        value: dict[str, Any] = {"v": 1, "by": by}
        if nodes:
            value["nodes"] = nodes
        return self._arrays("fuse", value)

    def knowledge(self, nodes: Sequence[int]) -> dict[str, Any]:
        """Return knowledge nodes that agents hear as the arrays node, updates, age and units.

        age is the most steps that a group of the node has made since the last update, or NEVER.
        """
        return self._arrays("query", {"nodes": [int(i) for i in nodes]})

    def learn(self, nodes: Sequence[int], values: Any, replace: bool = False) -> int:
        """Merge values into knowledge nodes, and return how many have learned.

        values are a row for each node, as many as it has units, from -1 to 1. They merge as the
        specification says, or replace the nodes. The next tick has agents hear the nodes.
        """
        rows = [list(row) if hasattr(row, "__len__") else [row] for row in values]
        if len(rows) != len(nodes) or len({len(row) for row in rows}) > 1:
            raise FrameError(f"{len(rows)} rows of values for {len(nodes)} nodes: give one for each, of the same length")
        flat = [float(v) for row in rows for v in row]
        if any(not -1 <= v <= 1 for v in flat):
            raise FrameError("values of nodes are from -1 to 1")
        body = {"nodes": [int(i) for i in nodes], "values": flat, "replace": replace}
        return int(self.client.call("POST", self._path("learn"), body)["nodes"])

    def reset(self) -> None:
        """Return all agents to their initial state."""
        self.client.call("POST", self._path("reset"))

    def snapshot(self, name: str) -> dict[str, Any]:
        """Store the state of all agents under a name on the server, and return it as arrays."""
        got = self.client.call("POST", self._path("snapshots"), {"name": name})
        out: dict[str, list[Any]] = {}
        for part in got["parts"]:
            for variable, values in read_snapshot(part, self.client).items():
                out.setdefault(variable, []).append(values)
        return {variable: _concatenated(parts) for variable, parts in out.items()}

    def delete(self) -> None:
        """Delete the swarm with the state of its agents. Its snapshots remain."""
        self.client.call("DELETE", f"swarms/{_client.quote(self.name)}")


def read_snapshot(name: str, client: Optional[_client.Client] = None) -> dict[str, Any]:
    """Return the arrays of a snapshot by the names of their variables, a row for each agent or group."""
    _, _, content = (client or _client.default()).request("GET", f"snapshots/{_client.quote(name)}")
    got = _arrays.read(content)
    out = {}
    for variable in got["manifest"]["variables"]:
        files = [got[file["name"][: -len(".npy")]] for file in variable["files"]]
        out[variable["name"]] = _concatenated(files)
    return out


def _concatenated(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if _arrays.have_numpy():
        import numpy

        return numpy.concatenate(parts)
    data = parts[0].data[:]
    for part in parts[1:]:
        data.extend(part.data)
    return _arrays.Matrix(data, parts[0].shape[1])


def _flat(features: Any, width: int) -> tuple[Any, int]:
    """Return inputs as one sequence, and the number of rows."""
    if hasattr(features, "reshape"):  # of NumPy
        flat = features.reshape(-1)
        if features.ndim == 2 and features.shape[1] != width or len(flat) % width:
            raise FrameError(f"inputs of the shape {features.shape}: use rows of {width}")
        return flat, len(flat) // width
    rows: list[Union[float, Sequence[float]]] = list(features)
    out: list[float] = []
    for number, row in enumerate(rows, 1):
        values = list(row) if isinstance(row, (list, tuple)) or hasattr(row, "__len__") else [row]  # type: ignore[arg-type]
        if len(values) != width:
            raise FrameError(f"row {number} of the inputs has {len(values)} values: use {width}")
        out += values
    return out, len(rows)
