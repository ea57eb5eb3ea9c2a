"""What PyTorch does for a round of votes, from the host's call until the winner is in host memory, against the number of
ballots: the compiled sum of comparisons with each candidate, and bincount. It elects no leader, checks no quorum and closes no
round. Needs PyTorch 2 with CUDA.

    python3 tally.py >>opponents.json

Writes a JSON object a line: name, n, us (median wall time), p99. Use --quick for 100 rounds a case in place of 1,000, and
--groups for rounds of 100 to ten million groups of 64 ballots, until the number of their winners' ballots is on the host."""

import argparse
import json
import time

import torch

CANDIDATES = 5


def compared(ballots):
    counts = torch.stack([(ballots == c).sum() for c in range(CANDIDATES)])
    return torch.cat([counts.argmax().reshape(1), counts])


def counted(ballots):
    counts = torch.bincount(ballots, minlength=CANDIDATES)
    return torch.cat([counts.argmax().reshape(1), counts])


def grouped(ballots):
    counts = torch.stack([(ballots == c).sum(1, dtype=torch.int32) for c in range(CANDIDATES)], 1)
    most, winner = counts.max(1)
    return winner.to(torch.int32), most.sum()


def groups(rounds):
    compiled = torch.compile(grouped, mode="max-autotune", dynamic=False)
    for n in (10**2, 10**3, 10**4, 10**5, 10**6, 10**7):
        ballots = torch.randint(0, CANDIDATES, (n, 64), dtype=torch.uint8, device="cuda")
        took = []
        for i in range(rounds + 20):
            start = time.perf_counter()
            _, total = compiled(ballots)
            total.item()  # waits for the device
            if i >= 20:
                took.append((time.perf_counter() - start) * 1e6)
        took.sort()
        line = {"name": "torch.compile groups", "n": n, "us": round(took[len(took) // 2], 2), "p99": round(took[len(took) * 99 // 100], 2)}
        print(json.dumps(line), flush=True)


def measure(name, n, decide, copies, need, rounds):
    took = []
    for i in range(rounds + 20):
        start = time.perf_counter()
        result = decide(copies[i % len(copies)]).tolist()  # waits for the device
        if i >= 20:
            took.append((time.perf_counter() - start) * 1e6)
    if result[1:] != need:
        raise SystemExit(f"{name}, {n} ballots: {result[1:]}, want {need}")
    took.sort()
    print(json.dumps({"name": name, "n": n, "us": round(took[len(took) // 2], 2), "p99": round(took[len(took) * 99 // 100], 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--groups", action="store_true")
    args = parser.parse_args()
    rounds = 100 if args.quick else 1000
    torch.manual_seed(7)
    torch._dynamo.config.cache_size_limit = 64
    if args.groups:
        groups(rounds)
        return
    # With CUDA graphs, which copy their result: the strongest form for small electorates, whose time goes to launches.
    compiled = torch.compile(compared, mode="reduce-overhead", dynamic=False)
    for n in (10**3, 3 * 10**3, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8):
        copies = [torch.randint(0, CANDIDATES, (n,), dtype=torch.uint8, device="cuda") for _ in range(2 if n >= 10**8 else 1)]
        copies = copies[:1] + [copies[0].clone() for _ in copies[1:]]
        need = [(copies[0] == c).sum().item() for c in range(CANDIDATES)]
        measure("torch.compile", n, compiled, copies, need, rounds)
        measure("torch.bincount", n, counted, copies, need, max(rounds // 10, 20) if n >= 10**7 else rounds)


if __name__ == "__main__":
    main()
