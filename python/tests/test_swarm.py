"""Swarms of addressed agents against a real server."""

import unittest

import exoswarm
from exoswarm.swarm import NEVER, NO_VOTE, read_snapshot

SPEC = """
name: py-neurons
addressed: agent
agents: 1000
agents_per_group: 100
shards: 2
page_size: 64KiB
cell: {kind: leaky, params: {decay: 0.9, threshold: 1}}
features: [current]
vote: {candidates: [quiet, spike], rule: majority}
"""

MINDS = """
name: py-minds
addressed: agent
agents: 1000
agents_per_group: 10
shards: 2
page_size: 64KiB
hear: [knowledge]
knowledge: {nodes: 4, units: 2, merge: max}
cell: {kind: gru, params: {hidden: 4}}
features: [a]
vote: {candidates: [no, yes]}
"""

ASKING = """
name: py-asking
addressed: agent
agents: 1000
agents_per_group: 10
shards: 2
page_size: 64KiB
cell: {kind: gru, embed: {rows: 20, width: 3}, items: 4}
features: [row]
vote: {candidates: [below, above]}
"""


class Swarms(unittest.TestCase):
    def test_items(self):
        with exoswarm.Swarm(ASKING) as swarm:
            self.assertNotIn("score", swarm.observe([7, 900], [1, 19]))
            got = swarm.observe([7, 900, 8], [1, 19, 0], [3, 0, -1])
            self.assertTrue(all(0 < score < 1 for score in list(got["score"])[:2]))
            self.assertNotEqual(got["score"][2], got["score"][2])
            with self.assertRaisesRegex(exoswarm.RequestError, "is for item 4: use 0 to 3"):
                swarm.observe([7], [1], [4])
            with self.assertRaisesRegex(exoswarm.RequestError, "the number of a row of cell.embed, 0 to 19"):
                swarm.observe([7], [20])
            with self.assertRaisesRegex(exoswarm.FrameError, "1 items for 2 agents"):
                swarm.observe([7, 8], [1, 2], [0])

    def test_knowledge(self):
        with exoswarm.Swarm(MINDS) as swarm:
            self.assertEqual([int(age) for age in swarm.knowledge([0, 3])["age"]], [NEVER, NEVER])
            self.assertEqual(swarm.learn([3, 0], [[0.5, -1], [0.25, 0]]), 2)
            self.assertEqual(swarm.learn([3], [[0.25, 1]]), 1)
            got = swarm.knowledge([0, 3])
            self.assertEqual([list(row) for row in got["units"]], [[0.25, 0], [0.5, 1]])
            self.assertEqual([int(n) for n in got["updates"]], [1, 2])
            swarm.tick(3)
            self.assertEqual([int(age) for age in swarm.knowledge([0, 3])["age"]], [0, 0])
            swarm.learn([1], [[-0.5, 0.5]], replace=True)
            self.assertEqual(list(swarm.knowledge([1])["units"][0]), [-0.5, 0.5])
            with self.assertRaisesRegex(exoswarm.FrameError, "from -1 to 1"):
                swarm.learn([1], [[0, float("nan")]])
            with self.assertRaisesRegex(exoswarm.RequestError, "node 4 of 4"):
                swarm.learn([4], [[0, 0]])
            with self.assertRaisesRegex(exoswarm.RequestError, "a node of swarm py-minds has 2 units"):
                swarm.learn([1], [[0]])

    def test_life(self):
        with exoswarm.Swarm(SPEC) as swarm:
            self.assertTrue(swarm.created)
            self.assertEqual((swarm.agents, swarm.groups, swarm.candidates), (1000, 10, ["quiet", "spike"]))
            got = swarm.observe([7, 8], [[1.5], [0.25]])
            self.assertEqual(list(got["agent"]), [7, 8])
            self.assertEqual(list(got["vote"]), [1, 0])
            states = swarm.query(agents=[8, 9])
            self.assertEqual(list(states["state"][0])[0], 0.25)
            self.assertEqual(list(states["vote"]), [0, NO_VOTE])
            self.assertEqual(swarm.tick(3), {"quiet": 999, "spike": 1})
            groups = swarm.query(groups=[0])
            self.assertEqual(list(groups["counts"][0]), [99, 1])
            vote = swarm.vote("majority")
            self.assertEqual((vote.decision, vote.counts, vote.abstentions), ("quiet", (999, 1), 0))
            with self.assertRaisesRegex(exoswarm.RequestError, "round") as caught:
                swarm.vote(round=vote.round)
            self.assertEqual(caught.exception.status, 409)
            nodes = swarm.fuse("group", 5)
            self.assertEqual(list(nodes["count"]), [200] * 5)
            self.assertEqual(tuple(nodes["mean"].shape), (5, 1))
            arrays = swarm.snapshot("py-kept")
            self.assertEqual(tuple(arrays["potential"].shape), (1000, 1))
            part = read_snapshot("py-kept-shard1")
            self.assertEqual(len(part["potential"]), 500)
            swarm.observe([0], [5])
            self.assertNotEqual(list(swarm.query(agents=[8])["state"][0])[0], 0)
            swarm.reset()
            self.assertEqual(list(swarm.query(agents=[8])["state"][0])[0], 0)
            self.assertFalse(exoswarm.Swarm(SPEC).created)
        with self.assertRaises(exoswarm.NotFoundError):
            swarm.tick()

    def test_mistakes(self):
        with exoswarm.Swarm(SPEC, name="py-mistakes") as swarm:
            with self.assertRaisesRegex(exoswarm.FrameError, "2 rows of inputs for 1 agents"):
                swarm.observe([1], [1, 2])
            with self.assertRaisesRegex(exoswarm.FrameError, "row 1 of the inputs has 2 values: use 1"):
                swarm.observe([1], [[1, 2]])
            with self.assertRaisesRegex(exoswarm.RequestError, "1000"):
                swarm.observe([1000], [1])
            with self.assertRaisesRegex(exoswarm.RequestError, "count 0: use 1"):
                swarm.tick(0)
            with self.assertRaisesRegex(exoswarm.RequestError, "unanimous"):
                swarm.vote("loudest")
            with self.assertRaisesRegex(exoswarm.RequestError, "1 to"):
                swarm.query(agents=[])
            with self.assertRaisesRegex(exoswarm.SpecError, "agents are addressed"):
                exoswarm.Detector(SPEC, name="py-mistakes")
        with self.assertRaises(exoswarm.NotFoundError):
            read_snapshot("py-nothing")
