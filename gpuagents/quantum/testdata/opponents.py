#!/usr/bin/env python3
"""What CuPy and PyTorch do for the circuits of BenchmarkCircuit, BenchmarkSample and BenchmarkSmall, on one GPU. CuPy
applies a gate in place by one ElementwiseKernel over the two halves of the state, a controlled phase by one over a
quarter of it, and samples by a running sum and a search. PyTorch applies a gate to a batch of small states by a product
of matrices, plain and compiled. A library that is missing is left out.

    python3 opponents.py [--qubits 29] [--circuits 100000] >>opponents.json

Writes a JSON object a line: name, qubits, ms (median device time of --reps runs). Each is checked: by a known state, or by
the norm."""

import argparse
import json
import math
import statistics
import sys

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--qubits", type=int, default=29)
ap.add_argument("--circuits", type=int, default=100_000)
ap.add_argument("--shots", type=int, default=1_000_000)
ap.add_argument("--reps", type=int, default=5)
args = ap.parse_args()


def tell(name, qubits, took):
    print(json.dumps({"name": name, "qubits": qubits, "ms": round(statistics.median(took), 3)}), flush=True)


def check(name, ok):
    if not ok:
        sys.exit(f"{name}: the result is wrong")


def with_cupy(cp):
    n = args.qubits
    pair = cp.ElementwiseKernel(
        "complex64 m00, complex64 m01, complex64 m10, complex64 m11", "complex64 a, complex64 b",
        "const complex<float> x = a, y = b; a = m00 * x + m01 * y; b = m10 * x + m11 * y;", "gate")
    turn = cp.ElementwiseKernel("complex64 m", "complex64 a", "a = m * a;", "phase")
    r = math.sqrt(0.5)

    def hadamard(psi, q):
        v = psi.reshape(-1, 2, 1 << q)
        pair(r, r, r, -r, v[:, 0], v[:, 1])

    def phase(psi, low, high, angle):
        v = psi.reshape(-1, 2, 1 << (high - low - 1), 2, 1 << low)
        turn(complex(math.cos(angle), math.sin(angle)), v[:, 1, :, 1])

    def qft(psi):
        for q in range(n - 1, -1, -1):
            hadamard(psi, q)
            for k in range(q - 1, -1, -1):
                phase(psi, k, q, math.pi / (1 << (q - k)))

    def timed(fn):
        took = []
        for i in range(args.reps + 1):
            a, b = cp.cuda.Event(), cp.cuda.Event()
            a.record()
            fn()
            b.record()
            b.synchronize()
            if i:
                took.append(cp.cuda.get_elapsed_time(a, b))
        return took

    psi = cp.zeros(1 << n, cp.complex64)
    psi[0] = 1
    qft(psi)
    check("cupy qft", float(cp.abs(psi - 2 ** (-n / 2)).max()) < 1e-5 * 2 ** (-n / 2) * 100)
    tell("cupy gate", n, timed(lambda: hadamard(psi, n - 1)))
    tell("cupy qft", n, timed(lambda: qft(psi)))
    check("cupy norm", abs(float(cp.linalg.norm(psi)) - 1) < 1e-3)

    def sample():
        p = psi.real ** 2 + psi.imag ** 2
        upto = cp.cumsum(p, dtype=cp.float64)
        return cp.searchsorted(upto, cp.random.random(args.shots) * upto[-1])

    check("cupy sample", int(sample().max()) < 1 << n)
    tell("cupy sample", n, timed(sample))


def with_torch(torch):
    n, gates, rows = 10, 100, args.circuits
    psi = torch.zeros(rows, 1 << n, dtype=torch.complex64, device="cuda")
    psi[:, 0] = 1
    angles = torch.rand(gates, rows, device="cuda") * 2 * math.pi
    c, s = torch.cos(angles / 2), torch.sin(angles / 2)
    ry = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2).to(torch.complex64)

    def circuit(state):
        for g in range(gates):
            q = g % n
            v = state.reshape(rows, -1, 2, 1 << q)
            if g % 10 < 7:
                m = ry[g].reshape(rows, 1, 2, 2)
                a = m[..., 0, 0, None] * v[:, :, 0] + m[..., 0, 1, None] * v[:, :, 1]
                b = m[..., 1, 0, None] * v[:, :, 0] + m[..., 1, 1, None] * v[:, :, 1]
                state = torch.stack([a, b], 2).reshape(rows, 1 << n)
            else:
                low, high = sorted((q, (q + 1) % n))
                v = state.reshape(rows, -1, 2, 1 << (high - low - 1), 2, 1 << low).clone()
                if q == high:  # the control
                    v[:, :, 1] = v[:, :, 1].flip(3)
                else:
                    v[:, :, :, :, 1] = v[:, :, :, :, 1].flip(2)
                state = v.reshape(rows, 1 << n)
        return state

    for name, fn in (("torch", circuit), ("torch compiled", torch.compile(circuit, dynamic=False))):
        took = []
        for i in range(args.reps + 2):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            out = fn(psi)
            b.record()
            torch.cuda.synchronize()
            if i > 1:
                took.append(a.elapsed_time(b))
        check(name, bool((torch.linalg.vector_norm(out, dim=1) - 1).abs().max() < 1e-3))
        tell(f"{name} batch of {rows}", n, took)


for library, run in (("cupy", with_cupy), ("torch", with_torch)):
    try:
        module = __import__(library)
    except ImportError:
        print(f"no {library}", file=sys.stderr)
        continue
    run(module)
