"""JSON that others wrote: read with every way of failing as one kind of error."""

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


_MOST_DEPTH = 64
_MOST_DIGITS = 19


def read_json(text: str | bytes) -> Any:
    """Return the value that a JSON text holds.

    Raises:
        ValueError: it is not UTF-8, not JSON, nested too deeply, or holds a number that is too
            long or half a character; the reason is one line.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 text: byte {error.start} is wrong") from error
    try:
        value = json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}") from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("it holds half of a character (a lone surrogate)") from error
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits)} digits")
    return int(digits)


def _check_depth(value: Any) -> None:
    """Refuse what readers that call themselves could not walk."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise ValueError("it is nested too deeply")
