#!/usr/bin/env python3
"""What PyTorch does for the workloads of TestWorkloads, on one GPU: torch_expr.py [--n N]. Eager, torch.compile with
max-autotune, and masked_select for the filter. Prints a JSON object a line: us is the median device time of 30 runs."""
import argparse
import json
import statistics

import torch

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--n", type=int, default=1 << 28)
ap.add_argument("--reps", type=int, default=30)
ap.add_argument("--only", default="")
args = ap.parse_args()
n = args.n
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False


def timed(fn, *inputs):
    for _ in range(3):
        fn(*inputs)
    torch.cuda.synchronize()
    us = []
    for _ in range(args.reps):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        fn(*inputs)
        b.record()
        torch.cuda.synchronize()
        us.append(a.elapsed_time(b) * 1e3)
    return round(statistics.median(us), 1)


def row(name, fn, *inputs):
    if args.only and not any(o in name for o in args.only.split(",")):
        return
    out = dict(name=name, n=n, eager_us=timed(fn, *inputs))
    try:
        out["compiled_us"] = timed(torch.compile(fn, mode="max-autotune-no-cudagraphs"), *inputs)
    except Exception as e:  # an opponent that cannot do it is a row too
        out["error"] = str(e).splitlines()[0][:120]
    print(json.dumps(out), flush=True)


def chain_of_10(x):
    z = x * x + 1
    w = (z - x) * 0.5 + z * 0.25
    return (w + torch.abs(x)) * 2 - 1


x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
row("copy", lambda x: x.clone(), x)
row("map_reduce", lambda x, y: torch.sum(torch.sqrt(x * x + y * y)), x, y)
row("axpb_sum", lambda x: torch.sum(x * 2.5 + 1.25), x)
row("filter_half", lambda x: torch.masked_select(x * 2 + 1, x > 0.5), x)
row("chain_of_10", chain_of_10, x)
row("mean_variance", lambda x: (torch.sum(x), torch.sum(x * x), torch.max(x)), x)
row("cumsum", lambda x: torch.cumsum(x, 0), x)
del y
for width in (1024, 4096):
    row(f"softmax_{width}", lambda m: torch.softmax(m, 1), x.view(-1, width))
row("normalize_1024", lambda m: torch.nn.functional.layer_norm(m, (1024,)), x.view(-1, 1024))
row("row_sum_1024", lambda m: torch.sum(m * m, 1), x.view(-1, 1024))
del x
rows = max(n // 26, 1)
e, p, b, q = (torch.rand(s, device="cuda") for s in ((rows, 8), (8, 32), (32,), (32, 8)))
row("mlp_8_32_8", lambda e: torch.relu(e @ p + b) @ q, e)
del e
for shape in ((1024, 1024, 1024, 8), (8, 1024, 1024, 1024), (4096, 64, 4096, 64), (2048, 2048, 32, 2048, 16)):
    m = [torch.rand(a, b, device="cuda") for a, b in zip(shape, shape[1:])]

    def product(*m):
        out = m[0]
        for k in m[1:]:
            out = out @ k
        return out

    name = "chain_" + "x".join(map(str, shape))
    row(name, product, *m)
    print(json.dumps(dict(name=name + "_multi_dot", n=n, eager_us=timed(lambda *m: torch.linalg.multi_dot(m), *m))), flush=True)
