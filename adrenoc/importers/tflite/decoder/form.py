"""A TFLite decoder as plans see it: its caches, their rows, and the lengths of its calls."""

from __future__ import annotations

from adrenoc.importers.decoder_spec import CacheSpec, DecoderForm
from adrenoc.importers.tflite.decoder.caches import find_caches
from adrenoc.importers.tflite.decoder.roles import read_calls
from adrenoc.importers.tflite.file import TFLiteFile


def decoder_form(file: TFLiteFile) -> DecoderForm:
    """Return the form of a file of which `is_decoder` says that it is one.

    Raises:
        UnsupportedOperatorError: its signatures are not covered.
    """
    calls = read_calls(file)
    caches = find_caches(calls[0])
    return DecoderForm(
        caches=tuple(
            CacheSpec(
                past=cache.name,
                present=cache.name,
                heads=cache.heads,
                head=cache.head,
                dtype=cache.dtype,
            )
            for cache in caches.values()
        ),
        masked=False,
        positions=False,
        context=0,
        rows=min(cache.rows for cache in caches.values()),
        lengths=tuple(call.length for call in calls if call.length > 1),
    )
