"""Trains gopher: a language model of one million parameters, in the form of llama, on the sources of Go.

    python3 gopher.py "$(go env GOROOT)/src" OUT --seconds 150

It writes config.json, tokenizer.json and model.safetensors into OUT, and report.json: the bits for each byte of the
files that it has not read, and continuations. README.md says how a GGUF file is made of them. It needs torch,
tokenizers and safetensors, and one GPU.
"""
import argparse
import json
import lzma
import math
import os
import random
import re
import time
import zlib

import numpy
import torch
import torch.nn.functional as F
from torch import nn

BEGIN, END, USER, AGENT = SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|agent|>"]
VOCABULARY, CONTEXT = 2048, 2048
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 128, 384, 4, 4, 2, 32
THETA, EPSILON = 10000.0, 1e-5
BATCH, RATE = 64, 5e-3
# The rule of llama3, by which a tokenizer splits text before merges.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")


def sources(root):
    """Returns the texts of the Go files below root, without tests, data and generated code: two lists, the second of
    one file in 50, which training does not see."""
    train, valid = [], []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in ("testdata", "vendor"))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not name.endswith(".go") or name.endswith("_test.go"):
                continue
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read()
            if "ode generated " in text[:3000] or "DO NOT EDIT" in text[:3000]:
                continue
            unseen = zlib.crc32(os.path.relpath(path, root).encode()) % 50 == 0
            (valid if unseen else train).append(text)
    return train, valid


def conversations(texts, rng):
    """Returns conversations whose turns are the documentation of a function, and the function."""
    pattern = re.compile(r"((?:^//(?:[ \t].*)?\n)+)(func [^\n]*\{\n(?:[^}\n].*\n|\n)*\}\n)", re.MULTILINE)
    for text in texts:
        turns = []
        for comment, function in pattern.findall(text):
            said = " ".join(line[2:].strip() for line in comment.split("//\n")[0].splitlines())
            if said and len(said) < 500 and len(function) < 2000:
                turns.append(USER + said + AGENT + function + END)
        while turns:
            n = rng.randint(1, 4)
            yield BEGIN + "".join(turns[:n])
            turns = turns[n:]


def vocabulary(texts, path):
    """Trains the tokenizer: byte-level BPE with the rule of llama3."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, t.token_to_id(BEGIN))])
    t.save(path)
    return t


def stream(tokenizer, texts):
    """Returns the tokens of all texts, one behind the other."""
    rows = tokenizer.encode_batch(texts, add_special_tokens=False)
    return torch.from_numpy(numpy.concatenate([numpy.array(r.ids, dtype=numpy.int32) for r in rows]))


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x, turn):
        batch, n, _ = x.shape
        q, k, v = (p(x).view(batch, n, -1, HEAD).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = turn(q), turn(k)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, n, HEADS * HEAD))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(WIDTH), Attention()
        self.post_attention_layernorm, self.mlp = Norm(WIDTH), Gated()

    def forward(self, x, turn):
        x = x + self.self_attn(self.input_layernorm(x), turn)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Parameters have the names of LlamaModel of transformers. The head is the embedding."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm(WIDTH)
        angles = torch.outer(torch.arange(CONTEXT).double(), THETA ** (-torch.arange(0, HEAD, 2).double() / HEAD))
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if deep else 0.02)

    def forward(self, tokens):
        n = tokens.shape[1]
        cos, sin = self.cos[:n], self.sin[:n]

        def turn(x):
            a, b = x.float().chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)

        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, turn)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def train(model, tokens, until, device):
    """Trains on windows of tokens until a time. The rate falls as a cosine of the time."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=RATE, betas=(0.9, 0.95), fused=device == "cuda")

    def loss_of(rows):
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(rows[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())

    loss_of = torch.compile(loss_of)
    window = torch.arange(CONTEXT + 1, device=device)
    first, at, step = time.time(), 0.0, 0
    while at < 1:
        starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH, 1), device=device)
        loss = loss_of(tokens[starts + window].long())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * at))
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == 4:  # compiled
            loss.item()
            print(f"compiled in {time.time() - first:.1f} s", flush=True)
            first = time.time()
        if step % 8 == 0:  # wait for the device, so that the time is its time
            now = loss.item()
            at = min(1.0, (time.time() - first) / (until - first))
            if step % 400 == 0:
                print(f"step {step}, {at:.3f} of the time, loss {now:.3f}", flush=True)
    return step


