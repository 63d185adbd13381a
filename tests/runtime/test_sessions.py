"""A decoder's tokens from the runtime without Python and from servers: those of Python's loop."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from adrenoc.base.errors import InputError, RemoteError
from adrenoc.bundle.bundle import Bundle
from adrenoc.cli.main import main
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.remote import remote_place
from adrenoc.device.run import local_place
from adrenoc.native.android.runtime_build import Runtime
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.runtime.programs import Finished, compile_against
from tests.runtime.servers import Served, address_of, native_server, python_server

Execute = Callable[..., Finished]

ROWS = 40
PROMPT = (3, 5, 7, 11, 2, 9)
UNSUPPORTED = 29
CONTEXT_FULL = 31


@pytest.fixture(scope="module")
def decoder_bundle(device, tmp_path_factory) -> Bundle:
    shape = DecoderShape(layers=1, context=ROWS)
    model = write_decoder(tmp_path_factory.mktemp("decoder"), shape)
    return make_decoder_bundle(model, "fp32")[0]


@pytest.fixture(scope="module")
def tokens(decoder_bundle) -> list[int]:
    """All that the context has room for, by the loop here."""
    with local_place(decoder_bundle, "") as place:
        return make_all(Decoder(place, decoder_bundle))


def make_all(decoder: Decoder) -> list[int]:
    *before, last = PROMPT
    decoder.take_in(before)
    made = [token for some in decoder.generate(last, Wish()) for token in some]
    assert decoder.ended == "full"
    assert len(made) == ROWS - len(PROMPT) + 1
    return made


def test_a_session_in_cpp(runtime, decoder_bundle, tokens, opencl, execute, tmp_path):
    program = compile_against(runtime, "session_program.cc", tmp_path / "session")
    done = execute(program, decoder_bundle.path, opencl, *PROMPT)
    assert [int(token) for token in done.out.split()] == tokens


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param({"conv_taps": 3}, marks=pytest.mark.nightly),
        {"slides": True, "window": 6, "alternating": True},
    ],
    ids=str,
)
def test_a_session_with_states_that_forget_no_token(
    runtime, device, opencl, execute, tmp_path, layers
):
    # The same program: what is rewound, stopped, ended and restored goes on as if nothing had been.
    model = write_decoder(tmp_path, DecoderShape(layers=2, context=ROWS, **layers))
    bundle, _ = make_decoder_bundle(model, "fp32")
    with local_place(bundle, "") as place:
        tokens = make_all(Decoder(place, bundle))
    program = compile_against(runtime, "session_program.cc", tmp_path / "session")
    done = execute(program, bundle.path, opencl, *PROMPT)
    assert [int(token) for token in done.out.split()] == tokens


def test_the_runner_streams_tokens(runtime, decoder_bundle, bundle, tokens, opencl, execute):
    ids = ",".join(map(str, PROMPT))
    command = [runtime.runner, decoder_bundle.path, "--opencl", opencl, "--prompt", ids]
    line, said = execute(*command).out.splitlines()
    assert [int(token) for token in line.split()] == tokens
    told = json.loads(said)
    assert (told["full"], told["tokens"], told["rows"]) == (True, len(tokens), ROWS)
    # The last token that was made found no room.
    assert told["context"] == ROWS
    few = execute(*command, "--max-tokens", 4, "--end", 10**6).out.splitlines()[0]
    assert [int(token) for token in few.split()] == tokens[:4]
    drawn = [*command, "--max-tokens", 8, "--temperature", "1.5", "--top-p", "0.9", "--seed"]
    lines = [execute(*drawn, seed).out.splitlines()[0] for seed in (4, 4, 5)]
    assert lines[0] == lines[1] != lines[2]
    refused = execute(*command[:-1], ",".join(["1"] * (ROWS + 1)), expect=CONTEXT_FULL)
    assert f"the context is full: it has {ROWS} rows, 0 of them hold tokens" in refused.err
    other = [runtime.runner, bundle.path, "--opencl", opencl, "--prompt", ids]
    assert "no decoder" in execute(*other, expect=UNSUPPORTED).err


@pytest.mark.parametrize("kind", ["python", "native"])
def test_tokens_of_a_server(kind, decoder_bundle, tokens, runtime, opencl):
    with serve(kind, runtime, opencl) as (_, port):
        where = address_of(port)
        with remote_place(decoder_bundle, where, "") as place:
            decoder = Decoder(place, decoder_bundle)
            assert make_all(decoder) == tokens
            with pytest.raises(InputError, match="the context is full"):
                decoder.step(1)
            decoder.rewind(len(PROMPT))
            saved = decoder.save()
            again, row = decoder.step(tokens[0], logits=True)
            assert again == tokens[1] == row.argmax() if row is not None else False
            decoder.restore(saved)
            assert decoder.step(tokens[0])[0] == tokens[1]


def test_tokens_by_command(decoder_bundle, tokens, opencl, capsys):
    model = decoder_bundle.path.parent / "model.onnx"
    ids = ",".join(map(str, PROMPT))
    with python_server() as (_, port):
        run = ["run", str(decoder_bundle.path), "--on", f"127.0.0.1:{port}", "--prompt-ids", ids]
        assert main([*run, "--max-tokens", "8", "--check", str(model), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["tokens"] == tokens[:8]
        assert said["check"]["equal"] == 8
        assert main([*run, "--max-tokens", "3"]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(" ".join(map(str, tokens[:3])))


@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_server_that_dies_among_tokens(kind, decoder_bundle, runtime, opencl):
    def generate(server: int, port: int) -> None:
        with remote_place(decoder_bundle, address_of(port), "") as place:
            decoder = Decoder(place, decoder_bundle)
            for some in decoder.generate(1, Wish(with_logits=True)):
                assert some
                kill_sessions(server)

    with (
        serve(kind, runtime, opencl) as (server, port),
        pytest.raises(RemoteError, match="left or did not answer"),
    ):
        generate(server.pid, port)


def serve(kind: str, runtime: Runtime, opencl: str) -> Served:
    return python_server() if kind == "python" else native_server(runtime, opencl)


def kill_sessions(server: int) -> None:
    """The processes of a server's sessions."""
    for child in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
