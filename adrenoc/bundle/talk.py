"""What a manifest says of a decoder: whether it is one, and by which command it is talked to."""

from pathlib import Path

from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import CHAT, TOKENIZER
from adrenoc.bundle.decoder_names import PAST_LENGTH, TOKENS
from adrenoc.bundle.manifest import Manifest


def is_decoder(manifest: Manifest) -> bool:
    """Return whether a bundle generates tokens: it has caches, and the inputs of a decoder."""
    names = {spec.name for spec in manifest.inputs}
    return bool(manifest.states) and {TOKENS, PAST_LENGTH} <= names


def how_to_talk(path: Path, manifest: Manifest) -> str:
    """Write the command that has the decoder at `path` generate, by the files that it came with."""
    files = {entry.path for entry in manifest.files}
    where = "" if manifest.target.host else " --adb"
    if {CHAT, TOKENIZER} <= files:
        return f"adrenoc chat {quote_word(path)}{where}"
    prompt = '--prompt "Once upon"' if TOKENIZER in files else "--prompt-ids 1,2,3"
    if any("encoder" in spec.name or "cross" in spec.name for spec in manifest.inputs):
        prompt = "--encoder BUNDLE --input NAME=FILE --prompt-ids START"
    return f"adrenoc run {quote_word(path)}{where} {prompt}"
