#!/usr/bin/env python3
"""torch.matmul as BenchmarkGemm measures: the median device time of repetitions that are each waited for, few of them and many. A chip that
is busy for a long time has lower clocks, so compare like with like. Prints one JSON object a line."""
import json
import statistics

import torch

torch.backends.cuda.matmul.allow_tf32 = False
for name, n, dtype in (("f32", 4096, torch.float32), ("bf16", 8192, torch.bfloat16)):
    a, b = torch.randn(n, n, device="cuda", dtype=dtype), torch.randn(n, n, device="cuda", dtype=dtype)
    for reps in (21, 300):
        for _ in range(3):
            torch.matmul(a, b)
        torch.cuda.synchronize()
        ms = []
        for _ in range(reps):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            torch.matmul(a, b)
            end.record()
            torch.cuda.synchronize()
            ms.append(start.elapsed_time(end))
        print(json.dumps(dict(name=f"torch.matmul {name}", n=n, reps=reps, tflops=round(2 * n**3 / statistics.median(ms) / 1e9, 1),
                              best=round(2 * n**3 / min(ms) / 1e9, 1))), flush=True)
