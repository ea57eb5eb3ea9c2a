#!/usr/bin/env python3
"""A client of GPU agents in Python, with the standard library alone: it submits jobs of pool gpu and prints their results.

    exoswarm serve --data-dir /tmp/exoswarm &
    python3 examples/python/gpu.py --nats 127.0.0.1:4222

docs/gpu-jobs.md has all kinds of job and their fields. Requests go through the gateways of CPU agents, as docs/protocol.md says.
"""

import argparse
import array
import base64
import json
import sys

from worker import Closed, Nats


class JobFailed(Exception):
    """A job that has ended with an error."""


TYPES = {"f": "f32", "d": "f64", "i": "i32", "q": "i64", "I": "u32", "Q": "u64", "B": "u8"}
CODES = {of: code for code, of in TYPES.items()}


def from_values(code, values, *shape):
    """The array of a specification: code is a type code of the module array."""
    elements = array.array(code, values)
    if sys.byteorder == "big":
        elements.byteswap()
    return {"type": TYPES[code], "shape": list(shape) or [len(elements)], "data": base64.b64encode(elements.tobytes()).decode()}


def to_values(a):
    """The elements of an array of an output in a flat list."""
    elements = array.array(CODES[a["type"]])
    elements.frombytes(base64.b64decode(a.get("data", "")))
    if sys.byteorder == "big":
        elements.byteswap()
    return elements.tolist()


class Client:
    """Submits jobs and waits for their results."""

    def __init__(self, nats):
        self.nats = nats

    def ask(self, what, body, timeout=10):
        """The answer of a gateway as a dict."""
        answer = self.nats.request("exo.api." + what, json.dumps(body).encode(), timeout=timeout)
        if answer is None or not answer.data:
            raise Closed("no gateway answers: is a CPU agent there?")
        return json.loads(answer.data)

    def submit(self, kind, spec):
        """Submits a job of pool gpu and returns its id."""
        got = self.ask("submit", {"pool": "gpu", "kind": kind, "spec": spec})
        if "error" in got:
            raise JobFailed("%(code)s: %(message)s" % got["error"])
        return got["job"]

    def result(self, job):
        """Waits for the result of a job and returns its output."""
        while True:
            got = self.ask("result." + job, {"wait_s": 30}, timeout=40)
            result = got.get("result")
            if result is not None:
                break
            if got.get("error", {}).get("code") != "not_found":
                raise JobFailed("%(code)s: %(message)s" % got["error"])
        if "error" in result:
            raise JobFailed("%(code)s: %(message)s" % result["error"])
        return result["output"]

    def do(self, kind, spec):
        """Submits a job, and returns its output."""
        return self.result(self.submit(kind, spec))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--nats", default="127.0.0.1:4222", help="HOST:PORT or nats://TOKEN@HOST:PORT")
    a = p.parse_args()
    try:
        client = Client(Nats(a.nats))
        total = client.do("reduce", {"op": "sum", "in": from_values("f", [1, 2, 3.5])})
        print("sum:", total["value"])
        ordered = client.do("sort", {"in": from_values("i", [30, -10, 20]), "indices": True})
        print("sorted:", to_values(ordered["sorted"]), to_values(ordered["indices"]))
        product = client.do("gemm", {"a": from_values("f", [1, 2, 3, 4], 2, 2), "b": from_values("f", [5, 6, 7, 8], 2, 2)})
        print("product:", to_values(product["c"]))
        # Jobs that are submitted before the first result is awaited run together.
        jobs = [client.submit("histogram", {"in": from_values("d", range(n)), "bins": 2, "min": 0, "max": 10}) for n in range(1, 6)]
        print("counts:", [to_values(client.result(job)["counts"]) for job in jobs])
        try:
            client.do("reduce", {"op": "product", "in": from_values("f", [1])})
        except JobFailed as e:
            print("refused:", str(e).split(":")[0])
    except (Closed, JobFailed, OSError) as e:
        sys.exit("gpu.py: %s" % e)


if __name__ == "__main__":
    main()
