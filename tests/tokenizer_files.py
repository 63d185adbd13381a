"""Tokenizers of the kinds that language models come with, made small, and texts to try them."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WORDS = (
    *("the", "quick", "don't", "I'LL", "it's", "12345", "3.14", "foo_bar()", "<div>", "{}", ";"),
    *("", "\n\n", "\r\n", "\t", "▁", "▁▁", "½", "Ⅷ", "\uff11\uff12", "\u017f's", "http://x.y/z?a"),
    *(
        "naïve",
        "Straße",
        "你好",
        "世界",
        "こんにちは",
        "안녕",
        "สวัสดี",
        "नमस्ते",
        "مرحبا",
        "שלום",
        "Привет",
    ),
    *("👩\u200d👩\u200d👧", "🇩🇪", "<0x41>", "Γειά"),
    *("e\u0301", "\u1100\u1161\u11a8", "\u0307\u0323", "a\u0315\u0300\u05ae\u0062"),
)
_SCRIPTS = (
    (0x00, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x3040, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
)  # fmt: skip
END = "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_bytes(*, pattern: str = _GPT4, size: int = 600, **said) -> dict[str, Any]:
    """A tokenizer.json of the kind of Qwen's and Llama 3's: text in a normal form, cut by a
    pattern, as bytes."""
    made: dict[str, Any] = json.loads(_train_bytes(pattern, size))
    return made | said


@cache
def _train_bytes(pattern: str, size: int) -> str:
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    cuts = [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    made = _train(
        size,
        special=["<|im_start|>", END, "<|x|>"],
        alphabet=pre_tokenizers.ByteLevel.alphabet(),
        normalizer=normalizers.NFC(),
        pre_tokenizer=pre_tokenizers.Sequence(cuts),
        decoder=decoders.ByteLevel(),
    )
    return json.dumps(made)


def _make_old_bytes() -> dict[str, Any]:
    """GPT-2's kind: ByteLevel cuts, each digit by itself, as SmolLM has it, and marks, as Falcon; a
    text begins blank."""
    from tokenizers import pre_tokenizers

    made = make_bytes()
    cuts = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
    ]
    made["normalizer"] = None
    made["pre_tokenizer"] = _json_of(pre_tokenizers.Sequence(cuts))
    return made


def _make_other_cuts() -> dict[str, Any]:
    """DeepSeek's kind, of several patterns, and GPT-4's, whose matches are what is left."""
    from tokenizers import Regex, pre_tokenizers

    made = make_bytes(pattern=_O200K)
    cuts = [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u3040-\u30ff]+"), "merged_with_next"),
        pre_tokenizers.Split(Regex(_O200K), "removed", invert=True),
        pre_tokenizers.Split("_", "contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    made["pre_tokenizer"] = _json_of(pre_tokenizers.Sequence(cuts))
    made["model"]["ignore_merges"] = True
    for token in made["added_tokens"][:2]:
        token |= {"lstrip": True, "rstrip": True, "special": False}
    made["added_tokens"][2]["normalized"] = True
    return made


def _make_letters(**said) -> dict[str, Any]:
    """Llama 2's and Gemma's kind: letters, bytes of those that no token has, blanks as ▁."""
    from tokenizers import decoders, normalizers, pre_tokenizers, processors

    made = _train(
        900,
        special=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizer=pre_tokenizers.Split("▁", "merged_with_next"),
        decoder=decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
    )
    made["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    made["added_tokens"] = made["added_tokens"][:3]
    processor = processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    made["post_processor"] = _json_of(processor)
    return made | said


def _make_pieces() -> dict[str, Any]:
    """Gemma 2's kind: a piece is a word and the blank behind it; letters that are no token."""
    from tokenizers import pre_tokenizers

    made = _make_letters(
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer=_json_of(pre_tokenizers.Split(" ", "merged_with_previous")),
        post_processor=None,
    )
    made["model"] |= {"byte_fallback": False, "fuse_unk": False}
    made["decoder"]["decoders"].pop()
    return made


