"""Add to a language model's bundle what the runtime of a phone needs to read and write text."""

from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AdrenocError
from adrenoc.bundle.bundle import CHAT, TEXT_TABLES, TOKENIZER
from adrenoc.bundle.chat import ChatSettings, parse_chat
from adrenoc.bundle.sampling import Sampling
from adrenoc.language.tokenizer import Tokenizer

_MOST_CPU_S = 120
"""Processor time of making tables: vocabularies of 262,144 tokens take 6 s."""


def add_text_tables(
    words: Mapping[str, bytes],
) -> tuple[dict[str, bytes], tuple[Decision, ...]]:
    """Return a bundle's files of text with that of tables, where its tokenizer.json allows it."""
    if TOKENIZER not in words:
        return dict(words), ()
    no_turns, sampling = "", Sampling()
    try:
        text = words[TOKENIZER].decode()
        tokenizer = Tokenizer(Path(TOKENIZER), text, most_cpu_s=_MOST_CPU_S)
        if CHAT in words:
            settings = parse_chat(words[CHAT], CHAT)
            sampling, no_turns = settings.sampling, _take_template(tokenizer, settings)
        told = tokenizer.make_tables(sampling)
    except (AdrenocError, UnicodeDecodeError) as error:
        reason = error.message if isinstance(error, AdrenocError) else str(error)
        return dict(words), (_leave_out("text on the device", reason),)
    if told["left_out"]:
        reason = f"tables do not hold {told['left_out']}"
        return dict(words), (_leave_out("text on the device", reason),)
    made = b64decode(told["tables"])
    decided = [
        Decision(
            subject="text on the device",
            taken=f"{TEXT_TABLES}, {len(made):,} bytes",
            reason="C, Java and Kotlin turn text into tokens by them",
        )
    ]
    if reason := no_turns or told["turns"]:
        decided.append(_leave_out("chats on the device", reason))
    return {**words, TEXT_TABLES: made}, tuple(decided)


def _take_template(tokenizer: Tokenizer, settings: ChatSettings) -> str:
    """Return why a template cannot be taken; "" where it is."""
    try:
        tokenizer.read_template(settings)
    except AdrenocError as error:
        return error.message
    return ""


def _leave_out(subject: str, reason: str) -> Decision:
    return Decision(subject=subject, taken="left out", reason=reason)
