"""An HTTP store on the loopback interface that can be told to misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class LoopbackStore:
    """``files`` by path ("/net.bin"). ``answers`` are given first, one a request: a status, "cut"
    (half the file, then the connection is closed), "stall" (half of it, then nothing), bytes (in
    place of the file's), or a URL to redirect to. ``asked`` lists the requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.answers: list[int | str | bytes] = []
        self.always: int | str | bytes | None = None
        self.asked: list[str] = []
        self.url = ""

    def next_answer(self) -> int | str | bytes | None:
        return self.answers.pop(0) if self.answers else self.always


@contextmanager
def serving() -> Iterator[LoopbackStore]:
    store = LoopbackStore()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            store.asked.append(f"GET {self.path}")
            answer = store.next_answer()
            content = store.files.get(self.path.partition("?")[0])
            if isinstance(answer, int):
                self.send_error(answer)
            elif isinstance(answer, str) and "://" in answer:
                self.send_response(302)
                self.send_header("Location", answer)
                self.end_headers()
            elif isinstance(answer, bytes):
                self._send(answer, len(answer))
            elif content is None:
                self.send_error(404)
            elif answer in ("cut", "stall"):
                self._send(content[: len(content) // 2], len(content))
                if answer == "stall":
                    time.sleep(3)
            else:
                self._send(content, len(content))

        def do_PUT(self) -> None:
            store.asked.append(f"PUT {self.path}")
            content = self._body()
            answer = store.next_answer()
            if isinstance(answer, int):
                self.send_error(answer)
                return
            store.files[self.path] = content
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send(self, content: bytes, length: int) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()
            self.close_connection = True

        def _body(self) -> bytes:
            if "Content-Length" in self.headers:
                return self.rfile.read(int(self.headers["Content-Length"]))
            content = b""
            while size := int(self.rfile.readline(), 16):  # chunked
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up is part of the game."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    store.url = f"http://127.0.0.1:{server.server_port}/qnn"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
