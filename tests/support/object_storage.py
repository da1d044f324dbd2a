"""An S3 server on this machine, and a proxy before it that makes faults."""

import contextlib
import http.client
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

BUCKET = "bucket"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Nothing of the machine's own configuration.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
_START_SECONDS = 600


class S3Server:
    """moto's server in a process of its own, on a free port of the loopback interface.

    Attributes
    ----------
    endpoint : str
        Its URL.
    """

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.endpoint = self._wait_for_address()
        # Else the pipe fills, and the server waits.
        self._reader = threading.Thread(target=self._process.stdout.read, daemon=True)
        self._reader.start()
        self._client.create_bucket(Bucket=BUCKET)

    def _wait_for_address(self):
        stop = threading.Timer(_START_SECONDS, self._process.kill)
        stop.start()
        try:
            lines = []
            for line in self._process.stdout:
                lines.append(line)
                address = re.search(r"http://127\.0\.0\.1:\d+", line)
                if address:
                    return address[0]
        finally:
            stop.cancel()
        raise RuntimeError("the S3 server has not started: " + "".join(lines))

    @cached_property
    def _client(self):
        # Takes half a second, and a client a tenth.
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        )

    def close(self):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def upload(self, path, url):
        """Copy a folder of this machine, such as a store, to a URL."""
        client, (bucket, prefix) = self._client, _split(url)
        for file in sorted(p for p in Path(path).rglob("*") if p.is_file()):
            # Readable without credentials too, as from a web server.
            client.put_object(
                Bucket=bucket, Key=f"{prefix}/{file.relative_to(path)}", Body=file.read_bytes(),
                ACL="public-read",
            )  # fmt: skip
        return url

    def names(self, url):
        """Names of all objects whose URLs begin with one, without this beginning."""
        bucket, prefix = _split(url)
        pages = self._client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=bucket, Prefix=prefix)
        return sorted(
            o["Key"][len(prefix) + 1 :] for page in found for o in page.get("Contents", [])
        )

    def read(self, url):
        """Read an object."""
        bucket, key = _split(url)
        return self._client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def write(self, url, data):
        """Replace an object."""
        bucket, key = _split(url)
        self._client.put_object(Bucket=bucket, Key=key, Body=data)

    def delete(self, url):
        """Delete an object."""
        bucket, key = _split(url)
        self._client.delete_object(Bucket=bucket, Key=key)


def _split(url):
    parts = urlsplit(url)
    return parts.netloc, parts.path.strip("/")


