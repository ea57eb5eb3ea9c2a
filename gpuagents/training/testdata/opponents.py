#!/usr/bin/env python3
"""What PyTorch does beside package training, on one GPU. Each part writes a JSON object a line to standard output.

    opponents.py golden --out FOLDER           a trajectory of torch.optim.Adam and gradients of a torch.nn.GRU: files
    opponents.py adam [--parameters 1000000000]
    opponents.py steps [--agents 1000000]      forward, backward and Adam over 32 moments: cuDNN and torch.compile
    opponents.py wall --answers answers.csv    ten epochs of a fold at a batch of 64: cuDNN, plain and as CUDA graphs
    opponents.py folds --answers answers.csv   AUC by fold: DKT (an LSTM of 200 units), and a GRU of 32 units

answers.csv has the columns fold, uid, concepts and responses, a line a student. A prediction is the probability of an
answer from all answers before it; the first answer of a student has none. Students of a tenth of the training folds
choose the epoch and, on the first fold, the settings."""

import argparse
import csv
import json
import math
import os
import random
import statistics
import sys
import time

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

WINDOW, SKILLS = 200, 100


def tell(**what):
    print(json.dumps(what), flush=True)


# Students and windows.


def read(path):
    csv.field_size_limit(1 << 30)
    with open(path, newline="") as f:
        return [(int(r["fold"]), np.array(r["concepts"].split(","), np.int64),
                 np.array(r["responses"].split(","), np.int64)) for r in csv.DictReader(f)]


def windows(students):
    """Inputs, skills asked and answers of windows, -1 where nothing is asked, on the GPU; and lengths."""
    x, q, y, n = [], [], [], []
    for _, skills, right in students:
        i = skills + SKILLS * right
        for k in range(0, len(i) - 1, WINDOW):
            m = min(WINDOW, len(i) - 1 - k)
            pad = (0, WINDOW - m)
            x.append(np.pad(i[k:k + m], pad))
            q.append(np.pad(skills[k + 1:k + 1 + m], pad))
            y.append(np.pad(right[k + 1:k + 1 + m], pad, constant_values=-1))
            n.append(m)
    return [torch.from_numpy(np.stack(v)).cuda() for v in (x, q, y)] + [np.array(n)]


class Tracer(nn.Module):
    """A recurrent net and a readout by skill: one-hot inputs and an LSTM, or learned inputs and a GRU."""

    def __init__(self, kind, hidden, dropout):
        super().__init__()
        self.embed = nn.Embedding(2 * SKILLS, hidden) if kind == "gru" else None
        self.net = nn.GRU(hidden, hidden) if kind == "gru" else nn.LSTM(2 * SKILLS, hidden)
        self.readout = nn.Linear(hidden, SKILLS)
        self.dropout = dropout

    def forward(self, x, q):
        v = self.embed(x) if self.embed is not None else F.one_hot(x, 2 * SKILLS).float()
        h, _ = self.net(v)
        h = F.dropout(h, self.dropout, self.training)
        return (h.float() * self.readout.weight[q]).sum(-1) + self.readout.bias[q]


def loss_of(logits, y):
    asked = (y >= 0).float()
    each = F.binary_cross_entropy_with_logits(logits, y.clamp(min=0).float(), reduction="none")
    return (each * asked).sum() / asked.sum()


def auc(p, y):
    order = np.argsort(p, kind="stable")
    p, y = p[order], y[order]
    _, first, count = np.unique(p, return_index=True, return_counts=True)
    rank = np.repeat(first + (count + 1) / 2, count)
    n = y.sum()
    return float((rank[y == 1].sum() - n * (n + 1) / 2) / (n * (len(y) - n)))


def judge(model, students):
    """AUC and mean loss of whole sequences."""
    model.eval()
    students = sorted(students, key=lambda s: len(s[1]))
    students = [s for s in students if len(s[1]) > 1]
    ps, ys = [], []
    with torch.no_grad():
        for k in range(0, len(students), 512):
            part = students[k:k + 512]
            top = len(part[-1][1]) - 1
            x, q, y = (np.zeros((top, len(part)), np.int64), np.zeros((top, len(part)), np.int64),
                       np.full((top, len(part)), -1, np.int64))
            for j, (_, skills, right) in enumerate(part):
                m = len(skills) - 1
                x[:m, j], q[:m, j], y[:m, j] = (skills + SKILLS * right)[:m], skills[1:], right[1:]
            logits = model(torch.from_numpy(x).cuda(), torch.from_numpy(q).cuda())
            ps.append(logits.double().cpu().numpy()[y >= 0])
            ys.append(y[y >= 0])
    p, y = np.concatenate(ps), np.concatenate(ys)
    return auc(p, y), float(np.mean(np.logaddexp(0, np.where(y == 1, -p, p))))


