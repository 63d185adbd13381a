"""Signatures of a TFLite file that the command line names: one, or several for one bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from adrenoc.cli.plan_shapes import AskedShapes
    from adrenoc.importers.entry import Entry

_ALL = "all"


def choose_signatures(model: Path, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the signatures that `--signature` asks for, each once, in the order of the words.

    Raises:
        click.UsageError: all of none are asked for.
        ModelNotFoundError, ModelFormatError: the file cannot be read.
    """
    if _ALL not in asked:
        return tuple(dict.fromkeys(asked))
    from adrenoc.importers.signature import list_signatures

    names = list_signatures(model)
    if _ALL in names:
        return tuple(dict.fromkeys(asked))
    if len(asked) > 1:
        raise click.UsageError(f"--signature {_ALL} names every one: no other --signature")
    if not names:
        raise click.UsageError(f"--signature {_ALL} is for TFLite files that list signatures")
    return names


def refuse_with_several(keys: Sequence[str], others: Sequence[tuple[object, str]]) -> None:
    """Do nothing where one signature, or none, is asked for.

    `others` are values of options that several do not go with, and how each is typed.

    Raises:
        click.UsageError: one of them was given, too.
    """
    given = next((words for value, words in others if value), None)
    if len(keys) > 1 and given is not None:
        raise click.UsageError(
            f"{given} is for one signature, and --signature names {len(keys)}: a bundle for each "
            "takes it"
        )


def name_inputs(model: Path, keys: Sequence[str]) -> dict[str, set[str]]:
    """Return the names of the inputs of each of these signatures."""
    from adrenoc.importers.signature import read_signature

    return {one: {port.name for port in read_signature(model, one).inputs} for one in keys}


def select_for(
    key: str, inputs: Mapping[str, set[str]], shapes: AskedShapes, entry: Entry
) -> tuple[AskedShapes, Entry]:
    """Return the shapes and the settings that are of inputs of the signature `key`; `inputs` are
    the names of those of each signature.

    A name that no signature has stays, for what refuses it.
    """
    others = set().union(*inputs.values()) - inputs[key]

    def is_own(name: str) -> bool:
        return name not in others

    mine = [one for one in shapes if is_own(one[0] if isinstance(one, tuple) else one.name)]
    fixed = tuple(pair for pair in entry.fixed if is_own(pair[0]))
    return mine, replace(entry, fixed=fixed, signature=key)
