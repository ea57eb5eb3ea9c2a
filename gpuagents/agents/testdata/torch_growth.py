"""What PyTorch does for ticks of leaky and gru (H=8, f32) agents, from the host's call until the tally of their votes is in
host memory, against the number of agents: one tick a call, and sixteen ticks in one compiled call. It makes no decisions
of groups. Needs PyTorch 2 with CUDA.

    python3 torch_growth.py >>opponents.json

Writes a JSON object a line: name, n, us (median wall time of a tick). --reps sets the calls of each case."""

import argparse
import json
import time

import torch

CANDIDATES = 5


def leaky(v, trace, bias, current):
    v = v * 0.9 + current + bias
    spikes = v > 1.0
    v = torch.where(spikes, torch.zeros_like(v), v)
    return v, trace * 0.99 + spikes * 0.01, spikes


def measure(name, n, ticks, call, reps):
    took = []
    for i in range(reps + 5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call().tolist()  # waits for the device
        if i >= 5:
            took.append((time.perf_counter() - start) * 1e6 / ticks)
    took.sort()
    print(json.dumps({"name": name, "n": n, "us": round(took[len(took) // 2], 2)}), flush=True)


def recorded(step, *state):
    """A compiled step that changes its state in place, recorded as a CUDA graph: a call is one launch and one copy."""
    with torch.no_grad():
        run = torch.compile(step, mode="max-autotune-no-cudagraphs", dynamic=False)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run(*state)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tally = run(*state)

    def call():
        graph.replay()
        return tally

    return call


def agents_of_leaky(n, ticks):
    def step(v, trace, bias, current):
        new_v, new_trace = v, trace
        for _ in range(ticks):
            new_v, new_trace, spikes = leaky(new_v, new_trace, bias, current)
        v.copy_(new_v), trace.copy_(new_trace)
        ones = spikes.sum()
        return torch.stack([spikes.numel() - ones, ones])

    return recorded(step, *(torch.rand(n, device="cuda") for _ in range(4)))


def agents_of_gru(n, ticks):
    cell, head = torch.nn.GRUCell(8, 8).cuda(), torch.nn.Linear(8, CANDIDATES).cuda()

    def step(state, x):
        h = state
        gates = torch.nn.functional.linear(x, cell.weight_ih, cell.bias_ih)  # the input stays: one product for all ticks
        for _ in range(ticks):
            r_x, z_x, n_x = gates.chunk(3, 1)
            r_h, z_h, n_h = torch.nn.functional.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, 1)
            r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
            new = torch.tanh(n_x + r * n_h)
            h = new + z * (h - new)
        votes = head(h).argmax(1)
        state.copy_(h)
        return torch.stack([(votes == c).sum() for c in range(CANDIDATES)])

    return recorded(step, torch.rand(n, 8, device="cuda"), torch.rand(n, 8, device="cuda"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=30)
    reps = parser.parse_args().reps
    torch.manual_seed(7)
    torch._dynamo.config.cache_size_limit = 256
    for n in (10**3, 10**4, 10**5, 10**6, 10**7, 10**8):
        for ticks in (1, 16):
            form = "one tick a call" if ticks == 1 else "sixteen ticks a call"
            for cell, make, most in (("leaky", agents_of_leaky, 10**8), ("gru", agents_of_gru, 10**7)):
                if n > most:
                    continue
                try:
                    measure(f"{cell}, torch.compile, {form}", n, ticks, make(n, ticks), reps)
                except Exception as e:  # a case that it cannot do is no point of its line
                    print(json.dumps({"error": f"{cell}, {n} agents, {form}: {str(e).splitlines()[0][:200]}"}), flush=True)
            torch.compiler.reset()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
