"""`adrenoc inspect`: what is in a bundle."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import BundleError
from adrenoc.base.text.spelling import did_you_mean, printable, quote_word
from adrenoc.cli import console
from adrenoc.cli.firmware import inspect_if_firmware
from adrenoc.cli.guarded import Command, InputPath
from adrenoc.cli.records import argument, give_options, option
from adrenoc.cli.show_check import list_assumed, show_regions
from adrenoc.cli.terminal import say
from adrenoc.cli.write_views import refuse_firmware

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.bundle.manifest import FileEntry, TensorSpec

_LONGEST_VALUE = 60
"""Characters of an option's list that is shown whole."""
_MOST_ALIKE = 4
"""Tensors that differ in a number of their name alone, and have a row each."""


@dataclass(frozen=True, kw_only=True)
class _Inspected:
    bundle: Path = argument(type=InputPath())
    kernel: str | None = option(
        "--kernel", metavar="NAME", help="Print the source of one kernel and nothing else."
    )


@click.command("inspect", cls=Command)
@give_options(_Inspected)
def inspect_command(given: _Inspected) -> None:
    """Show what is in BUNDLE.

    Inputs and outputs, target and options, kernels, memory, versions, digests; of a folder for a
    core its layers and what they take.
    """
    from adrenoc.bundle.buckets import read_signatures
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.editions import read_editions
    from adrenoc.bundle.manifest import to_plain

    if given.kernel is None and inspect_if_firmware(given.bundle):
        return
    refuse_firmware(given.bundle)
    opened = open_bundle(given.bundle)
    if given.kernel is not None:
        say(printable(_source(opened, given.kernel), lines=True))
        return
    editions = read_editions(opened)
    more: dict[str, object] = {"editions": editions} if editions else {}
    if signatures := read_signatures(opened):
        more["signatures"] = signatures
    console.tell({**to_plain(opened.manifest), **more}, lambda: _show(opened))


def _source(bundle: Bundle, name: str) -> str:
    from adrenoc.bundle.editions import name_parts

    # Of several parts with such a kernel, that of the largest shapes, and of any Adreno.
    parts = name_parts(bundle).values()
    sources = {kernel.name: kernel.source for part in parts for kernel in part.kernels()}
    if name not in sources:
        raise BundleError(
            f'{bundle.path} has no kernel "{name}"{did_you_mean(name, list(sources))}',
            hint=f"adrenoc inspect {quote_word(bundle.path)} lists its kernels",
        )
    return sources[name]


def _show(bundle: Bundle) -> None:
    manifest, library = bundle.manifest, bundle.manifest.library
    console.print_title(
        manifest.name,
        f"{console.size(bundle.bytes)} in {console.count_of(len(manifest.files), 'file')}",
    )
    console.print_fields(
        [
            ("model", f"{manifest.model.file} ({manifest.model.format})"),
            ("target", f"{manifest.target.name} ({manifest.target.llvm_triple})"),
            ("options", ", ".join(starmap(_tell_option, manifest.options.values.items()))),
            (
                "library",
                f"{library.machine}, {library.page_bytes // 1024} KiB pages, "
                f"needs {', '.join(library.needed) or 'nothing'}",
            ),
            ("memory", _memory(bundle)),
            *_tell_decoder(bundle),
            *list_assumed(bundle.decisions()),
            ("made with", ", ".join(map(" ".join, manifest.versions.items()))),
        ]
    )
    console.blank()
    console.print_table(
        ("", "name", "shape", "dtype", "layout"),
        [*_tensors("input", manifest.inputs), *_tensors("output", manifest.outputs)],
    )
    _show_parts(bundle)
    console.blank()
    console.print_table(
        ("kernel", "family", "calls", "work-group", "groups", "arguments in", "schedule"),
        [
            (
                kernel.name,
                kernel.family,
                str(kernel.calls),
                console.dims(kernel.work_group),
                console.dims(kernel.grid),
                _scopes(kernel.scopes),
                "tuned" if kernel.tuned else "",
            )
            for kernel in manifest.kernels
        ],
        right=("calls", "work-group", "groups"),
    )
    show_regions(manifest.regions)
    console.blank()
    console.print_table(("file", "size", "SHA-256"), _files(manifest.files), right=("size",))


def _show_parts(bundle: Bundle) -> None:
    """Show what is for other shapes, and for single GPUs."""
    _show_buckets(bundle)
    _show_editions(bundle)


def _show_buckets(bundle: Bundle) -> None:
    from adrenoc.bundle.buckets import read_buckets

    buckets = read_buckets(bundle)
    if buckets is None:
        return
    console.blank()
    if buckets.signatures:
        console.print_table(
            ("signature", "folder", "", "name", "shape", "dtype", "layout"),
            [
                (entry.signature, entry.folder, *row)
                for entry in reversed(buckets.buckets)
                for row in (*_tensors("input", entry.inputs), *_tensors("output", entry.outputs))
            ],
        )
        return
    # Caches have the same shape in all.
    shapes = {
        spec.name: [console.dims(entry.inputs[number].shape) for entry in buckets.buckets]
        for number, spec in enumerate(bundle.manifest.inputs)
    }
    differ = {name: column for name, column in shapes.items() if len(set(column)) > 1}
    folders = [entry.folder for entry in buckets.buckets]
    console.print_table(("bucket", *differ), list(zip(folders, *differ.values(), strict=True)))
    refused = buckets.batch.refused
    said = f"not filled up: {refused}" if refused else "a smaller one is filled up, which is exact"
    console.print_fields([("batch", said)])


