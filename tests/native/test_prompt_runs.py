"""Which entries of a decoder a prompt goes through, from its length and theirs."""

import json

import pytest

ROWS = 2048


def runs_of(device, entries: tuple[int, ...], tokens: int) -> list[int]:
    """The tokens that each run of a prompt takes, by entries that compute nothing."""
    import tvm
    import tvm_ffi

    loop = tvm_ffi.get_global_func("adrenoc.opencl.tokens")(device.index, "off", ROWS)
    none = {"states": [], "recurrent": [], "slack": 0, "picks": False}
    seen: list[int] = []
    for length in entries:
        ids = tvm.runtime.empty((1, length), "int64", device)
        past = tvm.runtime.empty((1,), "int32", device)
        picked = tvm.runtime.empty((1, length), "int64", device)
        logits = tvm.runtime.empty((1, length, 8), "float32", device)
        own = {"picked": 0, "logits": 1, "vocabulary": 8}
        places = {"tokens": length, "ids": 0, "past": 1, **none, **own}

        def main(*_, length: int = length, given=(picked, logits)):
            seen.append(length)
            return tvm_ffi.convert(list(given))

        loop["add_entry"](json.dumps(places), tvm_ffi.convert(main), "", ids, past)
    loop["take_in"](json.dumps([0] * tokens))
    assert loop["length"]() == tokens
    return seen


@pytest.mark.parametrize(
    ("tokens", "runs"),
    [
        (2, [16]),
        (16, [16]),
        (17, [16, 1]),
        (18, [16, 16]),
        (64, [16, 16, 16, 16]),
        (65, [128]),
        (128, [128]),
        (140, [128, 16]),
        (250, [128, 128]),
        (257, [512]),
        (600, [512, 128]),
        (550, [512, 16, 16, 16]),
    ],
)
def test_prompts_take_what_is_cheapest(device, tokens, runs):
    assert runs_of(device, (1, 16, 128, 512), tokens) == runs


def test_runs_that_only_read_the_weights_are_not_repeated(device):
    """A run of 4 takes nearly as long as one of 16: both wait for the weights."""
    assert runs_of(device, (1, 4, 16), 8) == [16]
    assert runs_of(device, (1, 4), 10) == [4, 4, 4]
