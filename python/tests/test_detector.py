"""Detectors against a real server."""

import collections
import csv
import datetime
import json
import math
import os
import struct
import time
import unittest

import exoswarm
from exoswarm import _arrays

DATA = os.environ.get("EXOSWARM_TEST_DATA", "")
SPEC = {"name": "tested", "key": "device", "agents_per_group": 16, "features": ["value", "load"]}


def bits(value):
    """Return a float of 32 bits as its bits."""
    return struct.pack("<f", value)


@unittest.skipUnless(DATA, "EXOSWARM_TEST_DATA is not set: go test ./cmd/exoswarm -run TestPython sets it")
class AsCommandLine(unittest.TestCase):
    """The decisions equal the decisions of exoswarm run on the same rows, which the test in Go has stored."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(DATA, "rows.csv"), encoding="utf-8") as file:
            cls.text = file.read()
        with open(os.path.join(DATA, "decisions.ndjson"), "rb") as file:
            cls.lines = file.read().splitlines()
        with open(os.path.join(DATA, "spec.yaml"), encoding="utf-8") as file:
            cls.spec = file.read()

    def of_entities(self, lines):
        out = collections.defaultdict(list)
        for line in lines:
            out[json.loads(line)["device"]].append(line)
        return out

    def test_text_has_the_same_bytes(self):
        detector = exoswarm.Detector(self.spec, name="as-text")
        self.addCleanup(detector.delete)
        got = detector.score_text(self.text).splitlines()
        self.assertEqual(len(got), len(self.lines))
        self.assertEqual(self.of_entities(got), self.of_entities(self.lines))

    def test_frames_have_the_same_bits(self):
        rows = list(csv.DictReader(self.text.splitlines()))
        frame = {name: [r[name] for r in rows] for name in ("timestamp", "device")}
        frame["value"] = [float(r["value"]) for r in rows]
        detector = exoswarm.Detector(self.spec, name="as-frame")
        self.addCleanup(detector.delete)
        got = collections.defaultdict(list)
        for decision in detector.score_many(frame):
            got[decision.entity].append(decision)
        anomalies = 0
        for entity, lines in self.of_entities(self.lines).items():
            self.assertEqual(len(lines), len(got[entity]))
            for line, decision in zip(map(json.loads, lines), got[entity]):
                self.assertEqual(bits(line["score"]), bits(decision.score))
                self.assertEqual(line["decision"], decision.decision)
                self.assertEqual(line["leader"], decision.leader)
                self.assertEqual(line["round"], decision.round)
                self.assertEqual(list(line["counts"].values()), list(decision.counts))
                anomalies += decision.anomalous
        self.assertGreater(anomalies, 0)


class Detectors(unittest.TestCase):
    """What a detector does with rows, good and bad."""

    def detector(self, **changes):
        spec = {**SPEC, "name": "t-" + self.id().rsplit(".", 1)[-1].replace("_", "-"), **changes}
        detector = exoswarm.Detector(spec)
        self.addCleanup(detector.delete)
        return detector

    def test_explanations(self):
        detector = self.detector(explain=True)
        values = [math.sin(i / 7) + 0.01 * (i % 5) for i in range(600)]
        values[500:504] = [9.0] * 4
        frame = {"timestamp": list(range(600)), "device": ["a"] * 600, "value": values, "load": [0.1 * (i % 3) for i in range(600)]}
        decisions = detector.score_many(frame)
        self.assertTrue(decisions.explained)
        self.assertIsNone(decisions.why(300))
        self.assertEqual(len(decisions.expected), 1200)
        self.assertLess(abs(float(decisions.expected[2 * 300]) - values[300]), 0.5)
        worst = decisions.incidents()[0]
        self.assertEqual((worst.why.feature, worst.why.side, worst.why.before), ("value", "above", 0))
        self.assertIn(worst.why.kind, ("point", "level"))
        self.assertLess(worst.why.high, 9)
        self.assertIn("of value above", str(worst))
        self.assertEqual(decisions[500].why.feature, "value")
        columns = decisions.to_dict()
        self.assertEqual(columns["feature"][500], "value")
        self.assertEqual(columns["kind"][300], "")
        self.assertEqual(columns["expected_load"][300], float(decisions.expected[2 * 300 + 1]))
        self.assertIn("of value above", decisions._repr_html_())

    def test_without_explanations(self):
        decisions = self.detector().score_many({"timestamp": [1, 2], "device": ["a", "b"], "value": [1, 2], "load": [1, 2]})
        self.assertFalse(decisions.explained)
        self.assertIsNone(decisions[0].why)
        self.assertNotIn("kind", decisions.to_dict())

    def test_explanations_of_rejected_rows(self):
        decisions = self.detector(explain=True).score_many(
            {"timestamp": list(range(50)), "device": ["a"] * 50, "value": [1.0] * 20 + [math.nan] + [1.0] * 29, "load": [1.0] * 50}
        )
        self.assertEqual(decisions.rejected, 1)
        self.assertTrue(math.isnan(decisions.expected[2 * 20]))
        self.assertEqual(float(decisions.expected[2 * 49]), 1.0)

    def test_one_row_at_a_time(self):
        detector = self.detector(observations={"duplicate": "drop"})
        first = detector.learn_one("a", "2026-01-01 00:00:00", [1, 2])
        self.assertEqual((first.entity, first.decision, first.round), ("a", "normal", 1))
        zone = datetime.timezone(datetime.timedelta(hours=1))
        second = detector.learn_one("a", datetime.datetime(2026, 1, 1, 1, 0, 1, tzinfo=zone), {"load": 2, "value": 1})
        self.assertEqual(second.round, 2)
        self.assertEqual(second.time - first.time, 10**9)
        again = detector.learn_one("a", 1767225601, [1, 2])
        self.assertEqual((again.dropped, again.decision), ("duplicate", "none"))
        self.assertEqual(detector.learn_one("b", 1767225601, [1, 2]).round, 1)

    def test_a_program_goes_on_where_it_ended(self):
        detector = self.detector()
        detector.learn_one("a", 1, [1, 2])
        detector.learn_one("b", 1, [1, 2])
        other = exoswarm.Detector({**SPEC, "name": detector.name})
        self.assertEqual(other.learn_one("b", 2, [1, 2]).round, 2)
        other.fit_predict({"timestamp": [1], "device": ["b"], "value": [1], "load": [2]})
        self.assertEqual(detector.learn_one("b", 2, [1, 2]).round, 2)

    def test_kinds_of_frames(self):
        rows = [{"timestamp": 1767225600 + i, "device": i % 3, "value": math.sin(i), "load": i} for i in range(90)]
        columns = {name: [r[name] for r in rows] for name in rows[0]}
        frames = [iter(rows), columns]
        try:
            import pandas

            frames.append(pandas.DataFrame(columns))
            timed = pandas.DataFrame(columns)
            timed["timestamp"] = pandas.to_datetime(timed["timestamp"], unit="s", utc=True)
            frames += [timed, timed.set_index("timestamp")]
        except ImportError:
            pass
        try:
            import pyarrow

            frames.append(pyarrow.table(columns))
        except ImportError:
            pass
        want = None
        for frame in frames:
            got = exoswarm.fit_predict(SPEC, frame)
            self.assertEqual(got.entities(), ["0", "1", "2"])
            values = [(d.entity, d.time, bits(d.score), d.decision, d.leader, d.round) for d in got]
            want = want or values
            self.assertEqual(values, want)

    def test_rows_that_cannot_be_used(self):
        detector = self.detector(max_entities=2)
        got = detector.score_many({
            "timestamp": [1, 2, 3, 4], "device": ["a", "b", "c", "a"], "value": [1, None, 1, 2], "load": [0, 0, 0, 0],
        })
        self.assertEqual((got.rejected, [r["row"] for r in got.rejects]), (1, [2]))
        self.assertIn("NaN", got.rejects[0]["reason"])
        self.assertEqual([d.decision for d in got], ["normal", "none", "normal", "normal"])
        self.assertEqual([d.round for d in got], [1, 0, 1, 2])
        got = detector.score_many({"timestamp": [5], "device": ["d"], "value": [1], "load": [0]})
        self.assertIn("max_entities", got.rejects[0]["reason"])
        with self.assertRaisesRegex(exoswarm.FrameError, "max_entities"):
            detector.learn_one("d", 6, [1, 2])

    def test_wrong_frames(self):
        detector = self.detector()
        good = {"timestamp": [1], "device": ["a"], "value": [1], "load": [0]}
        for change, want in (
            ({"value": None}, "no column 'value'"),
            ({"value": ["high"]}, "column 'value', row 1: 'high' is not a number"),
            ({"timestamp": ["yesterday"]}, "column 'timestamp', row 1: 'yesterday' is not a time"),
            ({"device": [1.5]}, "column 'device', row 1: 1.5 is not a text"),
            ({"load": [0, 1]}, "different lengths"),
            ({"load": "0"}, "column 'load' is a str"),
        ):
            frame = {name: v for name, v in {**good, **change}.items() if v is not None}
            with self.assertRaisesRegex(exoswarm.FrameError, want):
                detector.score_many(frame)
        with self.assertRaisesRegex(exoswarm.FrameError, "did you mean 'valu'"):
            detector.score_many({"timestamp": [1], "device": ["a"], "valu": [1], "load": [0]})
        with self.assertRaisesRegex(exoswarm.FrameError, "DataFrame"):
            detector.score_many(7)
        with self.assertRaisesRegex(exoswarm.FrameError, "1 values for the features value, load"):
            detector.learn_one("a", 1, 1.0)
        with self.assertRaisesRegex(exoswarm.FrameError, "2 values for the key, which is device"):
            detector.learn_one(("a", "b"), 1, [1, 2])

    def test_wrong_specifications(self):
        for spec, want in (
            ({"name": "x", "fetaures": ["value"]}, "features"),
            ({"name": "x", "key": "value", "features": ["value"]}, "value"),
            ({"name": "x", "max_entities": 3}, "max_entities"),
            ("missing.yaml", "missing.yaml"),
            (7, "int"),
        ):
            with self.assertRaisesRegex(exoswarm.SpecError, want):
                exoswarm.Detector(spec)
        detector = self.detector()
        with self.assertRaisesRegex(exoswarm.SpecError, "agents_per_group"):
            exoswarm.Detector({**SPEC, "name": detector.name, "agents_per_group": 32})

    def test_incidents_and_charts(self):
        n, frame = 400, {"timestamp": [], "device": [], "value": [], "load": []}
        for i in range(n):
            for device in ("<good>", "bad"):
                frame["timestamp"].append(1767225600 + 60 * i)
                frame["device"].append(device)
                frame["value"].append(math.sin(i / 5) + (50 if device == "bad" and i == 350 else 0))
                frame["load"].append(1 + 0.01 * math.cos(i))
        got = exoswarm.fit_predict(SPEC, frame)
        worst = got.incidents()[0]
        self.assertEqual((worst.entity, worst.begin), ("bad", (1767225600 + 60 * 350) * 10**9))
        self.assertGreater(worst.values["value"], 40)
        self.assertIn("bad: 2026-01-01T05:50:00Z", str(worst))
        page = got._repr_html_()
        self.assertIn('<rect class="incident"', page)
        self.assertIn("<td>bad</td>", page)
        svg = got.chart("<good>").svg()
        self.assertIn("&lt;good&gt;", svg)
        self.assertNotIn("<good>", svg)
        self.assertEqual(len(got.to_dict()["score"]), 2 * n)
        swapped = dict(SPEC, features=["load", "value"], explain=True)
        self.assertEqual(exoswarm.fit_predict(swapped, frame).chart().title, "bad value")  # the one at fault

    def test_rate(self):
        bar = float(os.environ.get("EXOSWARM_TEST_RATE", "0"))
        n = 200_000 if bar else 20_000
        frame = {
            "timestamp": [1767225600 + i // 100 for i in range(n)],
            "device": [i % 100 for i in range(n)],
            "value": [float(i * 7919 % 101) for i in range(n)],
        }
        detector = self.detector(features=["value"])
        detector.score_many({name: values[:100] for name, values in frame.items()})
        began = time.monotonic()
        got = detector.score_many({name: values[100:] for name, values in frame.items()})
        rate = len(got) / (time.monotonic() - began)
        print(f"score_many: {rate:.0f} rows/s, NumPy: {_arrays.have_numpy()}")
        self.assertEqual(got.rejected, 0)
        self.assertGreater(rate, bar)


if __name__ == "__main__":
    unittest.main()
