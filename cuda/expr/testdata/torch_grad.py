"""Derivatives and Adam of PyTorch: the table autograd.json, and the opponent of the autoencoder.

    python3 torch_grad.py table autograd.json
    python3 torch_grad.py train ROWS STEPS [MODE]

The autoencoder has the data and the first weights of TestAutoencoder.
"""

import json
import statistics
import sys
import time

import torch

ROWS = 6
SHAPES = {"x": (ROWS, 4), "v": (ROWS, 1), "u": (ROWS, 1), "w": (4, 3), "z": (3, 4), "b": (1, 4), "t": (5,)}
LOSSES = {
    "sum(x * v + u)": lambda i: (i.x * i.v + i.u).sum(),
    "mean(x / (v + b))": lambda i: (i.x / (i.v + i.b)).mean(),
    "sum(sqrt(x) * u)": lambda i: (i.x.sqrt() * i.u).sum(),
    "mean(exp(x * v))": lambda i: (i.x * i.v).exp().mean(),
    "sum(log(x + v) * b)": lambda i: ((i.x + i.v).log() * i.b).sum(),
    "sum(tanh(x * u - 1))": lambda i: (i.x * i.u - 1).tanh().sum(),
    "sum(max(x, b) * v)": lambda i: (torch.maximum(i.x, i.b.expand(ROWS, 4)) * i.v).sum(),
    "sum(select(x > v, x * x, v * u))": lambda i: torch.where(i.x > i.v, i.x * i.x, i.v * i.u).sum(),
    "sum(relu(x - v))": lambda i: (i.x - i.v).relu().sum(),
    "mean(sigmoid(x * v))": lambda i: (i.x * i.v).sigmoid().mean(),
    "sum(softmax(x) * b * v)": lambda i: (i.x.softmax(1) * i.b * i.v).sum(),
    "sum(row_max(x) * v)": lambda i: (i.x.amax(1, keepdim=True) * i.v).sum(),
    "max(x * v)": lambda i: (i.x * i.v).amax(),
    "mean(col_mean(x * x))": lambda i: (i.x * i.x).mean(0).mean(),
    "mean(square(matmul(x, w)))": lambda i: (i.x @ i.w).square().mean(),
    "sum(matmul(tanh(matmul(x * v, w)), z) * b)": lambda i: (((i.x * i.v) @ i.w).tanh() @ i.z * i.b).sum(),
    "mean(log(softmax(matmul(x, w))) * v)": lambda i: ((i.x @ i.w).softmax(1).log() * i.v).mean(),
    "sum(square(gather(t, i)) * v)": lambda i: (i.t[i.i].square()[:, None] * i.v).sum(),
}


class Inputs:
    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        for name, shape in SHAPES.items():
            setattr(self, name, (0.4 + 1.2 * torch.rand(shape, generator=g)).requires_grad_())
        self.i = torch.randint(0, 5, (ROWS,), generator=g)


def table(path):
    rows = []
    for seed, (text, loss) in enumerate(LOSSES.items()):
        inputs = Inputs(seed)
        value = loss(inputs)
        value.backward()
        row = {"text": text, "loss": value.item(), "inputs": {"i": inputs.i.tolist()}, "gradients": {}}
        for name in SHAPES:
            v = getattr(inputs, name)
            row["inputs"][name] = v.flatten().tolist()
            if v.grad is not None:
                row["gradients"][name] = v.grad.flatten().tolist()
        rows.append(row)
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def autoencoder(rows, device):
    r = torch.arange(rows, device=device)
    z = torch.stack([((r * p) % 1000003).float() / 1000003 - 0.5 for p in (7919, 104729, 15485863, 32452843, 49979687)])
    k = torch.arange(5, device=device)[:, None]
    c = torch.arange(32, device=device)[None, :]
    mix = ((k * 37 + c * 101 + 13) % 97).float() / 97 - 0.5
    x = z.t() @ mix * 4

    def weight(n, m, scale):
        i = torch.arange(n, device=device)[:, None]
        j = torch.arange(m, device=device)[None, :]
        return ((((i * 53 + j * 29 + 7) % 89).float() / 89 - 0.5) * scale).requires_grad_()

    bias = lambda n: torch.zeros(1, n, device=device, requires_grad=True)
    return x, [weight(32, 8, 0.5), bias(8), weight(8, 32, 0.8), bias(32)]


def train(rows, steps, mode):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, weights = autoencoder(rows, device)
    optimizer = torch.optim.Adam(weights, lr=1e-3, fused=device == "cuda")

    def loss_of(x, w1, b1, w2, b2):
        return (torch.tanh(x @ w1 + b1) @ w2 + b2 - x).square().mean()

    f = loss_of if mode == "eager" else torch.compile(loss_of, mode=None if mode == "default" else mode)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = f(x, *weights)
        loss.backward()
        optimizer.step()
        return loss

    begin = time.time()
    losses = [step() for _ in range(3)]
    torch.cuda.synchronize()
    print(f"torch {torch.__version__} {mode}: first steps {time.time() - begin:.1f} s", flush=True)
    took = []
    while len(losses) < steps:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        losses.append(step())
        b.record()
        if len(losses) % 50 == 0:
            torch.cuda.synchronize()
        took.append((a, b))
    torch.cuda.synchronize()
    us = [1e3 * a.elapsed_time(b) for a, b in took[:30]]
    print(f"torch {mode}: a step of {rows} rows {statistics.median(us):.1f} us, loss {losses[0].item():.8g}, "
          f"after {steps} steps {losses[-1].item():.8g}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(sys.argv[2])
    else:
        train(int(sys.argv[2]), int(sys.argv[3]), (sys.argv + ["default"])[4])
