"""A small S3 server over a folder of this machine, for benchmarks and tests.

    python -m tools.object_server FOLDER

It prints its address, and counts requests, bytes and its own CPU seconds: ``GET /`` answers them as
JSON. A range of bytes is sent from the file, so that it takes the same time wherever it lies in an
object. What s3fs asks for is answered: objects are read, written (also in parts), deleted and
listed. Buckets are folders of FOLDER. Signatures are not checked, so it listens on the loopback
interface only.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

NOT_KEYS = {"", ".", ".."}
PAGE = 1000
"""Most names of a list, as S3 has it."""


class ObjectServer(ThreadingHTTPServer):
    """Serves a folder on a free port; `serve_forever` answers requests.

    Attributes
    ----------
    endpoint : str
    counts : Counter
        Requests by their method, and the bytes of all bodies: ``sent`` and ``received``.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = Path(folder).resolve()
        self.counts, self.lock = Counter[str](), threading.Lock()
        self.uploads = self.folder / ".uploads"  # no name of a bucket
        self.uploads.mkdir(parents=True, exist_ok=True)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, what: str, n: int = 1) -> None:
        """Count requests or bytes."""
        with self.lock:
            self.counts[what] += n

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Stay silent where clients go away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Refused(Exception):
    """An answer that is an error of S3."""

    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ObjectServer

    def log_message(self, *_: object) -> None:
        pass

    def _answered(self) -> None:
        self.server.count(self.command)
        parts = urlsplit(self.path)
        self.query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        self.bucket, _, self.key = unquote(parts.path)[1:].partition("/")
        self.left = int(self.headers.get("Content-Length", 0))
        try:
            getattr(self, f"_{self.command.lower()}")()
        except _Refused as error:
            self.close_connection = self.left > 0
            more = "<Condition>If-None-Match</Condition>" if error.status == 412 else ""
            body = f"<Error><Code>{error.code}</Code><Message>{error.code}</Message>{more}</Error>"
            self._send(body.encode(), error.status)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answered

    # -- requests ------------------------------------------------------------------------------

    def _get(self) -> None:
        if not self.bucket:
            counts = {**self.server.counts, "cpu_seconds": time.process_time()}
            self._send(json.dumps(counts).encode())
        elif not self.key:
            self._list()
        else:
            self._object()

    def _head(self) -> None:
        if self.key:
            self._object()
        else:
            self._folder_of_bucket()
            self._send()

    def _object(self) -> None:
        """Send an object, or a range of it."""
        try:
            file = self._path().open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _Refused(404, "NoSuchKey") from None
        with file:
            about = os.fstat(file.fileno())
            start, stop, asked = 0, about.st_size, self.headers.get("Range")
            found = re.fullmatch(r"bytes=(\d*)-(\d*)", asked or "")
            if found and found[1]:
                start, stop = int(found[1]), min(stop, int(found[2] or stop) + 1)
            elif found and found[2]:
                start = max(0, stop - int(found[2]))
            if found and start >= stop:
                raise _Refused(416, "InvalidRange")
            self.send_response(206 if found else 200)
            self.send_header("Content-Length", str(stop - start))
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("ETag", _etag(about))
            self.send_header("Last-Modified", self.date_time_string(about.st_mtime))
            self.send_header("Accept-Ranges", "bytes")
            if found:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{about.st_size}")
            self.end_headers()
            if self.command == "GET" and stop > start:
                self.server.count("sent", self.connection.sendfile(file, start, stop - start))

    def _list(self) -> None:
        """List names in order, those with more parts than the delimiter allows as one."""
        folder = self._folder_of_bucket()
        query = {"prefix": "", "delimiter": "", "max-keys": str(PAGE), **self.query}
        prefix, delimiter = query["prefix"], query["delimiter"]
        names: dict[str, Path | None] = {}
        for path in folder.rglob("*"):
            key = path.relative_to(folder).as_posix()
            if path.is_file() and key.startswith(prefix):
                before, cut, _ = key[len(prefix) :].partition(delimiter or "\0")
                names[prefix + before + cut] = None if cut else path
        after = query.get("continuation-token", query.get("start-after", ""))
        left = sorted(name for name in names if name > after)
        page = left[: min(PAGE, int(query["max-keys"]))]
        entries = []
        for name in page:
            path = names[name]
            if path is None:
                entries.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
                continue
            about = path.stat()
            changed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(about.st_mtime))
            entries.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{changed}</LastModified>"
                f"<ETag>{escape(_etag(about))}</ETag><Size>{about.st_size}</Size></Contents>"
            )
        is_cut = len(page) < len(left)
        if is_cut:
            token = escape(page[-1])
            entries.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        self._send_xml(
            "ListBucketResult",
            f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(is_cut).lower()}</IsTruncated>"
            + "".join(entries),
        )

    def _put(self) -> None:
        if not self.key:
            self._receive_all()
            (self.server.folder / self.bucket).mkdir()
            self._send()
            return
        path = self._path()
        if "uploadId" in self.query:
            path = self._upload() / f"{int(self.query['partNumber']):05d}"
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            raise _Refused(501, "NotImplemented")
        temporary = self.server.uploads / secrets.token_hex(8)
        with temporary.open("wb") as file:
            while self.left:
                file.write(self._receive(1 << 20))
        self._place(temporary, path, is_new=self.headers.get("If-None-Match") == "*")
        self._send(headers={"ETag": _etag(path.stat())})

    def _post(self) -> None:
        body = self._receive_all().decode()
        if "delete" in self.query:
            for key in re.findall("<Key>(.*?)</Key>", body, re.DOTALL):
                self.key = unescape(key).rstrip("/")
                self._remove()
            self._send_xml("DeleteResult", "")
            return
        path = self._path()
        if "uploads" in self.query:
            name = secrets.token_hex(8)
            (self.server.uploads / name).mkdir()
            self._send_xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>")
            return
        parts, temporary = self._upload(), self.server.uploads / secrets.token_hex(8)
        with temporary.open("wb") as file:
            for number in re.findall("<PartNumber>(.*?)</PartNumber>", body):
                with (parts / f"{int(number):05d}").open("rb") as part:
                    shutil.copyfileobj(part, file)
        self._place(temporary, path, is_new=self.headers.get("If-None-Match") == "*")
        shutil.rmtree(parts)
        etag = escape(_etag(path.stat()))
        self._send_xml("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>")

    def _delete(self) -> None:
        if "uploadId" in self.query:
            shutil.rmtree(self._upload())
        else:
            self._remove()
        self._send(status=204)

    # -- parts of them -------------------------------------------------------------------------

    def _folder_of_bucket(self) -> Path:
        folder = self.server.folder / self.bucket
        if self.bucket.startswith(".") or not folder.is_dir():
            raise _Refused(404, "NoSuchBucket")
        return folder

    def _path(self) -> Path:
        """File of the object, which need not exist."""
        if NOT_KEYS & set(self.key.split("/")):
            raise _Refused(400, "InvalidRequest")
        return self._folder_of_bucket() / self.key

    def _remove(self) -> None:
        """Remove the object, if there is one."""
        path = self._path()
        if path.is_file():
            path.unlink()

    def _upload(self) -> Path:
        folder = self.server.uploads / self.query["uploadId"]
        if not (folder.name.isalnum() and folder.is_dir()):
            raise _Refused(404, "NoSuchUpload")
        return folder

    def _place(self, temporary: Path, path: Path, *, is_new: bool) -> None:
        """Give a whole file its name, unless there must be no such object and there is one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if is_new:
                path.hardlink_to(temporary)
            else:
                temporary.replace(path)
        except FileExistsError:
            raise _Refused(412, "PreconditionFailed") from None
        finally:
            temporary.unlink(missing_ok=True)

    def _receive(self, most: int) -> bytes:
        data = self.rfile.read(min(most, self.left))
        if not data:
            raise ConnectionError("the client has gone away")
        self.left -= len(data)
        self.server.count("received", len(data))
        return data

    def _receive_all(self) -> bytes:
        return b"".join(iter(lambda: self._receive(1 << 20) if self.left else b"", b""))

    def _send(
        self, body: bytes = b"", status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_xml(self, name: str, content: str) -> None:
        self._send(f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'.encode())


def _etag(about: os.stat_result) -> str:
    return f'"{about.st_mtime_ns:x}-{about.st_size:x}"'


if __name__ == "__main__":
    with ObjectServer(Path(sys.argv[1])) as server:
        print(server.endpoint, flush=True)
        server.serve_forever()
