"""What CuPy and PyTorch do for the sum and the number of the values of each key, from the host's call until both are in
host memory, against the number of values: a stable sort by key and differences of running sums, a weighted count of
bins, and one compiled pass with a comparison for each key. BenchmarkAgentsFuse by vote is the same question. Needs CuPy
and PyTorch 2 with CUDA; a library that is missing is left out.

    python3 group_growth.py >>opponents.json

Writes a JSON object a line: name, n, us (median wall time of a call). --reps sets the calls of each case."""

import argparse
import json
import sys
import time

import numpy as np

KEYS = 2


def measure(name, n, call, want, reps):
    took = []
    for i in range(reps + 5):
        start = time.perf_counter()
        got = call()  # waits for the device
        if i >= 5:
            took.append((time.perf_counter() - start) * 1e6)
    if not np.allclose(got, want, rtol=1e-3):
        sys.exit(f"{name} of {n}: {got}, want {want}")
    took.sort()
    print(json.dumps({"name": name, "n": n, "us": round(took[len(took) // 2], 1)}), flush=True)


def with_cupy(cp, keys, values, want, reps):
    k, v = cp.asarray(keys), cp.asarray(values)
    n = len(keys)

    def sort():
        order = cp.argsort(k, kind="stable")
        running = cp.cumsum(v[order], dtype=cp.float64)
        ends = cp.cumsum(cp.bincount(k, minlength=KEYS))
        return cp.diff(running[ends - 1], prepend=0).get()

    def bins():
        return cp.bincount(k, weights=v, minlength=KEYS).get()

    measure("cupy sort", n, sort, want, reps)
    measure("cupy bincount", n, bins, want, reps)


def with_torch(torch, keys, values, want, reps):
    k, v = torch.tensor(keys, device="cuda"), torch.tensor(values, device="cuda")

    def step():
        return torch.stack([torch.where(k == c, v, 0).sum() for c in range(KEYS)] +
                           [(k == c).sum().to(torch.float32) for c in range(KEYS)])

    compiled = torch.compile(step, mode="max-autotune", dynamic=False)

    def call():
        torch.compiler.cudagraph_mark_step_begin()
        return compiled().tolist()[:KEYS]

    measure("torch.compile", len(keys), call, want, reps)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--reps", type=int, default=40)
    reps = p.parse_args().reps
    try:
        import cupy as cp
    except ImportError as e:
        cp = None
        print(f"without CuPy: {e}", file=sys.stderr)
    try:
        import torch
    except ImportError as e:
        torch = None
        print(f"without PyTorch: {e}", file=sys.stderr)
    r = np.random.default_rng(1)
    for n in (1024, 10240, 102400, 1024000, 10240000, 102400000):
        keys = r.integers(0, KEYS, n, dtype=np.uint8)
        values = r.random(n, dtype=np.float32)
        want = [values[keys == c].sum(dtype=np.float64) for c in range(KEYS)]
        if cp is not None:
            with_cupy(cp, keys, values, want, reps)
        if torch is not None:
            with_torch(torch, keys, values, want, reps)


if __name__ == "__main__":
    main()
