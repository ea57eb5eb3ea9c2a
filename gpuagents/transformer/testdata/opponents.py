#!/usr/bin/env python3
"""What PyTorch does beside package transformer, on one GPU: models of random weights in bfloat16 with a static cache,
as gpt-fast has them. Each part writes a JSON object a line to standard output.

    opponents.py rates                              the rates of a copy, a read and a product
    opponents.py decode --shape 1b|8b [--agents 1,8,64] [--positions 1024] [--no-compile]
    opponents.py prompt --shape 1b|8b [--tokens 4096]
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F

SHAPES = {  # layers, width, inner, heads, key heads, head width, vocabulary
    "1b": (16, 2048, 8192, 32, 8, 64, 128256),
    "8b": (32, 4096, 14336, 32, 8, 128, 128256),
}


def tell(**what):
    print(json.dumps(what), flush=True)


def timed(fn, reps=30, warm=5):
    """The median of reps runs, in ms."""
    for _ in range(warm):
        fn()
    took = []
    for _ in range(reps):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        fn()
        b.record()
        b.synchronize()
        took.append(a.elapsed_time(b))
    return statistics.median(took)


class Model(torch.nn.Module):
    """A decoder of the llama form, whose head is tied to the embedding."""

    def __init__(self, shape, agents, context):
        super().__init__()
        self.layers, self.width, self.inner, self.heads, self.keys, self.head, words = SHAPES[shape]

        def draw(*size):
            return torch.nn.Parameter(torch.randn(*size, device="cuda", dtype=torch.bfloat16) * 0.02, False)

        self.embed = draw(words, self.width)
        rows = (self.heads + 2 * self.keys) * self.head
        self.qkv = torch.nn.ParameterList(draw(rows, self.width) for _ in range(self.layers))
        self.out = torch.nn.ParameterList(draw(self.width, self.heads * self.head) for _ in range(self.layers))
        self.up = torch.nn.ParameterList(draw(2 * self.inner, self.width) for _ in range(self.layers))
        self.down = torch.nn.ParameterList(draw(self.width, self.inner) for _ in range(self.layers))
        self.norms = torch.nn.ParameterList(draw(self.width) for _ in range(2 * self.layers + 1))
        cache = (self.layers, 2, agents, self.keys, context, self.head)
        self.register_buffer("cache", torch.zeros(cache, device="cuda", dtype=torch.bfloat16))
        turns = 1e4 ** -(torch.arange(0, self.head, 2, device="cuda") / self.head)
        angles = torch.outer(torch.arange(context, device="cuda"), turns)
        self.register_buffer("cos", angles.cos().bfloat16())
        self.register_buffer("sin", angles.sin().bfloat16())

    def rotate(self, x, at):
        c, s = self.cos[at][:, None], self.sin[at][:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def forward(self, tokens, at, mask):
        """Logits of the last of tokens [agents, count] at the positions at [count]."""
        agents, count = tokens.shape
        x = F.embedding(tokens, self.embed)
        for i in range(self.layers):
            h = F.rms_norm(x, (self.width,), self.norms[2 * i])
            q, k, v = F.linear(h, self.qkv[i]).view(agents, count, -1, self.head).split(
                [self.heads, self.keys, self.keys], 2)
            q, k = self.rotate(q, at), self.rotate(k, at)
            self.cache[i, 0].index_copy_(2, at, k.transpose(1, 2))
            self.cache[i, 1].index_copy_(2, at, v.transpose(1, 2))
            y = F.scaled_dot_product_attention(q.transpose(1, 2), self.cache[i, 0], self.cache[i, 1], mask,
                                               enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).reshape(agents, count, -1), self.out[i])
            h = F.rms_norm(x, (self.width,), self.norms[2 * i + 1])
            gate, up = F.linear(h, self.up[i]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, self.down[i])
        return F.linear(F.rms_norm(x[:, -1], (self.width,), self.norms[-1]), self.embed)


def decode(args):
    for agents in map(int, args.agents.split(",")):
        context = args.positions + 64
        model = Model(args.shape, agents, context)
        tokens = torch.zeros(agents, 1, dtype=torch.long, device="cuda")
        at = torch.tensor([args.positions], device="cuda")
        mask = (torch.arange(context, device="cuda") <= at)[None, None, None]
        step = model if args.no_compile else torch.compile(model, mode="max-autotune-no-cudagraphs", fullgraph=True)

        def one():
            return torch.argmax(step(tokens, at, mask), -1)

        with torch.no_grad():
            for _ in range(3):
                one()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                one()
            ms = timed(graph.replay)
        tell(name="decode", shape=args.shape, agents=agents, positions=args.positions, compiled=not args.no_compile,
             ms=round(ms, 3), tokens_per_s=round(agents * 1e3 / ms, 1))
        del model, step, graph
        torch.cuda.empty_cache()


def prompt(args):
    model = Model(args.shape, 1, args.tokens)
    tokens = torch.zeros(1, args.tokens, dtype=torch.long, device="cuda")
    at = torch.arange(args.tokens, device="cuda")
    mask = torch.tril(torch.ones(args.tokens, args.tokens, dtype=torch.bool, device="cuda"))[None, None]
    step = model if args.no_compile else torch.compile(model, fullgraph=True)
    with torch.no_grad():
        ms = timed(lambda: step(tokens, at, mask), 10)
    tell(name="prompt", shape=args.shape, tokens=args.tokens, compiled=not args.no_compile, ms=round(ms, 3),
         tokens_per_s=round(args.tokens * 1e3 / ms, 1))


def rates(_):
    a, b = torch.empty(1 << 30, device="cuda"), torch.empty(1 << 30, device="cuda")
    ms = timed(lambda: b.copy_(a))
    tell(name="copy", tb_per_s=round(8e-9 * (1 << 30) / ms, 3))
    ms = timed(lambda: a.sum())
    tell(name="read", tb_per_s=round(4e-9 * (1 << 30) / ms, 3))
    x, y = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ms = timed(lambda: x @ y)
    tell(name="product", tflops=round(2e-9 * 8192**3 / ms, 1))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("part", choices=["rates", "decode", "prompt"])
    ap.add_argument("--shape", choices=SHAPES, default="1b")
    ap.add_argument("--agents", default="1,8,64")
    ap.add_argument("--positions", type=int, default=1024)
    ap.add_argument("--tokens", type=int, default=4096)
    ap.add_argument("--no-compile", action="store_true")
    args = ap.parse_args()
    {"rates": rates, "decode": decode, "prompt": prompt}[args.part](args)


if __name__ == "__main__":
    main()