class Faulty:
    """A proxy before an S3 server that answers some of the reading requests wrongly or late.

    Attributes
    ----------
    endpoint : str
        Its URL.
    refused, cut : float
        Shares of these requests that are answered by 503, and whose body ends early.
    methods : tuple of str
        Methods of the requests that faults are made for.
    planned : list of str
        Faults of the next of these requests, whatever the shares: "refused", "cut", "short" (fewer
        bytes than asked for, and no word of it), "long" (more bytes), "other" (other bytes).
    refused_first : int
        Such requests that are still to be answered by 503, whatever the share.
    status : int
        What refused requests are answered by instead of 503.
    pause : float
        Seconds before each answer.
    rate : float
        Bytes per second of all bodies together.
    requests : list of (str, str)
        Method and path of each request.
    bytes_sent : int
        Bytes of all bodies.
    faults : Counter
        Faults made, by their kind.
    """

    def __init__(self, endpoint, seed=0):
        self._address = urlsplit(endpoint).netloc
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._line_free = 0.0
        self.refused = self.cut = self.pause = 0.0
        self.refused_first, self.status, self.rate = 0, 503, math.inf
        self.methods, self.planned = ("GET", "HEAD"), []
        self.requests, self.faults, self.bytes_sent = [], Counter(), 0
        self._dark_after, self._dark_seconds, self._dark_until = math.inf, 0.0, 0.0
        self._together, self._gate = range(0), None
        self._port = 0
        self.start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        """Listen, on the port of before if there was one."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Listener(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self):
        """Refuse connections, and end those that there are."""
        self._server.shutdown()
        self._thread.join()
        self._server.close_connections()
        self._server.server_close()

    @contextmanager
    def down(self):
        """Be down while the block runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def down_for(self, seconds):
        """Be down from now on, for some seconds; returns at once."""
        self.stop()
        timer = threading.Timer(seconds, self.start)
        timer.start()
        return timer

    def go_dark(self, *, after, seconds):
        """After some more requests, give no answers for some seconds."""
        self._dark_after, self._dark_seconds = len(self.requests) + after, seconds

    def light(self):
        """Give answers again."""
        self._dark_after, self._dark_until = math.inf, 0.0

    @property
    def is_dark(self):
        """Whether the server gives no answers now."""
        return time.monotonic() < self._dark_until

    @contextmanager
    def answering_together(self, count, *, after=0):
        """Answer `count` requests only once all have come; `after` more come before them.

        While the block runs. It fails if they come one after the other.
        """
        first = len(self.requests) + after
        self._together = range(first, first + count)
        # Shorter than a client waits for an answer: it would ask again, which is no other request.
        self._gate = threading.Barrier(count, timeout=50)
        yield
        self._together = range(0)
        assert len(self.requests) >= first + count, "there were fewer requests"
        assert not self._gate.broken, "requests have waited for the answers of others"

    def fault(self, method, path):
        """Note a request, and choose its fault: "dark", one of `planned`, or None."""
        with self._lock:
            is_held = len(self.requests) in self._together
            self.requests.append((method, path))
            if len(self.requests) > self._dark_after:
                self._dark_after = math.inf
                self._dark_until = time.monotonic() + self._dark_seconds
            fault = self._choose(method)
            self.faults[fault] += 1
        if is_held:
            with contextlib.suppress(threading.BrokenBarrierError):
                self._gate.wait()
        return fault

    def _choose(self, method):
        if self.is_dark:
            return "dark"
        if method not in self.methods:
            return None
        if self.planned:
            return self.planned.pop(0)
        if self.refused_first > 0:
            self.refused_first -= 1
            return "refused"
        value = self._random.random()
        if value < self.refused:
            return "refused"
        return "cut" if value < self.refused + self.cut else None

    def send(self, out, body):
        """Send a body at the rate of the line, which all answers share."""
        with self._lock:
            self.bytes_sent += len(body)
        step = max(1, int(min(self.rate / 100, len(body))))
        for start in range(0, len(body), step):
            piece = body[start : start + step]
            with self._lock:
                now = time.monotonic()
                self._line_free = max(now, self._line_free) + len(piece) / self.rate
            time.sleep(max(0.0, self._line_free - now))
            out.write(piece)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, *arguments):
        self._connections = set()
        super().__init__(*arguments)

    def process_request(self, request, client_address):
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self):
        for connection in list(self._connections):
            self.shutdown_request(connection)

    def handle_error(self, request, client_address):
        """Stay silent: clients go away, and connections are closed on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Faulty

    def log_message(self, *arguments):
        pass

    def _forward(self):
        proxy = self.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = proxy.fault(self.command, self.path)
        time.sleep(proxy.pause)
        if fault == "dark":
            self.close_connection = True
            return
        if fault == "refused":
            self.send_response(proxy.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        server = http.client.HTTPConnection(proxy._address, timeout=600)
        try:
            server.request(self.command, self.path, body, dict(self.headers))
            answer = server.getresponse()
            content = answer.read()
        finally:
            server.close()
        changed = {
            "short": content[: len(content) // 2],
            "long": content + content,
            "other": bytes(len(content)),
        }
        content = changed.get(fault, content)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", len(content))
        self.send_header("Content-Length", length if self.command == "HEAD" else len(content))
        self.end_headers()
        if fault == "cut":
            content, self.close_connection = content[: len(content) // 2], True
        proxy.send(self.wfile, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward


@pytest.fixture(scope="session")
def _server():
    pytest.importorskip("moto", reason="needs moto[server], of the extra `test`")
    pytest.importorskip("s3fs", reason="needs s3fs, of the extra `test`")
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3_server(_server, monkeypatch):
    """An `S3Server`, whose address and credentials are in the environment.

    It runs as long as the pytest worker; objects of tests before are still there.
    """
    set_environment(monkeypatch, _server.endpoint)
    return _server


@pytest.fixture
def faulty(s3_server, monkeypatch):
    """A `Faulty` before the `s3_server`; the environment has its address."""
    proxy = Faulty(s3_server.endpoint)
    set_environment(monkeypatch, proxy.endpoint)
    yield proxy
    proxy.stop()


def set_environment(monkeypatch, endpoint):
    """Have this process and its children use an endpoint of S3."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    if _last_endpoint != [endpoint]:
        forget_file_systems()
        _last_endpoint[:] = [endpoint]


_last_endpoint = []


def forget_file_systems():
    """Have new stores look at the environment again; opening a file system takes 0.2 s."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
