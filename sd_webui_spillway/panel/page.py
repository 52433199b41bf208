"""Putting the panel's style and script into a page that gradio renders, whatever gradio's version."""

from __future__ import annotations

from typing import Any

from .origin import AsgiApp, Receive, Scope, Send

_HEAD_END = b"</head>"


class HeadInjector:
    """ASGI middleware: adds ``markup`` before ``</head>`` of every HTML page that passes through."""

    def __init__(self, app: AsgiApp, markup: str) -> None:
        self._app = app
        self._markup = markup.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope.get("headers", [])
        asks_html = any(name.lower() == b"accept" and b"text/html" in value for name, value in headers)
        if scope["type"] != "http" or scope["method"] != "GET" or not asks_html:
            await self._app(scope, receive, send)
            return
        # A compressed page could not be added to.
        plain = {**scope, "headers": [pair for pair in headers if pair[0].lower() != b"accept-encoding"]}
        await self._app(plain, receive, _PageSender(send, self._markup))


class _PageSender:
    """Holds an HTML response back until it is whole, then sends it with the markup; others pass at once."""

    def __init__(self, send: Send, markup: bytes) -> None:
        self._send = send
        self._markup = markup
        self._start: Any = None
        self._body = b""

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start" and _is_html(message):
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish()
        else:
            await self._send(message)

    async def _finish(self) -> None:
        body = self._body.replace(_HEAD_END, self._markup + _HEAD_END, 1)
        kept = [pair for pair in self._start["headers"] if pair[0].lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await self._send({**self._start, "headers": [*kept, length]})
        await self._send({"type": "http.response.body", "body": body})


def _is_html(start: Any) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in start["headers"])
