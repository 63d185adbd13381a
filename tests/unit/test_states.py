"""Which outputs are inputs of the next run: by names of exporters, and as users name them."""

import pytest

from adrenoc.base.errors import OptionError
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.signature import Port, Signature
from adrenoc.importers.states import check_states, expand_states, find_states, parse_state


def port(name: str, *axes: int | str | None, dtype: str = "float32") -> Port:
    return Port(name=name, axes=axes, dtype=dtype)


def signature(inputs: list[str], outputs: list[str]) -> Signature:
    """All of one shape, but for what is no state."""

    def make(names: list[str]) -> tuple[Port, ...]:
        return tuple(port(name, 1, 4) for name in names)

    return Signature(inputs=(*make(inputs), port("frames", 1, 9)), outputs=make(outputs))


@pytest.mark.parametrize(
    ("pasts", "presents"),
    [
        (["state"], ["stateN"]),
        (["h", "c"], ["hn", "cn"]),
        (["h0", "c0"], ["hn", "cn"]),
        (["cached_key_0", "embed_states"], ["new_cached_key_0", "new_embed_states"]),
        (["att_cache", "cnn_cache"], ["r_att_cache", "r_cnn_cache"]),
        (["cache_last_channel"], ["cache_last_channel_next"]),
        (["past_conv.0", "past_conv.1"], ["present_conv.0", "present_conv.1"]),
        (["conv_cache", "tra_cache"], ["conv_cache_out", "tra_cache_out"]),
        (["r1i", "r2i"], ["r1o", "r2o"]),
        (["states_in"], ["states_out"]),
        (["prev_hidden"], ["next_hidden"]),
        (["state_prev"], ["state"]),
    ],
)
def test_names_of_exporters_tell_states(pasts, presents):
    found, unlike = find_states(signature(pasts, ["probability", *presents]), {})
    assert found == tuple(zip(pasts, presents, strict=True))
    assert not unlike


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["audio_in"], ["audio_out", "level"]),
        (["input"], ["output", "score"]),
        (["image"], ["image_out", "mask"]),
        (["context_vector"], ["out", "score"]),
        (["x", "y"], ["y", "x"]),
        (["state"], ["state_out"]),  # nothing else comes out: a map of one thing to another
    ],
)
def test_what_looks_alike_is_no_state(inputs, outputs):
    assert find_states(signature(inputs, outputs), {}) == ((), ())


def test_forms_have_to_be_the_same():
    model = Signature(
        inputs=(
            port("x", "n", 3),
            port("cache", "n", 8),
            port("state", 1, None),
            port("hidden", 1, 8),
            port("memory", 1, 2, dtype="int64"),
        ),
        outputs=(
            port("y", "n", 3),
            port("new_cache", "n", 8),
            port("new_state", 1, None),
            port("new_hidden", 1, 9),
            port("new_memory", 1, 2),
        ),
    )
    found, unlike = find_states(model, {})
    assert found == (("cache", "new_cache"),)
    assert [past for past, _ in unlike] == ["state", "hidden", "memory"]
    outputs = (model.outputs[0], port("new_cache", 2, 8), model.outputs[2])
    fixed = Signature(inputs=model.inputs, outputs=outputs)
    assert find_states(fixed, {"x": (2, 3)})[0] == (("cache", "new_cache"),)
    assert find_states(fixed, {"x": (4, 3)})[0] == ()


def test_a_star_stands_for_many():
    model = signature(["past_0", "past_1", "other"], ["y", "now_0", "now_1"])
    assert expand_states([parse_state("past_*=now_*")], model) == (
        ("past_0", "now_0"),
        ("past_1", "now_1"),
    )
    assert expand_states([parse_state(" other = y ")], model) == (("other", "y"),)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("past_0", "is no pair"),
        ("=y", "is no pair"),
        ("past_*=y", "at most one"),
        ("a*b*=y**", "at most one"),
        ("path_0=now_0", r"the input 'path_0' \(did you mean .past_0"),
        ("past_0=now_9", r"the output 'now_9' \(did you mean"),
        ("none_*=y_*", "fits no input"),
        ("past_*=now_*x", "asks for the output 'now_0x'"),
        ("past_0=now_0 past_0=now_1", "the input 'past_0' twice"),
        ("past_0=now_0 past_1=now_0", "the output 'now_0' twice"),
    ],
)
def test_what_the_model_lacks_is_refused(asked, message):
    model = signature(["past_0", "past_1"], ["y", "now_0", "now_1"])
    with pytest.raises(OptionError, match=message):
        expand_states([parse_state(text) for text in asked.split()], model)


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def test_states_are_one_memory():
    inputs = [spec("a", 1, 4), spec("b", 1, 4)]
    outputs = [spec("y", 1), spec("c", 1, 5), spec("d", 1, 4, dtype="float16"), spec("e", 1, 4)]
    check_states([("a", "e")], inputs, outputs)
    for pair, message in (
        (("a", "c"), r"shape is \[1, 5\], expected the input's \[1, 4\]"),
        (("b", "d"), "dtype is float16, expected the input's float32"),
    ):
        with pytest.raises(OptionError, match=message):
            check_states([pair], inputs, outputs)
    with pytest.raises(OptionError, match="all 1 outputs are states"):
        check_states([("a", "e")], inputs, outputs[3:])
