"""Inputs that are settings: `--fix NAME=VALUE` makes one a constant of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from adrenoc.base.decision import Decision
from adrenoc.base.errors import OptionError
from adrenoc.base.text.spelling import did_you_mean, list_first, quote_word
from adrenoc.importers.signature import Port, read_signature
from adrenoc.ir.options import Shapes

Fixed = tuple[tuple[str, str], ...]
"""(input, value as it was written)."""

_WORDS = {"true": 1, "false": 0}


def parse_fixed(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE` of the command line; the name may itself hold `=`.

    Raises:
        OptionError: it has another form.
    """
    name, equals, value = (part.strip() for part in text.rpartition("="))
    if not (equals and name and value):
        raise OptionError(
            f"--fix {text} is no input and its value; expected NAME=VALUE",
            hint="adrenoc compile MODEL --fix sr=16000",
        )
    return name, value


def read_fixed_inputs(
    model: Path, fixed: Fixed, signature: str = "", shapes: Shapes = ()
) -> dict[str, np.ndarray]:
    """Return the arrays of inputs of a model file that are fixed, by name: a bundle takes them no
    more.  `shapes` are those that options give to inputs.

    Raises:
        OptionError: the model has no such input, or that takes no such value.
    """
    if not fixed:
        return {}
    return fill_ports(read_signature(model, signature).inputs, fixed, dict(shapes))


def fill_ports(
    ports: Iterable[Port], fixed: Fixed, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Return the arrays of `fixed` inputs, of the dtypes and extents that their ports have.

    One value fills all of an input; axes that are open have the extents of `shapes`, else one
    element, or as many as there are values.

    Raises:
        OptionError: there is no such input, it is named twice, or it takes no such value.
    """
    known = {port.name: port for port in ports}
    found: dict[str, np.ndarray] = {}
    for name, text in fixed:
        if name not in known:
            names = list_first((f"'{n}'" for n in known), between=", ")
            raise OptionError(
                f"--fix names the input '{name}'{did_you_mean(name, list(known))}; the model's are "
                f"{names}",
                hint="adrenoc compile MODEL --fix NAME=VALUE",
            )
        if name in found:
            raise OptionError(
                f"--fix names the input '{name}' twice; expected once",
                hint="give each input one value",
            )
        port = known[name]
        found[name] = _fill(replace(port, axes=shapes.get(name, port.axes)), text)
    return found


def _fill(port: Port, text: str) -> np.ndarray:
    values = [_number(port, part.strip()) for part in text.split(",")]
    axes = port.axes if port.axes is not None else (None,) * (len(values) > 1)
    fixed = int(np.prod([d for d in axes if isinstance(d, int)], dtype=np.int64))
    rest, opened = max(len(values) // max(fixed, 1), 1), False
    shape = []
    for extent in axes:
        is_first = not isinstance(extent, int) and not opened
        opened |= is_first
        shape.append(extent if isinstance(extent, int) else rest if is_first else 1)
    array = np.array(values, port.dtype)
    if array.size not in (1, int(np.prod(shape, dtype=np.int64))):
        raise OptionError(
            f"--fix {port.name}={text} has {array.size} values; input '{port.name}' of "
            f"{port.dtype} {shape} takes one, or {int(np.prod(shape))}",
            hint=f"--fix {quote_word(f'{port.name}={values[0]}')}",
        )
    laid = array.reshape(shape) if array.size > 1 else array.reshape(())
    return np.array(np.broadcast_to(laid, shape))


def _number(port: Port, text: str) -> int | float | bool:
    """Return a value as the input's dtype holds it."""
    kind = np.dtype(port.dtype).kind if port.dtype else ""
    expected = {"b": "true or false", "f": "a number", "i": "a whole number", "u": "a whole number"}
    try:
        if kind == "b" and text.lower() in (*_WORDS, "0", "1"):
            return bool(_WORDS.get(text.lower(), text == "1"))
        if kind in "iu":
            number = _WORDS.get(text.lower())
            whole = int(text) if number is None else number
            limits = np.iinfo(port.dtype)
            if limits.min <= whole <= limits.max:
                return whole
        elif kind == "f":
            return float(text)
    except ValueError:
        pass
    what, held = expected.get(kind, "nothing: it holds no numbers"), port.dtype or "of text"
    raise OptionError(
        f"--fix {port.name}={text}: input '{port.name}' is {held}; expected {what}",
        hint=f"--fix {quote_word(f'{port.name}=VALUE')}",
    )


def tell_fixed(
    arrays: Mapping[str, np.ndarray], fixed: Sequence[tuple[str, str]]
) -> list[Decision]:
    """Return a decision for each input that became a constant."""
    return [
        Decision(
            subject=name,
            taken=f"a constant of {text}",
            reason="--fix says so: it is no input of the bundle, and what hangs on it is decided",
        )
        for name, text in fixed
        if name in arrays
    ]