def train(students, fold, kind, hidden, rate, dropout, batch, epochs=25, patience=4, seed=1):
    """AUC of validation and of the fold, with the weights of the best epoch."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    rest = [s for s in students if s[0] != fold]
    draw.shuffle(rest)
    valid, rest = rest[:len(rest) // 10], rest[len(rest) // 10:]
    x, q, y, n = windows(rest)
    model = Tracer(kind, hidden, dropout).cuda()
    adam = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=1e-5, fused=True)
    best, kept, since = 0.0, None, 0
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(n)).numpy()
        for k in range(0, len(n), batch):
            rows = order[k:k + batch]
            top = int(n[rows].max())
            rows = torch.from_numpy(rows).cuda()
            a, b, c = (v[rows, :top].t().contiguous() for v in (x, q, y))
            adam.zero_grad()
            loss_of(model(a, b), c).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
        now, _ = judge(model, valid)
        if now > best:
            best, since, kept = now, 0, {k: v.clone() for k, v in model.state_dict().items()}
            at = epoch + 1
        elif (since := since + 1) >= patience:
            break
    model.load_state_dict(kept)
    return best, judge(model, [s for s in students if s[0] == fold])[0], at


SETTINGS = {
    "lstm": [(200, r, d, b) for r, d, b in ((1e-3, 0.2, 64), (3e-3, 0.2, 64), (1e-3, 0.5, 64), (2e-3, 0.5, 128))],
    "gru": [(32, r, d, b) for r, d, b in ((3e-3, 0.15, 64), (4e-3, 0.2, 64))],
}


def fold_worker(path, jobs, done):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.set_num_threads(1)
    students = read(path)
    while (job := jobs.get()) is not None:
        fold, kind, setting = job
        done.put((job, train(students, fold, kind, *setting)))


def folds(args):
    jobs, done = mp.Queue(), mp.Queue()
    workers = [mp.Process(target=fold_worker, args=(args.answers, jobs, done)) for _ in range(args.workers)]
    for w in workers:
        w.start()

    def all_of(todo):
        for j in todo:
            jobs.put(j)
        got = {}
        for _ in todo:
            (fold, kind, setting), result = done.get()
            got[fold, kind, setting] = result
            tell(name="fold", kind=kind, fold=fold, setting=setting, valid=round(result[0], 5), auc=round(result[1], 5),
                 epochs=result[2])
        return got

    settings = {}
    for kind, all in SETTINGS.items():
        settings[kind] = [tuple(json.loads(getattr(args, kind)))] if getattr(args, kind) else all
    got = all_of([(0, kind, s) for kind, all in settings.items() for s in all])
    best = {kind: max(all, key=lambda s: got[0, kind, s][0]) for kind, all in settings.items()}
    got |= all_of([(fold, kind, s) for kind, s in best.items() for fold in range(1, 5)])
    for _ in workers:
        jobs.put(None)
    for w in workers:
        w.join()
    for kind, s in best.items():
        of = [got[fold, kind, s][1] for fold in range(5)]
        tell(name="folds", kind=kind, setting=s, auc=[round(v, 4) for v in of], mean=round(statistics.mean(of), 4))


def wall(args):
    """Ten epochs of fold 0: all students of the other folds, batches of 64 windows in an order drawn for each epoch."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    x, q, y, n = windows([s for s in read(args.answers) if s[0] != 0])
    batch = 64

    def run(dtype, graphs, bucket):
        torch.manual_seed(1)
        model = Tracer("gru", 32, 0.2).cuda()
        adam = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5, fused=True, capturable=graphs)

        def step(a, b, c):
            adam.zero_grad(set_to_none=not graphs)
            with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                out = loss_of(model(a, b), c)
            out.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            return out

        made = {}

        def graphed(top, a, b, c):
            if top not in made:
                held = [torch.empty_like(v) for v in (a, b, c)]
                for h, v in zip(held, (a, b, c)):
                    h.copy_(v)
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        step(*held)
                torch.cuda.current_stream().wait_stream(side)
                g = torch.cuda.CUDAGraph()
                with torch.cuda.graph(g):
                    out = step(*held)
                made[top] = g, held, out
            g, held, out = made[top]
            for h, v in zip(held, (a, b, c)):
                h.copy_(v)
            g.replay()
            return out

        def epoch():
            order = np.random.permutation(len(n))
            total = torch.zeros((), device="cuda")
            for k in range(0, len(n) - len(n) % batch, batch):
                rows = order[k:k + batch]
                top = min(WINDOW, -(-int(n[rows].max()) // bucket) * bucket)
                rows = torch.from_numpy(rows).cuda(non_blocking=True)
                part = [v[rows, :top].t().contiguous() for v in (x, q, y)]
                total += (graphed(top, *part) if graphs else step(*part)).detach()
            return float(total) / (len(n) // batch)

        first = epoch()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(args.epochs):
            last = epoch()
        torch.cuda.synchronize()
        return time.perf_counter() - began, first, last

    for dtype in (torch.float32, torch.bfloat16):
        for graphs, bucket in ((False, 1), (True, 50), (True, 10)):
            if args.quick and (dtype, graphs, bucket) not in ((torch.float32, False, 1), (torch.float32, True, 10)):
                continue
            took, first, last = run(dtype, graphs, bucket)
            if not last < first:
                print(f"{dtype}: the loss does not fall", file=sys.stderr)
            tell(name="wall", dtype=str(dtype)[6:], graphs=graphs, bucket=bucket, epochs=args.epochs,
                 seconds=round(took, 3), windows=len(n), loss=[round(first, 4), round(last, 4)])


# One step of many agents.


def timed(fn, reps, warm=3, seconds=3.0):
    """Median of reps runs, or of three and as many as the seconds allow."""
    took = []
    for i in range(reps + warm):
        if i >= warm + 3 and sum(took) > 1000 * seconds:
            break
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        fn()
        b.record()
        b.synchronize()
        if i >= warm:
            took.append(a.elapsed_time(b))
    return statistics.median(took)


def cross(h, weight, bias, y):
    return F.cross_entropy(F.linear(h, weight, bias).flatten(0, 1).float(), y.flatten())


def unrolled(x, wi, wh, bi, bh, weight, bias, y):
    h = x.new_zeros(x.shape[1], wh.shape[1])
    total = 0.0
    for t in range(x.shape[0]):
        ir, iz, im = F.linear(x[t], wi, bi).chunk(3, -1)
        hr, hz, hm = F.linear(h, wh, bh).chunk(3, -1)
        r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
        m = torch.tanh(im + r * hm)
        h = m + z * (h - m)
        total = total + F.cross_entropy(F.linear(h, weight, bias).float(), y[t])
    return total / x.shape[0]


def make(hidden, dtype, agents, moments=32):
    torch.manual_seed(hidden)
    x = torch.randn(moments, agents, hidden, device="cuda", dtype=dtype)
    y = torch.randint(0, 2, (moments, agents), device="cuda")
    net = nn.GRU(hidden, hidden).to("cuda", dtype)
    net.flatten_parameters()
    readout = nn.Linear(hidden, 2).to("cuda", dtype)
    adam = torch.optim.Adam([*net.parameters(), *readout.parameters()], lr=1e-3, fused=True)
    return x, y, net, readout, adam


def step_cudnn(x, y, net, readout, adam, chunks, loss):
    def step():
        for p in (*net.parameters(), *readout.parameters()):
            p.grad = None
        for a, b in zip(x.chunk(chunks, 1), y.chunk(chunks, 1)):
            h, _ = net(a.contiguous())
            (loss(h, readout.weight, readout.bias, b) / chunks).backward()
        if adam is not None:
            adam.step()
    return step


def step_compiled(x, y, net, readout, adam, chunks, fn):
    weights = net.weight_ih_l0, net.weight_hh_l0, net.bias_ih_l0, net.bias_hh_l0, readout.weight, readout.bias

    def step():
        for p in (*net.parameters(), *readout.parameters()):
            p.grad = None
        for a, b in zip(x.chunk(chunks, 1), y.chunk(chunks, 1)):
            (fn(a.contiguous(), *weights, b) / chunks).backward()
        if adam is not None:
            adam.step()
    return step


def compile_worker(hidden, agents, reps, barrier, lock):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for dtype in (torch.bfloat16, torch.float32):
        with lock:
            made = make(hidden, dtype, agents)
        chunks = 1
        fn = torch.compile(unrolled, dynamic=False)
        step = step_compiled(*made, chunks, fn)
        error = ""
        try:
            step()
            torch.cuda.synchronize()
        except Exception as e:  # what the compiler or memory refuses
            error = f"{type(e).__name__}: {e}"[:200]
        torch.cuda.empty_cache()
        barrier.wait()
        with lock:
            if not error:
                ms = timed(step, reps, 1)
                tell(name="compiled", hidden=hidden, dtype=str(dtype)[6:], agents=agents, chunks=chunks,
                     ms=round(ms, 3), peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 1))
            else:
                tell(name="compiled", hidden=hidden, dtype=str(dtype)[6:], error=error)
            del step, made
            torch.cuda.empty_cache()
        barrier.wait()


def steps(args):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    loss = torch.compile(cross, dynamic=False)
    for hidden in () if args.no_cudnn else (8, 16, 32):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            if dtype == torch.float16 and hidden > 8:
                continue  # an illegal access in PyTorch 2.11, which ends the process
            made = make(hidden, dtype, args.agents)
            # The gradient of cuDNN beside the gradient of the unrolled cell, of few agents.
            few = [made[0][:, :64].contiguous(), made[1][:, :64].contiguous()]
            step_cudnn(*few, *made[2:4], None, 1, cross)()
            one = [p.grad.float().clone() for p in made[2].parameters()]
            step_compiled(*few, *made[2:4], None, 1, unrolled)()
            far = max(float((p.grad.float() - g).norm() / g.norm()) for p, g in zip(made[2].parameters(), one))
            for chunks in map(int, args.chunks.split(",")):
                try:
                    ms = timed(step_cudnn(*made, chunks, loss), args.reps, 1)
                    tell(name="cudnn", hidden=hidden, dtype=str(dtype)[6:], agents=args.agents, chunks=chunks,
                         ms=round(ms, 3), gradients_differ=round(far, 5))
                except Exception as e:
                    tell(name="cudnn", hidden=hidden, dtype=str(dtype)[6:], chunks=chunks, error=str(e)[:100])
            del made
            torch.cuda.empty_cache()
    if args.no_compile:
        return
    barrier, lock = mp.Barrier(3), mp.Lock()
    workers = [mp.Process(target=compile_worker, args=(h, args.agents, args.reps, barrier, lock)) for h in (8, 16, 32)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def adam(args):
    n = args.parameters
    for fused in (True, False):
        p = torch.randn(n, device="cuda")
        p.grad = torch.randn(n, device="cuda")
        kind = {"fused": True} if fused else {"foreach": True}
        if not fused and n > 200_000_000:
            continue
        opt = torch.optim.Adam([p.requires_grad_()], lr=1e-3, weight_decay=1e-5, **kind)
        ms = timed(opt.step, args.reps)
        tell(name="adam", fused=fused, parameters=n, ms=round(ms, 3), tb_per_s=round(28e-9 * n / ms, 3))
        del p, opt
        torch.cuda.empty_cache()
    a, b = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
    ms = timed(lambda: b.copy_(a), args.reps)
    tell(name="copy", parameters=n, ms=round(ms, 3), tb_per_s=round(8e-9 * n / ms, 3))


# Files of tests.


def bits(t):
    return [f"{v:08x}" for v in t.detach().cpu().numpy().view(np.uint32).ravel()]


def draws(n, seed):
    """n numbers of 24 bits by Knuth's and Lewis's generator, in [-1, 1): exact as float32."""
    out, x = [], seed
    for _ in range(n):
        x = (1664525 * x + 1013904223) & 0xffffffff
        out.append(((x >> 8) - (1 << 23)) / (1 << 23))
    return out


def trajectory(clip):
    """1,000 steps of 16 parameters. Gradient i of step k is draw 16 k + i times 2^(i % 8 - 4)."""
    n, count = 16, 1000
    scale = torch.tensor([2.0 ** (i % 8 - 4) for i in range(n)])
    p = torch.nn.Parameter(torch.tensor(draws(n, 7)))
    g = torch.tensor(draws(n * count, 11)).reshape(count, n)
    opt = torch.optim.Adam([p], lr=4e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-5, foreach=False)
    kept = {}
    for k in range(count):
        p.grad = g[k] * scale
        if clip:
            torch.nn.utils.clip_grad_norm_([p], clip, foreach=False)
        opt.step()
        if k + 1 in (1, 2, 3, 10, 30, 100, 300, 1000):
            s = opt.state[p]
            kept[k + 1] = {"parameters": bits(p), "m": bits(s["exp_avg"]), "v": bits(s["exp_avg_sq"])}
    return kept


def gradients(hidden, inputs, moments, agents, rows, items, candidates, seed):
    """Loss and gradients in float64 of weights that are float32; a target is asked where it is not -1."""
    gen = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return ((torch.rand(*shape, generator=gen) * 2 - 1) / math.sqrt(hidden)).float().double().requires_grad_()

    w = {"weight_ih": draw(3 * hidden, inputs), "weight_hh": draw(3 * hidden, hidden), "bias_ih": draw(3 * hidden),
         "bias_hh": draw(3 * hidden), "readout.weight": draw(items or candidates, hidden),
         "readout.bias": draw(items or candidates)}
    out = {"hidden": hidden, "inputs": inputs, "moments": moments, "sequences": agents, "rows": rows, "items": items,
           "candidates": candidates}
    if rows:
        w["embed.weight"] = draw(rows, inputs)
        numbers = torch.randint(0, rows, (moments, agents), generator=gen)
        out["numbers"] = numbers.flatten().tolist()
        x = w["embed.weight"][numbers]
    else:
        x = draw(moments, agents, inputs).detach()
        out["x"] = x.flatten().tolist()
    y = torch.randint(-1, candidates, (moments, agents), generator=gen)
    h, total = torch.zeros(agents, hidden, dtype=torch.float64), 0.0
    if items:
        asked = torch.randint(0, items, (moments, agents), generator=gen)
        out["asked"] = asked.flatten().tolist()
    for t in range(moments):
        h = torch.ops.aten.gru_cell(x[t], h, w["weight_ih"], w["weight_hh"], w["bias_ih"], w["bias_hh"])
        if items:
            logit = (h * w["readout.weight"][asked[t]]).sum(-1) + w["readout.bias"][asked[t]]
            each = F.binary_cross_entropy_with_logits(logit, y[t].clamp(min=0).double(), reduction="none")
        else:
            logits = F.linear(h, w["readout.weight"], w["readout.bias"])
            each = F.cross_entropy(logits, y[t].clamp(min=0), reduction="none")
        total = total + (each * (y[t] >= 0)).sum()
    total.backward()
    out["targets"], out["loss"] = y.flatten().tolist(), total.item()
    out["weights"] = {k: v.flatten().tolist() for k, v in w.items()}
    out["gradients"] = {k: v.grad.flatten().tolist() for k, v in w.items()}
    return out


def golden(args):
    os.makedirs(args.out, exist_ok=True)

    def write(name, what):
        with open(os.path.join(args.out, name), "w") as f:
            json.dump({"torch": torch.__version__, **what}, f, separators=(",", ":"))
            f.write("\n")

    write("adam.json", {"rate": 4e-3, "betas": [0.9, 0.999], "epsilon": 1e-8, "decay": 1e-5, "plain": trajectory(0),
                        "clipped": trajectory(1.0)})
    write("gradients.json", {"cases": [gradients(8, 3, 6, 4, 0, 0, 2, 1), gradients(8, 8, 5, 3, 7, 5, 2, 2),
                                       gradients(6, 5, 4, 3, 0, 0, 5, 3)]})


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("part", choices=["golden", "adam", "steps", "wall", "folds"])
    ap.add_argument("--answers")
    ap.add_argument("--out", default=".")
    ap.add_argument("--agents", type=int, default=1_000_000)
    ap.add_argument("--parameters", type=int, default=1_000_000_000)
    ap.add_argument("--reps", type=int, default=30)
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--lstm", help="[units, rate, dropout, batch] of DKT, in place of the search on fold 0")
    ap.add_argument("--gru", help="the same of the GRU")
    ap.add_argument("--chunks", default="1,4,16", help="parts of the agents for cuDNN, each tried")
    ap.add_argument("--workers", type=int, default=6)
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--no-cudnn", action="store_true")
    ap.add_argument("--quick", action="store_true", help="the two forms that were fastest alone")
    args = ap.parse_args()
    mp.set_start_method("spawn")
    {"golden": golden, "adam": adam, "steps": steps, "wall": wall, "folds": folds}[args.part](args)


if __name__ == "__main__":
    main()
