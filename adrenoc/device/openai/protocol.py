"""Requests of OpenAI's API as records, and answers as its clients expect them. Source: OpenAI's API
reference, "Chat" and "Completions (legacy)"; what its Python client 3 sends."""

import io
import json
import time
import uuid
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from adrenoc.bundle.chat import RANGES
from adrenoc.device.conversation import Reply, Toolbox
from adrenoc.device.generate import Wish
from adrenoc.language.tokenizer import Grammar


class RequestError(Exception):
    """A request that is refused: the status of HTTP, and the field that is wrong."""

    def __init__(self, message: str, *, status: int = 400, field_name: str = "", code: str = ""):
        super().__init__(message)
        self.status, self.field_name, self.code = status, field_name, code

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        about = {"param": self.field_name or None, "code": self.code or None}
        return {"error": {"message": str(self), "type": kind, **about}}


MOST_STOPS = 16
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NO_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
}
"""What is not there -> the values that ask for nothing of it."""
_REASONS = {"end": "stop", "stop": "stop", "most": "length", "full": "length"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a request asks for: an answer to `messages`, or what follows the text `prompt`.
    `picture` is the file of what a message shows, if one does."""

    wish: Wish
    stops: tuple[str, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    picture: bytes = b""
    prompt: str | None = None
    toolbox: Toolbox | None = None
    streams: bool = False
    with_usage: bool = False


def read_request(body: Any, usual: Wish, model: str, *, chat: bool, sees: bool = False) -> Asked:
    """Read the body of a request for chat or, without `chat`, for text.

    `usual` is what is generated where the request does not say; `model` the one that is there,
    which `sees` pictures or reads text alone. Raises RequestError where it asks for what is not
    there, or is of another form.
    """
    if not isinstance(body, dict):
        raise RequestError("the body is no JSON object")
    said = {key: value for key, value in body.items() if value is not None}
    wanted = _text(said, "model", model)
    if wanted != model:
        raise RequestError(
            f"the model '{wanted}' is not here; '{model}' is",
            status=404,
            field_name="model",
            code="model_not_found",
        )
    for name, values in _NO_EFFECT.items():
        if name in said and said[name] not in values:
            raise RequestError(f"{name} is not supported", field_name=name)
    options = said.get("stream_options", {})
    asked = Asked(
        wish=_read_wish(said, usual),
        stops=_read_stops(said.get("stop", ())),
        streams=said.get("stream") is True,
        with_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )
    if not chat:
        return replace(asked, prompt=_read_prompt(said.get("prompt")))
    toolbox = _read_toolbox(said)
    if toolbox is not None and toolbox.must and asked.wish.grammar is not None:
        raise RequestError(
            "an answer has the form of response_format or grammar, or is a call of a tool",
            field_name="tool_choice",
        )
    messages, pictures = _read_messages(said.get("messages"))
    if pictures and not sees:
        raise RequestError("the model that is served here reads no pictures", field_name="messages")
    if len(pictures) > 1:
        raise RequestError("one picture goes into a conversation", field_name="messages")
    return replace(asked, messages=messages, picture=b"".join(pictures), toolbox=toolbox)


def _read_toolbox(said: Mapping[str, Any]) -> Toolbox | None:
    """Return the tools that may be called, or None where none may."""
    tools, choice = said.get("tools", []), said.get("tool_choice", "auto")
    functions = [one.get("function") for one in tools if isinstance(one, dict)]
    if not isinstance(tools, list) or len(functions) < len(tools):
        raise RequestError("tools is no list of objects", field_name="tools")
    for at, function in enumerate(functions):
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools[{at}] has no function with a name", field_name="tools")
        if not isinstance(function.get("parameters", {}), dict):
            raise RequestError(f"tools[{at}] has parameters that are no schema", field_name="tools")
    named = choice.get("function") if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    toolbox = Toolbox(tools=tuple(tools), must=name or "")
    if choice == "required" and tools:
        return replace(toolbox, must="*")
    if choice not in ("auto", "none") and name not in toolbox.names:
        raise RequestError(
            "tool_choice is none of auto, none, required with tools, and a function of tools",
            field_name="tool_choice",
        )
    return toolbox if tools and choice != "none" else None


def _read_wish(said: Mapping[str, Any], usual: Wish) -> Wish:
    most = _number(said, "max_completion_tokens", usual.most, 1, 1 << 31)
    most = _number(said, "max_tokens", most, 1, 1 << 31)
    # Besides OpenAI's own fields those that other servers take: top_k, min_p, repetition_penalty.
    picked: dict[str, Any] = {
        name: _number(said, name, getattr(usual.sampling, name), *RANGES[name]) for name in RANGES
    }
    picked["top_k"] = int(picked["top_k"])
    seed = _number(said, "seed", usual.sampling.seed, -(1 << 63), (1 << 63) - 1)
    bias = (*usual.sampling.bias, *_read_bias(said.get("logit_bias", {})))
    sampling = replace(usual.sampling, **picked, bias=bias, seed=int(seed) % (1 << 64))
    return replace(usual, most=int(most), sampling=sampling, grammar=_read_form(said))


def _read_form(said: Mapping[str, Any]) -> Grammar | None:
    """Return the form of the answer; `grammar`, in GBNF or Lark, is llama.cpp's field."""
    if "grammar" in said:
        return Grammar(kind="gbnf", text=_text(said, "grammar", ""))
    form = said.get("response_format", {"type": "text"})
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    schema: Any = {"type": "object"}
    if kind == "json_schema":
        described = form.get("json_schema")
        schema = described.get("schema") if isinstance(described, dict) else None
    if kind not in ("json_object", "json_schema") or not isinstance(schema, dict):
        raise RequestError(
            "response_format is none of text, json_object and json_schema with a schema",
            field_name="response_format",
        )
    return Grammar(kind="json_schema", text=json.dumps(schema))


def _read_bias(said: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(said, dict) or not all(token.isdecimal() for token in said):
        raise RequestError("logit_bias is no object of token numbers", field_name="logit_bias")
    return tuple((int(token), _number(said, token, 0.0, -100, 100)) for token in said)


def _read_stops(said: Any) -> tuple[str, ...]:
    stops = (said,) if isinstance(said, str) else said
    if (
        not isinstance(stops, list | tuple)
        or len(stops) > MOST_STOPS
        or not all(isinstance(stop, str) for stop in stops)
    ):
        raise RequestError(f"stop is no text, nor up to {MOST_STOPS} of them", field_name="stop")
    return tuple(stops)


def _read_prompt(said: Any) -> str:
    only = said[0] if isinstance(said, list) and len(said) == 1 else said
    if not isinstance(only, str):
        raise RequestError("prompt is no text", field_name="prompt")
    return only


def _read_messages(said: Any) -> tuple[tuple[Mapping[str, Any], ...], list[bytes]]:
    """Return messages, and the pictures that they show."""
    if not isinstance(said, list) or not said:
        raise RequestError("messages is no list of messages", field_name="messages")
    pictures: list[bytes] = []
    messages = [_read_message(one, f"messages[{at}]", pictures) for at, one in enumerate(said)]
    return tuple(messages), pictures


def _read_message(said: Any, where: str, pictures: list[bytes]) -> Mapping[str, Any]:
    if not isinstance(said, dict) or said.get("role") not in _ROLES:
        raise RequestError(
            f"{where} has no role of {', '.join(_ROLES)}", field_name=f"{where}.role"
        )
    content = said.get("content")
    if isinstance(content, list):
        content = _read_parts(content, f"{where}.content", pictures)
    if content is not None and not isinstance(content, str | list):
        raise RequestError(f"{where}.content is no text", field_name=f"{where}.content")
    for call in said.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not {"name", "arguments"} <= {*function}:
            raise RequestError(
                f"{where} has a call without a function's name and arguments",
                field_name=f"{where}.tool_calls",
            )
    role = "system" if said["role"] == "developer" else said["role"]
    return {**said, "role": role, "content": content or ""}


def _read_parts(said: list[Any], where: str, pictures: list[bytes]) -> str | list[dict[str, Any]]:
    """Return a text, or where a message shows a picture, its parts as templates read them."""
    parts: list[dict[str, Any]] = []
    for at, part in enumerate(said):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif isinstance(part, dict) and part.get("type") == "image_url":
            pictures.append(read_picture(part, f"{where}[{at}]"))
            parts.append({"type": "image"})
        else:
            raise RequestError(f"{where}[{at}] is no text and no picture", field_name=where)
    if any(part["type"] == "image" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def _text(said: Mapping[str, Any], name: str, default: str) -> str:
    value = said.get(name, default)
    if not isinstance(value, str):
        raise RequestError(f"{name} is no text", field_name=name)
    return value


def _number(said: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = said.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in said and not (is_number and least <= value <= most):
        raise RequestError(f"{name} is {value!r}, expected {least} to {most}", field_name=name)
    return float(value) if isinstance(default, float) else value


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers to one request, whole or in pieces, with one number and one time."""

    model: str
    chat: bool
    number: str = field(default_factory=lambda: uuid.uuid4().hex)
    created_s: int = field(default_factory=lambda: int(time.time()))

    def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if reply.calls:
            message |= {"content": reply.text or None, "tool_calls": _write_calls(reply)}
        said = {"message": message} if self.chat else {"text": reply.text}
        kind = "chat.completion" if self.chat else "text_completion"
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": _reason(reply)}
        return {**self._begin(kind), "choices": [choice], "usage": _usage(reply)}

    def piece(self, text: str, *, first: bool = False) -> dict[str, Any]:
        """Return a piece of a stream."""
        role = {"role": "assistant"} if first else {}
        return self._chunk({**role, "content": text} if self.chat else text, None)

    def calls(self, reply: Reply) -> dict[str, Any]:
        """Return the piece of a stream that has the calls of tools."""
        calls = [{"index": at, **call} for at, call in enumerate(_write_calls(reply))]
        return self._chunk({"tool_calls": calls}, None)

    def end(self, reply: Reply) -> dict[str, Any]:
        """Return the last piece of a stream, without text."""
        return self._chunk({} if self.chat else "", _reason(reply))

    def usage(self, reply: Reply) -> dict[str, Any]:
        """Return what a client that asks for it gets behind the last piece."""
        return {**self._begin(self._chunks), "choices": [], "usage": _usage(reply)}

    @property
    def _chunks(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _chunk(self, said: Any, reason: str | None) -> dict[str, Any]:
        key = "delta" if self.chat else "text"
        choice = {"index": 0, key: said, "logprobs": None, "finish_reason": reason}
        return {**self._begin(self._chunks), "choices": [choice]}

    def _begin(self, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self.chat else "cmpl"
        number = f"{prefix}-{self.number}"
        return {"id": number, "object": kind, "created": self.created_s, "model": self.model}


def _write_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": asdict(call)}
        for call in reply.calls
    ]


def _reason(reply: Reply) -> str:
    reason = _REASONS.get(reply.ended, "stop")
    return "tool_calls" if reply.calls and reason == "stop" else reason


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.prompt,
        "completion_tokens": reply.tokens,
        "total_tokens": reply.prompt + reply.tokens,
        "prompt_tokens_details": {"cached_tokens": reply.kept},
    }


MOST_BYTES = 16 << 20
MOST_PIXELS = 48 << 20
"""Of a picture: more than phones' cameras make, and 200 MB of memory while it is made smaller."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def read_picture(part: Any, where: str) -> bytes:
    """Return the file that a part of a message holds (`image_url`); pixels are not read yet. Raises
    RequestError where it holds none, one that is too large, or an address."""

    def refuse(why: str) -> RequestError:
        return RequestError(f"{where} {why}", field_name=where)

    said = part.get("image_url")
    url = said.get("url") if isinstance(said, dict) else said
    if not isinstance(url, str):
        raise refuse("has no image_url with an url")
    head, _, body = url.partition(",")
    if not head.startswith("data:"):
        raise refuse(
            "names a picture elsewhere, and nothing is fetched: send data:image/png;base64,..."
        )
    try:
        content = b64decode(body, validate=True) if head.endswith(";base64") else b""
    except ValueError:
        content = b""
    if not content:
        raise refuse("is a picture that is not in base64")
    if len(content) > MOST_BYTES:
        raise refuse(f"has {len(content)} bytes, expected up to {MOST_BYTES}")
    if not 0 < _count_pixels(content) <= MOST_PIXELS:
        raise refuse(f"is no picture of {', '.join(_FORMATS)} of up to {MOST_PIXELS} pixels")
    return content


def _count_pixels(content: bytes) -> int:
    """Return what the head of a picture says; 0 where there is none, or of far too many."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            return image.width * image.height
    except Exception:  # noqa: BLE001 - readers raise whatever they like
        return 0
