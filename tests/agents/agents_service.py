"""A Messages service on loopback that says what a test wrote down, and keeps what it was asked.

The real CLI talks to it, so nothing of the SDK or the CLI is faked. `Script` holds what is said, one entry an answer.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "claude-sonnet-4-5"
Block = dict[str, Any]


def says(text: str) -> Block:
    return {"type": "text", "text": text}


def calls(tool: str, arguments: dict[str, Any] | str) -> Block:
    """A tool call; ``arguments`` as text are sent as they are, also where they are no JSON."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "tool_use", "name": tool, "raw": raw}


@dataclass
class Reply:
    """One answer of the model. ``tokens`` are input and output, which the client's cost estimate is made of."""

    blocks: list[Block]
    tokens: tuple[int, int] = (100, 20)
    breaks_off: bool = False
    """The connection is closed in the middle of the stream."""
    waits: float = 0.0
    """Seconds before the answer."""
    gate: threading.Event | None = None
    """Waited for before the answer, at most ten seconds."""


@dataclass
class Failure:
    status: int
    kind: str = "api_error"
    message: str = "scripted failure"


Entry = Reply | Failure


@dataclass
class Script:
    """What is said in one conversation: the requests that hold ``marker`` get its entries, in their order."""

    entries: list[Entry]
    marker: str = ""
    repeats_last: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    _next: int = 0

    def take(self, request: dict[str, Any]) -> Entry:
        self.requests.append(request)
        if self._next >= len(self.entries) and not self.repeats_last:
            return Failure(400, "invalid_request_error", "the script of this test is used up")
        entry = self.entries[min(self._next, len(self.entries) - 1)]
        self._next += 1
        return entry

    @property
    def used_up(self) -> bool:
        return self._next >= len(self.entries) and len(self.requests) == self._next


class MessagesServer:
    """``with MessagesServer() as server: server.plays(...)``; ``server.url`` is its address."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.side_requests: list[dict[str, Any]] = []
        """What the CLI asks by itself, without tools: answered with one word."""
        self.headers: list[dict[str, str]] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"service": self})
        self._http = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def plays(self, *entries: Entry, marker: str = "", repeats_last: bool = False) -> Script:
        script = Script(list(entries), marker, repeats_last)
        self.scripts.append(script)
        return script

    def entry_for(self, request: dict[str, Any]) -> Entry:
        with self._lock:
            if not request.get("tools"):
                self.side_requests.append(request)
                return Reply([says("ok")])
            told = json.dumps([request.get("system"), request["messages"]])
            for script in self.scripts:
                if script.marker in told:
                    return script.take(request)
        return Failure(400, "invalid_request_error", "no script of this test is for this conversation")

    def __enter__(self) -> MessagesServer:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what tests that cancel or kill it want; anything else is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    service: MessagesServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_GET(self) -> None:
        self._answer(404, {"type": "error", "error": {"type": "not_found_error", "message": "not here"}})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.service.headers.append(dict(self.headers))
        if self.path.partition("?")[0] == "/v1/messages/count_tokens":
            return self._answer(200, {"input_tokens": 100})
        entry = self.service.entry_for(request)
        if isinstance(entry, Failure):
            said = {"type": "error", "error": {"type": entry.kind, "message": entry.message}}
            return self._answer(entry.status, said)
        if entry.gate is not None:
            entry.gate.wait(10)
        time.sleep(entry.waits)
        model = request.get("model", MODEL)
        if entry.breaks_off or request.get("stream"):
            return self._stream(entry, model)
        self._answer(200, _message(entry, model))

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, reply: Reply, model: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        events = list(_events(reply, model))
        for event in events[: len(events) // 2] if reply.breaks_off else events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()

    def log_message(self, *_: object) -> None: ...


_counter: Callable[[], int] = iter(range(1, 10**9)).__next__


def _message(reply: Reply, model: str) -> dict[str, Any]:
    """The answer as one piece; a tool call stands in it with what could be read of its arguments."""
    put_in, put_out = reply.tokens
    content: list[Block] = []
    for block in reply.blocks:
        if block["type"] == "tool_use":
            block = {"type": "tool_use", "id": f"toolu_{_counter():08d}", "name": block["name"], "input": {}}
        content.append(block)
    return {
        "id": f"msg_{_counter():08d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": put_in, "output_tokens": put_out},
    }


def _events(reply: Reply, model: str) -> Iterator[dict[str, Any]]:
    message = _message(reply, model)
    stop, put_out = message["stop_reason"], message["usage"]["output_tokens"]
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(reply.blocks):
        if block["type"] == "text":
            start: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            start = {"type": "tool_use", "id": f"toolu_{_counter():08d}", "name": block["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": block["raw"]}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": put_out}}
    yield {"type": "message_stop"}
