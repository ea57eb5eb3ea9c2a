#!/usr/bin/env python3
"""What PyTorch does for the chains that TestChainTimes has timed: torch_chain.py --file FILE. The product from the left,
as written, torch.linalg.multi_dot, and torch.compile with max-autotune for the first skewed ones. Prints a JSON object a
line and the ratios: us is the least of two medians of 11 runs, as in the test."""
import argparse
import json
import statistics

import torch

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--file", required=True)
ap.add_argument("--compiled", type=int, default=4, help="skewed chains for torch.compile")
args = ap.parse_args()
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False


def timed(fn, *inputs):
    for _ in range(3):
        fn(*inputs)
    medians = []
    for _ in range(2):
        us = []
        for _ in range(11):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            fn(*inputs)
            b.record()
            torch.cuda.synchronize()
            us.append(a.elapsed_time(b) * 1e3)
        medians.append(statistics.median(us))
    return min(medians)


def written(*m):
    out = m[0]
    for k in m[1:]:
        out = out @ k
    return out


chains = [json.loads(line) for line in open(args.file)]
to_multi_dot, to_written, to_compiled = [], [], []
for c in chains:
    m = c["matrices"] = [torch.rand(a, b, device="cuda") - 0.5 for a, b in zip(c["dims"], c["dims"][1:])]
    c["multi_dot"], c["written"] = timed(lambda *m: torch.linalg.multi_dot(m), *m), timed(written, *m)
    to_multi_dot.append(c["us"] / c["multi_dot"])
    if c["skewed"]:
        to_written.append(c["written"] / c["us"])
    print(json.dumps({k: v for k, v in c.items() if k != "matrices"}), flush=True)


def spread(v):
    v = sorted(v)
    return f"median {statistics.median(v):.3f}, from {v[0]:.3f} to {v[-1]:.3f}, of {len(v)}"


print("TORCH own by multi_dot:", spread(to_multi_dot), "; at most 1.03:", sum(r <= 1.03 for r in to_multi_dot), flush=True)
print("TORCH skewed, as written by own:", spread(to_written), "; at least 1.2:", sum(r >= 1.2 for r in to_written), flush=True)
for c in [c for c in chains if c["skewed"]][: args.compiled]:
    torch._dynamo.reset()
    us = timed(torch.compile(written, mode="max-autotune-no-cudagraphs"), *c["matrices"])
    to_compiled.append(us / c["us"])
    print(json.dumps(dict(dims=c["dims"], compiled=us)), flush=True)
if to_compiled:
    print("TORCH skewed, torch.compile by own:", spread(to_compiled))