def _show_editions(bundle: Bundle) -> None:
    """Show what the bundle has for single GPUs; nothing where it is for one device."""
    from adrenoc.bundle.editions import open_edition, read_editions
    from adrenoc.bundle.gates import figures_of

    rows = []
    for edition in read_editions(bundle):
        part = open_edition(bundle, edition)
        figures = figures_of(part)
        moved = sum(1 for spec in part.manifest.params if spec.name in bundle.moves())
        constants = f"{len(part.manifest.params)}, {moved} moved"
        memory = console.size(figures.memory_bytes)
        counts = str(figures.kernels), str(figures.launches)
        rows.append((edition.title, edition.folder, *counts, memory, constants))
    if rows:
        columns = ("kernels for", "folder", "kernels", "launches", "memory", "constants")
        console.blank()
        console.print_table(columns, rows, right=columns[2:5])


def _memory(bundle: Bundle) -> str:
    memory, params = bundle.manifest.memory, bundle.manifest.params
    textures = sum(1 for spec in params if "texture" in spec.scope)
    return (
        f"{console.size(memory.peak_bytes)} of the GPU: "
        f"{console.size(memory.param_bytes)} in {console.count_of(len(params), 'constant')} "
        f"({textures} in textures), "
        f"{console.size(memory.slot_bytes)} in {console.count_of(len(memory.slots), 'slot')}, "
        f"{console.size(memory.input_bytes + memory.output_bytes)} inputs and outputs"
    )


def _tell_decoder(bundle: Bundle) -> list[tuple[str, str]]:
    """Tell a language model's context, what ends a text, and how it is talked to."""
    from adrenoc.bundle.bundle import CHAT, TOKENIZER
    from adrenoc.bundle.chat import find_pictures, read_chat
    from adrenoc.bundle.talk import how_to_talk, is_decoder
    from adrenoc.device.generate import count_rows

    if not is_decoder(bundle.manifest):
        return []
    ends = ", ".join(map(str, bundle.manifest.end_tokens)) or "none"
    words = "no tokenizer"
    if bundle.file(TOKENIZER).is_file():
        words = "a tokenizer, no template of chats"
    if bundle.file(CHAT).is_file():
        words = f"a tokenizer and a template of chats; {read_chat(bundle).sampling.describe()}"
    pictures = find_pictures(bundle, is_given=False)
    if pictures is not None and pictures.rows:
        words += f"; pictures of {pictures.rows} rows"
    return [
        ("decoder", f"up to {count_rows(bundle)} tokens, end tokens {ends}; {words}"),
        ("talk", how_to_talk(bundle.path, bundle.manifest)),
    ]


def _tell_option(name: str, value: Any) -> str:
    """Write an option out, of a long list the number of its entries: the tables show what it
    holds."""
    text = json.dumps(value)
    is_long = isinstance(value, list | tuple) and len(text) > _LONGEST_VALUE
    return f"{name} = {f'{len(value)} of them' if is_long else text}"


def _tensors(kind: str, specs: tuple[TensorSpec, ...]) -> list[tuple[str, ...]]:
    """List a row for each tensor, one for many that differ in a number of their name alone, as the
    caches of a decoder do."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for spec in specs:
        said = console.dims(spec.shape), spec.dtype, spec.layout
        alike.setdefault((re.sub(r"\d+", "#", spec.name), *said), []).append(spec.name)
    folded = {n: names for names in alike.values() if len(names) > _MOST_ALIKE for n in names}
    rows: list[tuple[str, ...]] = []
    for spec in specs:
        names = folded.get(spec.name, [spec.name])
        if spec.name == names[0]:
            name = f"{names[0]} to {names[-1]}, {len(names)} of them" if names[1:] else names[0]
            rows.append((kind, name, console.dims(spec.shape), spec.dtype, spec.layout))
    return rows


def _scopes(scopes: tuple[str, ...]) -> str:
    """Tell where each tensor argument lies, in order: `texture x2, buffer`."""
    places = groupby("texture" if "texture" in scope else "buffer" for scope in scopes)
    counts = ((place, len(list(run))) for place, run in places)
    return ", ".join(place if count == 1 else f"{place} x{count}" for place, count in counts)


def _files(entries: tuple[FileEntry, ...]) -> list[tuple[str, str, str]]:
    """List a row for each file, one for all kernels of a folder."""
    kernels: dict[str, list[FileEntry]] = {}
    rows = []
    for entry in entries:
        folder, found, _ = entry.path.rpartition("kernels/")
        if found:
            kernels.setdefault(folder + found, []).append(entry)
        else:
            rows.append((entry.path, console.size(entry.bytes), entry.sha256[:16]))
    for folder, inside in kernels.items():
        whole = console.size(sum(entry.bytes for entry in inside))
        rows.append((f"{folder} ({console.count_of(len(inside), 'file')})", whole, ""))
    return rows
