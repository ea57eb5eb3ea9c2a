"""Errors of the connection, each with its cure."""

import http.server
import json
import threading
import unittest

import exoswarm
from exoswarm import Client


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that answers everything with one text."""

    def do_GET(self):  # pylint: disable=invalid-name
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Connections(unittest.TestCase):
    def answering(self, status, body):
        server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
        server.answer = (status, body.encode())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def end():
            server.shutdown()
            thread.join()
            server.server_close()

        self.addCleanup(end)
        client = Client(f"http://127.0.0.1:{server.server_port}", "token")
        self.addCleanup(client.close)
        return client

    def test_versions(self):
        for about, want in (
            ({"programs": 2, "version": "v9"}, "version v9.*version 2.*package version 1: update this package"),
            ({"version": "v0"}, "--programs"),
        ):
            with self.assertRaisesRegex(exoswarm.VersionError, want):
                self.answering(200, json.dumps(about)).check()
        for status, body in ((200, "<html>"), (404, "no")):
            with self.assertRaisesRegex(exoswarm.VersionError, "not one of Exoswarm"):
                self.answering(status, body).check()

    def test_nobody_answers(self):
        with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
            port = server.server_port
        with self.assertRaisesRegex(exoswarm.UnreachableError, "exoswarm serve --programs"):
            exoswarm.Detector({"name": "x"}, client=Client(f"http://127.0.0.1:{port}", "token"))
        with self.assertRaisesRegex(exoswarm.UnreachableError, "http://HOST:PORT"):
            Client("127.0.0.1:8228")

    def test_tokens(self):
        url = exoswarm._client.default().url
        for token in ("wrong", ""):
            client = Client(url, "x")
            client._token = token
            self.addCleanup(client.close)
            with self.assertRaisesRegex(exoswarm.LoginError, "EXOSWARM_TOKEN_FILE"):
                exoswarm.Detector({"name": "x"}, client=client)

    def test_names(self):
        with self.assertRaisesRegex(exoswarm.NotFoundError, "nobody"):
            exoswarm._client.default().call("POST", "swarms/nobody/tick", {"count": 1})
