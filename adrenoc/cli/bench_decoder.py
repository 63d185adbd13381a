"""`adrenoc run BUNDLE --bench`: what a decoder takes on a device, as text or JSON."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from adrenoc.cli.guarded import wants_json

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.device.bench_decoder import DecoderBench
    from adrenoc.device.generate import Decoder
    from adrenoc.device.place import Place


def bench_decoder(bundle: Bundle, decoder: Decoder, place: Place) -> int:
    """Measure a loaded decoder, and show what was found."""
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.bundle.buckets import open_buckets
    from adrenoc.bundle.decoder_names import TOKENS
    from adrenoc.cli import console
    from adrenoc.device.bench_decoder import measure_decoder

    parts = [part.manifest.inputs for part in open_buckets(bundle)]
    lengths = sorted(spec.shape[-1] for specs in parts for spec in specs if spec.name == TOKENS)
    with nullcontext(SilentReporter()) if wants_json() else console.ConsoleReporter() as reporter:
        found = measure_decoder(decoder, place, lengths, reporter.note)
    return console.tell(found, lambda: _show(bundle.manifest.name, found))


def _show(name: str, found: DecoderBench) -> None:
    from adrenoc.cli import console

    held = found.memory_bytes
    memory = "" if held is None else f", {console.size(held)} of its memory"
    console.print_title(name, f"on {found.device}{memory}")
    console.print_table(
        ("prompt", "time", "tokens a second"),
        [(str(p.tokens), console.ms(p.time_ms), f"{p.tokens_per_s:.1f}") for p in found.prefill],
        right=("prompt", "time", "tokens a second"),
    )
    console.print_table(
        ("context", "a token", "tokens a second"),
        [(str(d.context), console.ms(d.token_ms), f"{d.tokens_per_s:.1f}") for d in found.decode],
        right=("context", "a token", "tokens a second"),
    )
    launching = found.launching
    by = f"{launching.launches} launches by {launching.mode}, {launching.host_ms:.2f} ms of host"
    fields = [("first token", console.ms(found.first_token_ms)), ("a token", by)]
    fields += [("GPU", str(state)) for state in found.gpu]
    fields += [("note", note) for note in found.notes]
    console.print_fields(fields)
