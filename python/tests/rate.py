"""Prints how many rows a second score_many decides: rate.py [AGENTS [ROWS]].

EXOSWARM_API and EXOSWARM_TOKEN_FILE name a server, as for the tests.
"""

import random
import sys
import time

import pandas as pd

import exoswarm


def main() -> None:
    agents = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    draw = random.Random(1)
    frame = pd.DataFrame(
        {
            "timestamp": pd.date_range("2026-01-01", periods=rows, freq="s"),
            "device": [f"device-{i % 50}" for i in range(rows)],
            "value": [draw.gauss(10, 1) for _ in range(rows)],
        }
    )
    detector = exoswarm.Detector(
        {
            "name": f"rate-{agents}-{time.time_ns()}",
            "cell": {"kind": "predictor"},
            "agents_per_group": agents,
            "key": "device",
            "max_entities": 50,
            "features": ["value"],
        }
    )
    try:
        begun = time.perf_counter()
        decisions = detector.score_many(frame)
        took = time.perf_counter() - begun
        print(f"{agents} agents, {len(decisions)} rows: {took:.2f} s, {len(decisions) / took:,.0f} rows/s")
    finally:
        detector.delete()


if __name__ == "__main__":
    main()
