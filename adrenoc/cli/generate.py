"""`adrenoc run BUNDLE --prompt-ids ...`: a decoder generates tokens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.generation import TokenCheck
    from adrenoc.device.generate import Decoder
    from adrenoc.device.result import ProgramOptions


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Tokens with the time that the prompt and each token took."""

    tokens: list[int]
    prompt_ms: float
    token_ms: float
    context_full: bool


_TAKEN = (
    *("bundle", "prompt_ids", "max_tokens", "reference", "tolerance"),
    *("keep_programs", "qualcomm_programs", "as_json"),
)
"""Parameters of `run` that generating takes, beside those of the place."""


def run_if_prompted(
    ctx: click.Context,
    path: Path,
    asked: tuple[str | None, int, Path | None, float | None],
    where: Mapping[str, Any],
    kept: tuple[bool, bool],
    *,
    as_json: bool,
) -> bool:
    """Whether `--prompt-ids` was given, and the bundle at `path` has generated tokens.

    `asked` are the prompt, how many tokens, the model to compare with and the tolerance; `where`
    the options of the place, `kept` those of built kernels.

    Raises:
        click.UsageError: the place is another machine.
        CheckFailedError: the tokens are not those of the model.
    """
    ids, most, reference, tolerance = asked
    if ids is None:
        return False
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli.decoder import parse_numbers
    from adrenoc.cli.firmware import refuse_others
    from adrenoc.cli.place_options import choose_place, programs_of

    refuse_others(ctx, {*_TAKEN, *where}, "--prompt-ids")
    place = choose_place(**where)
    if place.is_remote:
        raise click.UsageError(
            "--prompt-ids generates on a device of this machine: no --rpc, --tracker or --adb"
        )
    bundle = open_bundle(path)
    prompt = parse_numbers(ids, "token numbers, such as 1,2,3", least=0)
    programs = programs_of(place, *kept)
    wanted = most, reference, tolerance
    code = _run(bundle, place.cl_device, programs, prompt, wanted, as_json=as_json)
    if code:
        ctx.exit(code)
    return True


def _run(
    bundle: Bundle,
    cl_device: str,
    programs: ProgramOptions | None,
    prompt: tuple[int, ...],
    wanted: tuple[int, Path | None, float | None],
    *,
    as_json: bool,
) -> int:
    """Generate tokens and print them as they come; returns the exit code."""
    from adrenoc.check.generation import check_tokens, in_halves
    from adrenoc.cli import console
    from adrenoc.device.compare import default_tolerance
    from adrenoc.device.generate import Decoder, check_is_decoder
    from adrenoc.device.run import local_place
    from adrenoc.errors import CheckFailedError

    most, reference, tolerance = wanted
    check_is_decoder(bundle)
    _check_ids(bundle, prompt)
    with local_place(bundle, cl_device) as device:
        decoder = Decoder(device, bundle, programs)
        exact = reference is not None
        result, logits = _generate(decoder, prompt, most, with_logits=exact, show=not as_json)
    checked: TokenCheck | None = None
    if reference is not None:
        values = bundle.manifest.options.values
        dtypes = [str(values[f"{what}_dtype"]) for what in ("storage", "compute")]
        # A model in halves is known no better than halves are: its reference rounds to them.
        usual = default_tolerance(*("float16" if in_halves(reference) else one for one in dtypes))
        limit = usual if tolerance is None else tolerance
        checked = check_tokens(reference, prompt, result.tokens, logits, tolerance=limit)
    if as_json:
        more = {} if checked is None else {"check": {**asdict(checked), "passed": checked.passed}}
        console.print_json({**asdict(result), **more})
        return 0 if checked is None or checked.passed else CheckFailedError.exit_code
    _show(decoder.rows, result, checked, len(prompt))
    if checked is not None:
        checked.raise_if_failed()
    return 0


def _check_ids(bundle: Bundle, prompt: tuple[int, ...]) -> None:
    """Refuse tokens that the model has no row of.

    Raises:
        InputError: naming the first.
    """
    from adrenoc.errors import InputError

    bounds = next((s.bounds for s in bundle.manifest.inputs if s.name == "input_ids"), ())
    if not bounds:
        return
    for token in prompt:
        if token > bounds[1]:
            raise InputError(
                f"--prompt-ids has the token {token}, expected 0 to {bounds[1]}",
                hint="give the numbers that the model's own tokeniser gives",
            )


def _generate(
    decoder: Decoder, prompt: tuple[int, ...], most: int, *, with_logits: bool, show: bool
) -> tuple[Generated, list[np.ndarray]]:
    from adrenoc.cli import console

    started = time.perf_counter()
    *before, token = prompt
    decoder.take_in(before)
    prompt_ms = (time.perf_counter() - started) * 1000
    tokens: list[int] = []
    logits: list[np.ndarray] = []
    started = time.perf_counter()
    while len(tokens) < most and decoder.length < decoder.rows:
        token, row = decoder.step(token, logits=with_logits)
        tokens.append(token)
        if row is not None:
            logits.append(row)
        if show:
            console.print_piece(f"{token} ")
    if show:
        console.print_piece("\n")
    spent_ms = (time.perf_counter() - started) * 1000
    result = Generated(
        tokens=tokens,
        prompt_ms=prompt_ms,
        token_ms=spent_ms / max(1, len(tokens)),
        context_full=len(tokens) < most,
    )
    return result, logits


def _show(rows: int, result: Generated, checked: TokenCheck | None, prompt: int) -> None:
    from adrenoc.cli import console

    each = result.token_ms
    fields = [
        ("prompt", f"{prompt} tokens, {result.prompt_ms:.1f} ms for all but the last"),
        ("tokens", f"{len(result.tokens)}, {each:.2f} ms each, {1000 / each:.1f} a second"),
    ]
    if result.context_full:
        fields.append(
            ("context", f"full: it has {rows} rows; adrenoc compile MODEL --context {2 * rows}")
        )
    if checked is not None:
        near = f", {checked.near} within the tolerance of its choice" if checked.near else ""
        fields.append(
            (
                "check",
                f"{checked.equal} of {checked.tokens} tokens are the reference's{near}, logits "
                f"within {checked.max_error:.2e} of their range",
            )
        )
    console.print_fields(fields)
