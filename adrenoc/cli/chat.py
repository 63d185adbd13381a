"""`adrenoc chat BUNDLE`: a conversation with a language model, here, on a server or on a phone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import InputError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.report import Title
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.console import say_aside, say_json
from adrenoc.cli.generate import reach_place
from adrenoc.cli.guarded import HeavyCommand, InputPath, argument, give_options, option, wants_json
from adrenoc.cli.model_params import Said, apply_sample, sample_option
from adrenoc.cli.options import PlaceChoice, input_option, place_option, seed_option

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.inputs import InputFile
    from adrenoc.device.conversation import Conversation
    from adrenoc.device.generate import Decoder, Wish

BESIDE_TOKENS = "What the model takes beside tokens: .npz, or .onnx_adapter (LoRA)."
_BLANK = b"P6 8 8 255\n" + bytes(8 * 8 * 3)
"""An image."""
_PROMPT = "> "
_HELP = """\
/reset         forget what was said
/system TEXT   what the model is told before all; begins anew
/save FILE     write what was said as JSON
/help          these words
/exit          end; so do Ctrl-D and Ctrl-C"""


@dataclass(frozen=True, kw_only=True)
class _Chat:
    path: Path = argument(metavar="BUNDLE")
    system: str | None = option("--system TEXT", help="What the model is told before all.")
    most: int = option(
        "--max-tokens",
        type=click.IntRange(min=0),
        default=0,
        help="The most tokens of an answer; 0 is all that the context has room for.",
    )
    sample: Said = sample_option()
    grammar: Path | None = option(
        "--grammar FILE",
        help="The form of each answer: a JSON schema, or a grammar in GBNF or Lark.",
    )
    stops: tuple[str, ...] = option("--stop TEXT", help="End an answer before TEXT.")
    seed: int = seed_option("Of what is drawn.")
    picture: tuple[Path, Path] | None = option(
        "--image ENCODER FILE",
        type=(InputPath(), InputPath()),
        help="What the first message shows: the bundle of the model's encoder, and an image.",
    )
    files: tuple[InputFile, ...] = input_option(BESIDE_TOKENS)
    place: PlaceChoice = place_option()


@click.command("chat", cls=HeavyCommand)
@give_options(_Chat)
def chat_command(given: _Chat) -> None:
    """Talk with a language model.

    Each line is a message, and /help lists what else a line may say.  From turn to turn the model
    reads what its caches do not hold yet.  With --json each answer is a line with what it took.

    \b
    adrenoc compile SmolLM2-135M-Instruct --dtype q4 -o chat.adrenoc
    adrenoc chat chat.adrenoc --on adb
    """
    with open_talker(
        given.path,
        given.place,
        most=given.most,
        sample=given.sample,
        seed=given.seed,
        grammar=given.grammar,
        eyes=given.picture,
        files=given.files,
    ) as talker:
        for note in talker.decoder.notes:
            say_aside(note)
        talk = _Talk(talker, given.stops, given.system or "", wants_json())
        for line in _lines(talker.bundle):
            if not talk.take(line):
                break


@dataclass(frozen=True, kw_only=True)
class Talker:
    """A language model that is loaded and ready to talk; `wish` is what is generated unasked.
    Without a template it only continues texts."""

    bundle: Bundle
    decoder: Decoder
    conversation: Conversation
    wish: Wish
    has_template: bool


@contextmanager
def open_talker(
    path: Path,
    place: PlaceChoice,
    *,
    most: int = 0,
    sample: Said = (),
    seed: int = 0,
    grammar: Path | None = None,
    eyes: tuple[Path, Path | None] | None = None,
    files: Sequence[InputFile] = (),
    needs_template: bool = True,
) -> Iterator[Talker]:
    """Load a bundle at a place; `eyes` are the bundle of its encoder and an image, or None where
    others come, `files` what the model takes beside tokens.

    Tokens are picked as the model's makers say, but for what `sample` names. Raises InputError
    where it is no decoder, has no tokenizer, or no template where one is needed.
    """
    from adrenoc.bundle.bundle import CHAT, TOKENIZER, open_bundle
    from adrenoc.bundle.chat import ChatSettings, find_pictures, read_chat
    from adrenoc.check.inputs import InputFile
    from adrenoc.cli.generate import EncoderInputs, run_encoders
    from adrenoc.device.conversation import Conversation
    from adrenoc.device.generate import Decoder, Wish, check_is_decoder, other_inputs
    from adrenoc.language.tokenizer import Tokenizer, read_grammar

    bundle = open_bundle(path)
    check_is_decoder(bundle)
    has_template = bundle.file(CHAT).is_file()
    settings = read_chat(bundle) if has_template or needs_template else ChatSettings(template="")
    if not bundle.file(TOKENIZER).is_file():
        raise InputError(
            f"{path} has no {TOKENIZER}: none lay beside the model",
            hint="adrenoc compile MODEL --tokenizer FILE",
        )
    tokenizer = Tokenizer(bundle.file(TOKENIZER))
    if has_template:
        tokenizer.read_template(settings)
    sampling = apply_sample(replace(settings.sampling, seed=seed), sample)
    wish = Wish(
        most=most,
        ends=bundle.manifest.end_tokens,
        sampling=sampling,
        grammar=None if grammar is None else read_grammar(grammar),
    )
    with reach_place(bundle, place) as there:
        image = eyes[1] if eyes else None
        pictures = find_pictures(bundle, is_given=image is not None)

        def make_inputs(image: Path | None) -> Mapping[str, np.ndarray]:
            images = [InputFile(path=image)] if image else []
            offer = EncoderInputs([*images, *files], pictures)
            run_encoders(there, eyes[:1] if eyes else (), offer, ())
            others = other_inputs(bundle) if eyes or files else ()
            return offer.take(bundle, others, is_last=True)

        def look(picture: bytes) -> Mapping[str, np.ndarray]:
            with TemporaryDirectory() as folder:
                image = Path(folder, "picture.png")  # whatever it is of the kinds that Pillow reads
                image.write_bytes(picture)
                try:
                    return make_inputs(image)
                except InputError as error:
                    said = error.message.replace(str(image), "the picture")
                    raise InputError(said, hint=error.hint) from error

        waits = eyes is not None and image is None
        if waits and pictures is None:
            raise InputError(
                f"{path} takes no pictures", hint=f"adrenoc serve --openai {quote_word(path)}"
            )
        # One that is blank says whether the two go together, before anybody asks.
        decoder = Decoder(there, bundle, given=look(_BLANK) if waits else make_inputs(image))
        yield Talker(
            bundle=bundle,
            decoder=decoder,
            conversation=Conversation(decoder, tokenizer, pictures, look if waits else None),
            wish=wish,
            has_template=has_template,
        )


def _lines(bundle: Bundle) -> Iterator[str]:
    """Yield the lines that the user types, or that a file or another program gives."""
    typed = sys.stdin.isatty()
    if typed:
        how = "/help lists commands, Ctrl-D ends"
        console.draw(Title(text=bundle.manifest.name, detail=how))
    while True:
        try:
            line = input(_PROMPT) if typed else sys.stdin.readline()
        except EOFError:
            return
        if not typed and not line:
            return
        if line.strip():
            yield line.strip()


@dataclass
class _Talk:
    """A conversation as a person types it."""

    talker: Talker
    stops: tuple[str, ...]
    system: str
    as_json: bool
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reset()

    def take(self, line: str) -> bool:
        """Do what a line says; return whether there is to be another."""
        word, _, rest = line.partition(" ")
        if word == "/exit":
            return False
        if word == "/help":
            console.print_piece(_HELP + "\n")
        elif word == "/reset":
            self._reset()
        elif word == "/system":
            self.system = rest.strip()
            self._reset()
        elif word == "/save":
            self._save(rest.strip())
        elif word.startswith("/") and word[1:].isalpha():
            console.print_piece(f"there is no {word}\n{_HELP}\n")
        else:
            self._say(line)
        return True

    def _reset(self) -> None:
        self.messages = [{"role": "system", "content": self.system}] if self.system else []

    def _say(self, text: str) -> None:
        asked = [*self.messages, {"role": "user", "content": text}]
        show = (lambda piece: None) if self.as_json else console.print_piece
        started = time.perf_counter()
        try:
            for piece in self.talker.conversation.answer(asked, self.talker.wish, self.stops):
                show(piece)
        except InputError as error:
            if self.as_json:
                raise
            console.print_piece(f"{error.message}\n{error.hint}\n")
            return
        spent_s = time.perf_counter() - started
        reply = self.talker.conversation.reply
        self.messages = [*asked, {"role": "assistant", "content": reply.text}]
        if self.as_json:
            say_json({**asdict(reply), "time_ms": spent_s * 1000}, indent=None)
            return
        full = f"; the context of {self.talker.decoder.rows} rows is full, /reset begins anew"
        console.print_piece("\n")
        say_aside(
            f"{reply.prompt} tokens read, {reply.kept} of them known; {reply.tokens} said, "
            f"{reply.tokens / spent_s:.1f} a second{full if reply.ended == 'full' else ''}"
        )

    def _save(self, name: str) -> None:
        if not name:
            console.print_piece("name a file: /save chat.json\n")
            return
        text = json.dumps({"messages": self.messages}, indent=1, ensure_ascii=False)
        write_atomically(Path(name), text + "\n")
        console.print_piece(f"{len(self.messages)} messages are in {name}\n")
