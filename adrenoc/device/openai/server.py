"""The server: one language model, one answer at a time, over HTTP.

Who may ask is decided by names and a token: pages in a browser reach this machine, too, so that
requests have to name a host of ours and to be JSON, which no page sends elsewhere unasked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from adrenoc.base.errors import AdrenocError, InputError, OptionError
from adrenoc.device.conversation import Conversation, Reply
from adrenoc.device.generate import Wish
from adrenoc.device.openai.protocol import MOST_BYTES, Answers, Asked, RequestError, read_request

_KEEP_ALIVE_S = 30


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address, bound before the model is loaded. Raises OptionError where the
    address is not this machine's, or taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    there = socket.socket(family, socket.SOCK_STREAM)
    try:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        there.bind((host, port))
    except OSError as error:
        there.close()
        raise OptionError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}",
            hint="--port 0 takes any free port",
        ) from error
    return there


def listen(app: Any, there: socket.socket) -> None:
    """Serve an application until a signal ends the process."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=_KEEP_ALIVE_S
    )
    uvicorn.Server(config).run(sockets=[there])


MOST_BODY_BYTES = 4 << 20
_MOST_SEEN_BYTES = MOST_BODY_BYTES + MOST_BYTES * 4 // 3
"""Where a picture may come with the rest, in base64."""
MOST_WAITING = 16
"""Requests that wait for the model; more are told to come again."""
Pieces: TypeAlias = AsyncGenerator[str | Reply, None]
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model that talks: its name, and what is generated where a request does not say."""

    conversation: Conversation
    model: str
    usual: Wish
    has_template: bool = True


def make_app(served: Served, *, token: str = "", hosts: Sequence[str] = ()) -> Starlette:
    """Return the application; `token` is what clients have to know, `hosts` the names besides this
    machine's own that requests may name (`*`: any)."""
    engine = _Engine(served)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(request: Request) -> Response:
        _check_token(request, token)
        one = {"id": served.model, "object": "model", "created": 0, "owned_by": "adrenoc"}
        return JSONResponse({"object": "list", "data": [one]})

    async def chat(request: Request) -> Response:
        return await _complete(request, engine, token, chat=True)

    async def text(request: Request) -> Response:
        return await _complete(request, engine, token, chat=False)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", text, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[*_LOCAL_NAMES, *hosts])],
        exception_handlers={RequestError: _refuse},
    )


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error.to_json(), status_code=error.status)


def _check_token(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token and not hmac.compare_digest(given.encode(), token.encode()):
        raise RequestError("the token is wrong or missing", status=401, code="invalid_api_key")


async def _complete(request: Request, engine: _Engine, token: str, *, chat: bool) -> Response:
    _check_token(request, token)
    served = engine.served
    if chat and not served.has_template:
        raise RequestError("the model has no template of chats: ask /v1/completions", status=404)
    sees = served.conversation.sees
    body = await _read_body(request, _MOST_SEEN_BYTES if sees else MOST_BODY_BYTES)
    asked = read_request(body, served.usual, served.model, chat=chat, sees=sees)
    answers = Answers(model=served.model, chat=chat)
    pieces = engine.run(asked)
    piece = await anext(pieces)  # what is refused is so before the first byte
    if asked.streams:
        events = _events(piece, pieces, answers, asked)
        return StreamingResponse(events, media_type="text/event-stream")
    async with contextlib.aclosing(pieces):
        while not isinstance(piece, Reply):
            if await request.is_disconnected():
                raise ClientDisconnect
            piece = await anext(pieces)
    return JSONResponse(answers.whole(piece))


async def _read_body(request: Request, most: int) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise RequestError(f"the body is {kind or 'of no type'}, expected application/json")
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            raise RequestError(f"the body has more than {most} bytes", status=413)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}") from error


async def _events(
    piece: str | Reply, pieces: Pieces, answers: Answers, asked: Asked
) -> AsyncIterator[str]:
    """Yield a stream as events of servers are sent (text/event-stream)."""
    yield _event(answers.piece("", first=True))
    async with contextlib.aclosing(pieces):
        try:
            while not isinstance(piece, Reply):
                yield _event(answers.piece(piece))
                piece = await anext(pieces)
        except RequestError as error:
            yield _event(error.to_json())
            return
    if piece.calls:
        yield _event(answers.calls(piece))
    yield _event(answers.end(piece))
    if asked.with_usage:
        yield _event(answers.usage(piece))
    yield "data: [DONE]\n\n"


def _event(plain: dict[str, Any]) -> str:
    return f"data: {json.dumps(plain, ensure_ascii=False)}\n\n"


class _Engine:
    """The model, which one thread runs, one request after the other."""

    def __init__(self, served: Served) -> None:
        self.served, self.conversation = served, served.conversation
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def run(self, asked: Asked) -> Pieces:
        """Yield the pieces of an answer, then what it came to; it ends unread."""
        if self._waiting >= MOST_WAITING:
            raise RequestError("the model is busy: come again later", status=503)
        self._waiting += 1
        try:
            async with self._turn:
                async for piece in self._answer(asked):
                    yield piece
        finally:
            self._waiting -= 1

    async def _answer(self, asked: Asked) -> Pieces:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | Reply | None] = asyncio.Queue()
        left = threading.Event()

        def tell(what: str | Reply) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, what)

        def work() -> None:
            with contextlib.closing(self._pieces(asked)) as pieces:
                for piece in pieces:
                    tell(piece)
                    if left.is_set():
                        break
            tell(self.conversation.reply)

        running = loop.run_in_executor(self._thread, work)
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (piece := await queue.get()) is not None:
                yield piece
        finally:
            left.set()
            try:
                # The caches are right for the next one when the thread is done.
                await asyncio.shield(running)
            except AdrenocError as error:
                raise _explain(error) from error

    def _pieces(self, asked: Asked) -> Generator[str, None, None]:
        talk = self.conversation
        if asked.prompt is not None:
            return talk.continue_text(asked.prompt, asked.wish, asked.stops)
        if talk.sees:
            talk.show(asked.picture)
        return talk.answer(asked.messages, asked.wish, asked.stops, asked.toolbox)


def _explain(error: AdrenocError) -> RequestError:
    if isinstance(error, InputError):
        code = "context_length_exceeded" if "no room" in error.message else ""
        return RequestError(error.message, code=code)
    return RequestError(f"the model failed: {error.message}", status=500)
