"""Workers against a real server."""

import os
import threading
import unittest

import exoswarm


class Words(exoswarm.Worker):
    """Counts words, and fails in the ways that a test asks for."""

    kind = "py-words"
    tries = 0

    def work(self, job):
        job.progress({"half": True})
        if job.spec == "again":
            self.tries += 1
            if self.tries == 1:
                raise exoswarm.Retry("not yet")
        if job.spec is None:
            raise ValueError("there is no text")
        return {"words": len(job.spec.split())}


class Workers(unittest.TestCase):
    def test_jobs(self):
        ids = [exoswarm.submit("py-words", "one two", id="py-one"), exoswarm.submit("py-words")]
        self.assertEqual(exoswarm.submit("py-words", "one two", id="py-one"), "py-one")
        worker = Words()
        thread = threading.Thread(target=worker.run, args=(2,))
        thread.start()
        try:
            self.assertEqual(exoswarm.result(ids[0], 30), {"words": 2})
            with self.assertRaisesRegex(exoswarm.JobFailed, "ValueError: there is no text .*test_worker.py, line"):
                exoswarm.result(ids[1], 30)
        finally:
            worker.stop()
            thread.join()

    @unittest.skipUnless(os.environ.get("EXOSWARM_LONG"), "the queue pauses for a second before the second attempt")
    def test_retry(self):
        id = exoswarm.submit("py-words", "again")
        worker = Words()
        thread = threading.Thread(target=worker.run, args=(2,))
        thread.start()
        try:
            self.assertEqual(exoswarm.result(id, 30), {"words": 1})
            self.assertEqual(worker.tries, 2)
        finally:
            worker.stop()
            thread.join()

    def test_mistakes(self):
        class Stream(Words):
            kind = "stream"

        with self.assertRaisesRegex(exoswarm.RequestError, "kind stream is one of the agents of the cluster"):
            Stream().run()
        with self.assertRaisesRegex(exoswarm.RequestError, "kind kernel"):
            exoswarm.submit("kernel", {})
        with self.assertRaises(TimeoutError):
            exoswarm.result("py-never", 0)
