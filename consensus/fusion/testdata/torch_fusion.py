#!/usr/bin/env python3
"""What PyTorch does for knowledge fusion, on one GPU: torch_fusion.py [--agents N] [--dim D]. The cases of
BenchmarkFuse: N x D of float32 and bf16 into 1,024 and 1,000,000 nodes, uniform, 99 % on one node, 99 % on eight;
index_add_ into zeroed sums for members in any order, segment_reduce for sorted ones, with and without the gather that
brings rows in order. Prints a JSON object a line: us is the median wall time from the call to the synchronised device,
gbs the rate of each embedding and member read once and each node written once."""
import argparse
import json
import statistics
import time

import torch

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--agents", type=int, default=10_000_000)
ap.add_argument("--dim", type=int, default=64)
ap.add_argument("--reps", type=int, default=21)
args = ap.parse_args()
torch.manual_seed(1)
dev, n, dim = "cuda", args.agents, args.dim


def timed(name, nbytes, fn):
    try:
        for _ in range(3):
            fn()
        torch.cuda.synchronize()
        us = []
        for _ in range(args.reps):
            start = time.perf_counter()
            fn()
            torch.cuda.synchronize()
            us.append((time.perf_counter() - start) * 1e6)
        m = statistics.median(us)
        print(json.dumps(dict(name=name, n=n, dim=dim, us=round(m, 1), gbs=round(nbytes / m / 1e3, 1))), flush=True)
    except Exception as e:  # an opponent that cannot do it is a row too
        print(json.dumps(dict(name=name, n=n, dim=dim, error=str(e).splitlines()[0][:120])), flush=True)


x = torch.empty(1 << 28, device=dev).normal_()
y = torch.empty_like(x)
timed("copy", 2 * x.numel() * 4, lambda: y.copy_(x))
del x, y
for t in (torch.float32, torch.bfloat16):
    rows = torch.randn(n, dim, device=dev).to(t)
    for m in (1024, 1_000_000):
        for kind, heavy in (("uniform", 0), ("skewed", 1), ("heavy8", 8)):
            idx = torch.randint(0, m, (n,), device=dev)
            if heavy:
                on = (m // 3 + 13 * torch.randint(0, heavy, (n,), device=dev)) % m
                idx = torch.where(torch.rand(n, device=dev) < 0.99, on, idx)
            out = torch.zeros(m, dim, device=dev, dtype=t)
            nbytes = rows.numel() * rows.element_size() + 4 * n + m * dim * 4
            label = f"{t} {m} {kind}".replace("torch.", "")
            timed(f"index_add_ {label}", nbytes, lambda: out.zero_().index_add_(0, idx, rows))
            order = torch.argsort(idx, stable=True)
            lengths = torch.bincount(idx, minlength=m)
            timed(f"segment_reduce {label}", nbytes, lambda: torch.segment_reduce(rows, "sum", lengths=lengths))
            timed(f"gather and segment_reduce {label}", nbytes, lambda: torch.segment_reduce(rows[order], "sum", lengths=lengths))
            del idx, out, order, lengths
    del rows
