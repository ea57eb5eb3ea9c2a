#!/usr/bin/env python3
"""A CPU agent in Python, written from docs/protocol.md with the standard library alone.

It does jobs of one kind: "words" counts the words of {"text": "..."}. Put your own function in the place of words().

    exoswarm nats --data-dir /tmp/nats &
    python3 examples/python/worker.py --nats 127.0.0.1:4222 &
    exoswarm submit --kind words --spec '{"text": "to be or not to be"}' --wait

What it leaves out: TLS and logins other than a token or user and password, specs over 512 KiB (spec_ref), and tenants with limits,
whose jobs it leaves to other workers.
"""

import argparse
import base64
import collections
import datetime
import json
import queue
import signal
import socket
import sys
import threading
import time
import urllib.parse

VERSION = 1
POOL = "cpu"
LANES = ("high", "normal", "low")
STREAM = "EXO_JOBS_CPU"
TIMEOUT = 10  # seconds for an answer of the server
BEAT = 5  # seconds between in-progress acks; the lease is 15
EMPTY, MISSING, RATHER_LATER = 404, 10037, 10077


class JobError(Exception):
    """A job that fails for good: a code of the protocol and one sentence."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Retry(Exception):
    """The same job may succeed later."""


class Closed(Exception):
    """The connection is gone."""


Message = collections.namedtuple("Message", "subject reply header data")


class Nats:
    """A connection. Its methods may be called from several threads."""

    def __init__(self, url):
        u = urllib.parse.urlsplit(url if "://" in url else "nats://" + url)
        self.sock = socket.create_connection((u.hostname, u.port or 4222), timeout=TIMEOUT)
        # Several small writes in turn would each wait for the acknowledgement of the one before (RFC 896).
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")
        self.lock = threading.Lock()
        self.waiting = {}  # by subscription: the queue of its messages
        self.next = 0
        if not self.file.readline().startswith(b"INFO "):
            raise Closed("it is no NATS server")
        login = {"user": u.username, "pass": u.password} if u.password else {"auth_token": u.username} if u.username else {}
        self.inbox = "_INBOX.py%x" % time.time_ns()
        self.send("CONNECT", json.dumps({"verbose": False, "headers": True, "no_responders": True, "name": "worker.py", **login}))
        self.send("PING")
        line = self.file.readline()
        while line.startswith((b"INFO ", b"PING")):
            line = self.file.readline()
        if not line.startswith(b"PONG"):
            raise Closed(line.decode(errors="replace").strip())
        self.sock.settimeout(None)
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, *parts, payload=b""):
        data = " ".join(parts).encode() + b"\r\n" + payload
        with self.lock:
            try:
                self.sock.sendall(data)
            except OSError as e:
                raise Closed(str(e)) from e

    def publish(self, subject, data=b"", reply="", header=None):
        if header is None:
            self.send("PUB", subject, reply, str(len(data)), payload=data + b"\r\n")
            return
        head = b"NATS/1.0\r\n" + b"".join(b"%s: %s\r\n" % (k.encode(), v.encode()) for k, v in header.items()) + b"\r\n"
        self.send("HPUB", subject, reply, str(len(head)), str(len(head) + len(data)), payload=head + data + b"\r\n")

    def read(self):
        """Hands messages to the callers that wait for them until the connection ends."""
        try:
            while True:
                line = self.file.readline()
                if not line:
                    break
                word, *args = line.decode().split()
                if word == "PING":
                    self.send("PONG")
                elif word in ("MSG", "HMSG"):
                    total = int(args[-1])
                    head = int(args[-2]) if word == "HMSG" else 0
                    body = self.file.read(total + 2)[:total]
                    reply = args[2] if len(args) > 3 + (word == "HMSG") else ""
                    box = self.waiting.get(args[1])  # a job comes under its own subject
                    if box:
                        box.put(Message(args[0], reply, body[:head].decode(errors="replace"), body[head:]))
        except (OSError, ValueError, Closed):
            pass
        for box in list(self.waiting.values()):
            box.put(None)

    def request(self, subject, data=b"", header=None, timeout=TIMEOUT):
        """The first answer, or None when there is none in time."""
        with self.lock:
            self.next += 1
            sid = str(self.next)
        inbox = "%s.%s" % (self.inbox, sid)
        box = self.waiting[sid] = queue.Queue()
        self.send("SUB", inbox, sid)
        try:
            self.publish(subject, data, inbox, header)
            try:
                answer = box.get(timeout=timeout)
            except queue.Empty:
                return None
            if answer is None:
                raise Closed("the server has gone")
            return answer
        finally:
            del self.waiting[sid]
            self.send("UNSUB", sid)

    def api(self, subject, **body):
        """Asks JetStream, and returns its answer as a dict."""
        for _ in range(5):
            answer = self.request("$JS.API." + subject, json.dumps(body).encode() if body else b"")
            if answer is not None and answer.data:
                return json.loads(answer.data)
            time.sleep(0.2)  # no leader for the moment
        raise Closed("JetStream does not answer")

    def last(self, stream, subject):
        """The last message of a subject as (header, data), or None."""
        got = self.api("STREAM.MSG.GET." + stream, last_by_subj=subject)
        if "error" in got:
            if got["error"].get("err_code") == MISSING:
                return None
            raise Closed(got["error"]["description"])
        m = got["message"]
        return base64.b64decode(m.get("hdrs", "")).decode(), base64.b64decode(m.get("data", ""))

    def key(self, bucket, key):
        """The value of a key, or None."""
        got = self.last("KV_" + bucket, "$KV.%s.%s" % (bucket, key))
        return None if got is None or "KV-Operation" in got[0] else got[1]

    def store(self, subject, data, header):
        """Publishes into a stream and waits for its acknowledgement. It returns the code of an error, or 0."""
        for _ in range(5):
            answer = self.request(subject, data, header)
            if answer is not None and answer.data:
                return json.loads(answer.data).get("error", {}).get("err_code", 0)
            time.sleep(0.2)
        raise Closed("JetStream does not answer")


def words(spec):
    """The work: counts the words of a text."""
    if not isinstance(spec, dict) or not isinstance(spec.get("text"), str):
        raise JobError("invalid", 'write {"text": "..."}')
    return dict(sorted(collections.Counter(spec["text"].lower().split()).items()))


class Worker:
    """Does jobs of one kind and tenant, one at a time, the high lane first."""

    def __init__(self, nats, kind, do, name, tenant="default"):
        self.nats, self.kind, self.do, self.name, self.tenant = nats, kind, do, name, tenant
        self.stop = threading.Event()

    def subject(self, lane, job_id):
        return "exo.job.%s.%s.%s.%s.%s" % (POOL, self.kind, lane, self.tenant, job_id)

    def consumer(self, lane):
        return "%s+%s+%s" % (self.kind, lane, self.tenant)

    def prepare(self):
        """Makes the consumers that are missing, exactly as every other worker does."""
        for lane in LANES:
            name = self.consumer(lane)
            got = self.nats.api("CONSUMER.INFO.%s.%s" % (STREAM, name))
            if "error" not in got:
                continue
            config = {
                "durable_name": name, "ack_policy": "explicit", "ack_wait": 15_000_000_000, "max_deliver": -1,
                "filter_subject": self.subject(lane, "*"), "max_ack_pending": 50_000, "max_waiting": 512,
                "inactive_threshold": 3_600_000_000_000,
            }
            got = self.nats.api("CONSUMER.DURABLE.CREATE.%s.%s" % (STREAM, name), stream_name=STREAM, config=config)
            if "error" in got:
                raise Closed(got["error"]["description"])

    def held(self):
        """Whether an operator has paused the kind, or the tenant has limits, which this worker does not keep accounts for."""
        for key in ("pause." + POOL, "pause.%s.%s" % (POOL, self.kind)):
            if self.nats.key("EXO_CONTROL", key) is not None:
                return True
        limits = {}
        for key in ("tenant", "tenant." + self.tenant):
            limits.update(json.loads(self.nats.key("EXO_CONTROL", key) or b"{}"))
        return bool(limits.get("concurrency") or limits.get("rate"))

    def announce(self):
        """Tells operators that the kind is served. The registry forgets an agent after ten seconds."""
        key = "".join(c if c.isalnum() and c.isascii() or c in "_-" else "_" for c in self.name[-64:])
        now = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        about = {"v": VERSION, "name": self.name, "pool": POOL, "kinds": [self.kind], "concurrency": 1, "running": 0, "state": "serving", "started": now}
        while not self.stop.is_set():
            try:
                self.nats.store("$KV.EXO_AGENTS." + key, json.dumps(about).encode(), {})
            except Closed:
                return
            self.stop.wait(3)

    def run(self):
        self.prepare()
        threading.Thread(target=self.announce, daemon=True).start()
        print("ready", flush=True)
        while not self.stop.is_set():
            if self.held():
                self.stop.wait(1)
                continue
            if not any(self.fetch(lane) for lane in LANES):
                self.stop.wait(0.1)

    def fetch(self, lane):
        """Does one job of a lane, if there is one."""
        ask = json.dumps({"batch": 1, "no_wait": True}).encode()
        m = self.nats.request("$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (STREAM, self.consumer(lane)), ask)
        if m is not None and m.header.startswith("NATS/1.0 503"):
            self.prepare()  # the server has removed a consumer that was not asked for an hour
            return False
        if m is None or m.header.startswith("NATS/1.0 ") and not m.reply.startswith("$JS.ACK."):
            return False
        over = threading.Event()
        beat = threading.Thread(target=self.beat, args=(m.reply, over), daemon=True)
        beat.start()
        try:
            self.job(m, lane)
        finally:
            over.set()
            beat.join()
        return True

    def beat(self, reply, over):
        while not over.wait(BEAT):
            try:
                self.nats.publish(reply, b"+WPI")
            except Closed:
                return

    def job(self, m, lane):
        """Does a job, stores its result, and takes it out of the queue."""
        # $JS.ACK.<stream>.<consumer>.<delivered>..., with a domain and an account in front of the stream on some servers.
        tokens = m.reply.split(".")
        attempt = int(tokens[4] if len(tokens) == 9 else tokens[6])
        job_id = m.subject.split(".")[-1] if m.subject.startswith("exo.job.") else ""
        job, result = {}, {"v": VERSION, "job": job_id, "kind": self.kind, "attempts": attempt, "worker": self.name}
        if attempt > 1 and self.nats.last("EXO_RESULTS", "exo.res." + job_id) is not None:
            self.nats.publish(m.reply, b"+ACK")  # somebody has done it
            return
        try:
            job = self.parse(m, lane, job_id)
            if attempt > job.get("max_attempts", 5):
                raise JobError("internal", "job %s: tried %d times without a result" % (job_id, attempt - 1))
            if self.nats.key("EXO_CANCEL", job_id) is not None:
                raise JobError("canceled", "job was cancelled")
            result.update(status="done", output=self.do(job.get("spec")))
        except Retry as e:
            if attempt < job.get("max_attempts", 5):
                self.nats.publish(m.reply, b"-NAK " + json.dumps({"delay": min(2**attempt, 60) * 10**9}).encode())
                return
            result.update(status="failed", error={"code": "io", "message": str(e)})
        except JobError as e:
            result.update(status="failed", error={"code": e.code, "message": str(e)})
        except Closed:
            raise
        except Exception as e:  # pylint: disable=broad-except  # one bad job does not end the worker
            result.update(status="failed", error={"code": "internal", "message": "%s: %s" % (type(e).__name__, e)})
        result["finished"] = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        ttl = job.get("result_ttl_s") or 86400
        code = self.nats.store("exo.res." + job_id, json.dumps(result).encode(), {"Nats-TTL": "%ds" % ttl})
        if code not in (0, RATHER_LATER):  # another one may have been first: fine
            raise Closed("the result of job %s was refused: %d" % (job_id, code))
        error = result.get("error")
        if code == 0 and error and error["code"] not in ("canceled", "deadline"):
            reason = " ".join(error["message"].split())[:1000].encode("ascii", "replace").decode()
            header = {"Exo-Code": error["code"], "Exo-Reason": reason, "Exo-Attempts": str(attempt), "Exo-Worker": self.name}
            self.nats.store("exo.dead.%s.%s.%s.%s" % (POOL, self.kind, self.tenant, job_id), m.data, header)
        self.nats.publish(m.reply, b"+ACK")

    def parse(self, m, lane, job_id):
        """The job of a message, or why it is none."""
        try:
            job = json.loads(m.data)
        except ValueError as e:
            raise JobError("invalid", "job %s: it is not JSON: %s" % (job_id, e)) from e
        if not isinstance(job, dict):
            raise JobError("invalid", "job %s: it is not an object" % job_id)
        if job.get("v") != VERSION:
            raise JobError("version", "job %s: its version is %r, this worker speaks %d" % (job_id, job.get("v"), VERSION))
        says = {"id": job_id, "pool": POOL, "kind": self.kind, "lane": lane, "tenant": self.tenant}
        for field, value in says.items():
            if job.get(field, {"lane": "normal", "tenant": "default"}.get(field)) != value:
                raise JobError("invalid", "job %s: %s is %r, its subject says %r" % (job_id, field, job.get(field), value))
        if "spec_ref" in job:
            raise JobError("invalid", "job %s: its spec is an object, which this worker does not read" % job_id)
        deadline = job.get("deadline")
        if deadline and datetime.datetime.fromisoformat(deadline.replace("Z", "+00:00")) < datetime.datetime.now(datetime.timezone.utc):
            raise JobError("deadline", "job %s was not done by %s" % (job_id, deadline))
        return job


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--nats", default="127.0.0.1:4222", help="HOST:PORT or nats://TOKEN@HOST:PORT")
    p.add_argument("--name", default="worker.py-" + socket.gethostname().split(".")[0])
    a = p.parse_args()
    try:
        worker = Worker(Nats(a.nats), "words", words, a.name)
        for s in (signal.SIGTERM, signal.SIGINT):
            signal.signal(s, lambda *_: worker.stop.set())
        worker.run()
    except (Closed, OSError) as e:
        sys.exit("worker.py: %s" % e)


if __name__ == "__main__":
    main()
