"""A hub on this machine: what it answers for each model is what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    """Model id -> the content of its config.json."""
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Model id -> status and X-Error-Code."""
    silent: set[str] = field(default_factory=set)
    """Ids whose requests are left without an answer."""
    asked: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


@contextmanager
def loopback_hub() -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(with_content=False)

        def do_GET(self) -> None:
            self.answer(with_content=True)

        def answer(self, with_content: bool) -> None:
            model_id = self.path.strip("/").partition("/resolve/")[0]
            hub.asked.append(f"{self.command} {self.path}")
            hub.tokens += [value for name, value in self.headers.items() if name.lower() == "authorization"]
            if model_id in hub.silent:
                time.sleep(3)
                return
            content = hub.files.get(model_id)
            status, code = hub.refused.get(model_id, (200, "") if content is not None else (404, "RepoNotFound"))
            self.send_response(status)
            if content is None:
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
            else:
                self.send_header("ETag", '"' + f"{hash(content):x}".lstrip("-") + '"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_content and content is not None:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