def _make_metaspace() -> dict[str, Any]:
    """Mistral's newer kind: only what a text begins with gets a blank."""
    from tokenizers import pre_tokenizers

    metaspace = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=True)
    return _make_letters(normalizer=None, pre_tokenizer=_json_of(metaspace))


def _make_scores(**said) -> dict[str, Any]:
    """T5's kind: letters by a map of SentencePiece, words, and tokens of the best scores."""
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    metaspace = {"replacement": "▁", "prepend_scheme": "always"}
    cuts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**metaspace)]
    made = _train(
        500,
        special=["<pad>", "</s>", "<unk>", "<extra_id_0>"],
        model=models.Unigram(),
        trainer=trainers.UnigramTrainer,
        lines=0,  # all their letters would have to be tokens
        normalizer=_make_map(),
        pre_tokenizer=pre_tokenizers.Sequence(cuts),
        decoder=decoders.Metaspace(**metaspace),
        post_processor=processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)]),
    )
    # CamemBERT's has its unknown token twice.
    made["model"]["vocab"].append(["<unk>", 0.0])
    made["model"]["unk_id"] = 2
    return made | said


def _make_scores_of_bytes() -> dict[str, Any]:
    """mT5's kind and ALBERT's: bytes of what no token has; accents and blanks are left out."""
    from tokenizers import Regex, decoders, normalizers

    changes = [
        normalizers.Replace("``", '"'),
        normalizers.Nmt(),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Strip(left=True, right=True),
        normalizers.Replace(Regex(" {2,}"), "▁"),
    ]
    writes = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made = _make_scores(
        normalizer=_json_of(normalizers.Sequence(changes)),
        decoder=_json_of(decoders.Sequence([*writes, decoders.Strip(" ", 1, 0)])),
    )
    made["model"]["byte_fallback"] = True
    made["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
    return made


def _make_words(**said) -> dict[str, Any]:
    """BERT's kind, of small letters without accents, with texts of one length."""
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    made = _train(
        900,
        special=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        model=models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20),
        trainer=trainers.WordPieceTrainer,
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
        post_processor=processors.TemplateProcessing(
            "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        ),
    )
    made["truncation"] = {
        "max_length": 24, "stride": 0, "strategy": "LongestFirst", "direction": "Right"
    }  # fmt: skip
    made["padding"] = {
        "strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    return made | said


def _make_words_of_any_case() -> dict[str, Any]:
    """DistilBERT's kind with its letters as they are, and a decoder that leaves blanks."""
    from tokenizers import decoders, normalizers

    return _make_words(
        normalizer=_json_of(normalizers.BertNormalizer(lowercase=False)),
        decoder=_json_of(decoders.WordPiece(cleanup=False)),
        truncation=None,
        padding=None,
    )


def _make_map():
    """A map as SentencePiece's nmt_nfkc is: a double-array trie of UTF-8, and texts."""
    import unicodedata

    from tokenizers import normalizers

    points = [p for least, most in _SCRIPTS for p in range(least, most + 1)]
    letters = [chr(p) for p in (*points, 0x2122, 0x3000, 0xFB01, 0xFF21)]
    made = {one: new for one in letters if (new := unicodedata.normalize("NFKC", one)) != one}
    for letter in letters:
        apart = unicodedata.normalize("NFD", letter)
        if len(apart) > 1 and apart.isprintable():
            made[apart] = unicodedata.normalize("NFC", apart)
    made |= {one: " " for one in letters if one.isspace()}
    made |= {chr(p): "" for p in (*range(1, 9), *range(14, 32), 0x200B, 0x200D, 0x200F)}
    texts = "".join(f"{text}\0" for text in dict.fromkeys(made.values())).encode()
    values = {one.encode(): texts.find(f"{text}\0".encode()) for one, text in made.items()}
    trie = _make_trie({key: value for key, value in values.items() if b"\0" not in key})
    return normalizers.Precompiled(len(trie).to_bytes(4, "little") + trie + texts)


def _make_trie(values: dict[bytes, int]) -> bytes:
    """A double-array trie as Darts-clone writes it."""
    children: dict[bytes, set[int]] = {}
    for key in values:
        for length, byte in enumerate(key):
            children.setdefault(key[:length], set()).add(byte)
    units, taken, first = {0: 0}, {0}, 1
    waiting = [(b"", 0)]
    while waiting:
        key, at = waiting.pop()
        labels = sorted(children.get(key, ()))
        wanted = [0, *labels] if key in values else labels
        while first in taken:
            first += 1
        base = next(
            base
            for base in range(first, 1 << 21)
            if at ^ base < 1 << 21 and taken.isdisjoint(base ^ label for label in wanted)
        )
        units[at] |= (at ^ base) << 10 | (key in values) << 8
        taken.update(base ^ label for label in wanted)
        if key in values:
            units[base] = 1 << 31 | values[key]
        for label in labels:
            units[base ^ label] = label
            waiting.append((key + bytes([label]), base ^ label))
    size = (max(units) | 0xFF) + 1
    return b"".join(units.get(at, 0).to_bytes(4, "little") for at in range(size))


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "bytes": make_bytes,
    "old bytes": _make_old_bytes,
    "other cuts": _make_other_cuts,
    "letters": _make_letters,
    "pieces": _make_pieces,
    "metaspace": _make_metaspace,
    "scores": _make_scores,
    "scores of bytes": _make_scores_of_bytes,
    "words": _make_words,
    "words of any case": _make_words_of_any_case,
}


def draw_lines(tokens: list[str], count: int, seed: int) -> Iterator[str]:
    """Texts of many scripts, words, blanks and tokens, some of which no one would write."""
    drawn = random.Random(seed)

    def some(most: int, make: Callable[[], str], between: str = "") -> str:
        return between.join(make() for _ in range(drawn.randint(1, most)))

    def letters() -> str:
        least, most = drawn.choice(_SCRIPTS)
        text = some(12, lambda: chr(drawn.randint(least, most)))
        return text + drawn.choice(["", " ", "  ", "\n", "'s"])

    def anything() -> str:
        point = drawn.randrange(0x110000 - 0x800)
        return chr(point if point < 0xD800 else point + 0x800)

    def word() -> str:
        return drawn.choice(_WORDS)

    kinds = (
        lambda: some(25, word, " "),
        lambda: some(8, letters),
        lambda: some(30, anything),
        lambda: some(3, lambda: drawn.choice(["", " ", "\n "]) + drawn.choice(tokens) + word()),
    )
    for at in range(count):
        yield kinds[at % len(kinds)]()


def _train(
    size: int,
    *,
    special: list[str],
    alphabet: Sequence[str] = (),
    model=None,
    trainer=None,
    lines: int = 400,
    **parts,
) -> dict[str, Any]:
    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(model or models.BPE())
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    training = (trainer or trainers.BpeTrainer)(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    # A text that stays as it is, so that tokens do.
    license_text = (Path(__file__).parent.parent / "LICENSE").read_text(encoding="utf-8")
    texts = [license_text, " ".join(_WORDS), *draw_lines(special, lines, 0)]
    tokenizer.train_from_iterator(texts, training)
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    return made


def _json_of(part):
    """What a tokenizer.json says of a part."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.BPE())
    kinds = {
        normalizers.Normalizer: "normalizer",
        pre_tokenizers.PreTokenizer: "pre_tokenizer",
        decoders.Decoder: "decoder",
        processors.PostProcessor: "post_processor",
    }
    name = next(name for kind, name in kinds.items() if isinstance(part, kind))
    setattr(tokenizer, name, part)
    return json.loads(tokenizer.to_str())[name]