@torch.no_grad()
def bits(model, tokens, n):
    """Returns the bits for each of n bytes of a stream of tokens, in float32. Windows do not overlap."""
    total = 0.0
    for at in range(0, len(tokens) - 1, CONTEXT):
        row = tokens[at:at + CONTEXT + 1].long()[None]
        total += F.cross_entropy(model(row[:, :-1])[0], row[0, 1:], reduction="sum").item()
    return total / math.log(2) / n


@torch.no_grad()
def quantise(model):
    """Rounds all matrices as the type Q8_0 does: 32 values of a row have a scale of 16 bits."""
    for p in model.parameters():
        if p.dim() == 2:
            blocks = p.detach().cpu().double().numpy().reshape(-1, 32)
            scale = numpy.abs(blocks).max(1, keepdims=True) / 127
            whole = blocks / numpy.where(scale > 0, scale, 1)
            whole = numpy.copysign(numpy.floor(numpy.abs(whole) + 0.5), whole)
            rounded = scale.astype(numpy.float32).astype(numpy.float16).astype(numpy.float32)
            values = rounded * whole.astype(numpy.float32)
            p.copy_(torch.from_numpy(values.reshape(p.shape)))


@torch.no_grad()
def greedy(model, tokenizer, prompt, device, n=64):
    """Returns a continuation, and the least distance between the first and the second logit of its steps."""
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    more, least = [], math.inf
    for _ in range(n):
        logits = model(torch.tensor([ids + more], device=device))[0, -1]
        two = torch.topk(logits, 2)
        least = min(least, (two.values[0] - two.values[1]).item())
        more.append(two.indices[0].item())
        if more[-1] == SPECIAL.index(END):
            break
    return {"prompt": prompt, "tokens": ids, "more": more, "text": tokenizer.decode(more), "margin": least}


PROMPTS = [
    BEGIN + "package main\n\nimport (\n\t\"fmt\"\n",
    BEGIN + "// Copyright 2009 The Go Authors. All rights reserved.\n",
    BEGIN + "func (b *Buffer) Write(p []byte) (n int, err error) {\n",
    BEGIN + "if err != nil {\n\t\t",
    BEGIN + USER + "Max returns the larger of x or y." + AGENT,
    BEGIN + USER + "String returns the name of the file." + AGENT,
    BEGIN + USER + "Close closes the connection." + AGENT,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=150, help="of the whole program")
    args = parser.parse_args()
    start = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    os.makedirs(args.out, exist_ok=True)

    texts, unseen = sources(args.sources)
    rng = random.Random(1)
    talks = list(conversations(texts, rng))
    tokenizer = vocabulary(texts, os.path.join(args.out, "tokenizer.json"))
    mixed = [BEGIN + text + END for text in texts] + talks
    rng.shuffle(mixed)
    tokens = stream(tokenizer, mixed).to(device)
    valid = stream(tokenizer, [BEGIN + text + END for text in unseen]).to(device)
    text = "".join(unseen).encode()
    print(f"{len(texts)} files, {sum(map(len, talks))} characters of conversations, {len(tokens)} tokens, "
          f"{len(text)} bytes and {len(valid)} tokens to validate, {time.time() - start:.1f} s", flush=True)

    model = Decoder().to(device)
    steps = train(model, tokens, start + args.seconds - 10, device)
    model.eval()
    report = {
        "parameters": sum(p.numel() for p in model.parameters()), "steps": steps, "tokens_seen": steps * BATCH * CONTEXT,
        "tokens": len(tokens), "valid_bytes": len(text), "valid_tokens": len(valid),
        "bits_per_byte": bits(model, valid, len(text)),
    }
    from safetensors.torch import save_file
    weights = {"model." + name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    save_file(weights, os.path.join(args.out, "model.safetensors"))
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rms_norm_eps": EPSILON, "rope_theta": THETA,
        "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1,
    }
    with open(os.path.join(args.out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    quantise(model)
    report["bits_per_byte_q8"] = bits(model, valid, len(text))
    report["bits_per_byte_gzip"] = 8 * len(zlib.compress(text, 9)) / len(text)
    report["bits_per_byte_xz"] = 8 * len(lzma.compress(text, preset=6)) / len(text)
    report["greedy_q8"] = [greedy(model, tokenizer, p, device) for p in PROMPTS]
    report["seconds"] = time.time() - start
    with open(os.path.join(args.out, "report.json"), "w") as f:
        json.dump(report, f, indent=1)
    print(json.dumps(report, indent=1), flush=True)


if __name__ == "__main__":
    main()
