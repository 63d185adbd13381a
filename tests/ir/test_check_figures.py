"""Figures of `check` that people act on, for several devices and for decoders with caches."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.base.errors import PolicyError
from adrenoc.base.text.spelling import quote_word, show_count
from adrenoc.cli.main import main
from tests.commands import invoke, succeed
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.ir.planning import judge
from tests.models import graph, write, write_network

DRAW = np.random.default_rng(6)


def write_lookup(folder: Path, rows: int, also: bool = False) -> Path:
    """Rows of a table at 77 places; `also` all of it is summed up."""
    table = DRAW.standard_normal((rows, 64)).astype(np.float32)
    more = " m = Mul(w, z)" if also else ""
    nodes = f"g = Gather <axis = 0>(w, i) y = Relu(g){more}"
    inputs = {"i": (1, 77), "z": (1, 64)} if also else {"i": (1, 77)}
    outputs = ["y", "m"] if also else ["y"]
    return write(
        graph(nodes, inputs, outputs, {"w": table}, dtypes={"i": TensorProto.INT64}), folder
    )


def test_a_lookup_counts_what_it_reads(tmp_path):
    small, large = (judge(write_lookup(tmp_path, rows)) for rows in (100, 20_000))
    assert small.totals.bytes == large.totals.bytes
    assert large.totals.floor_bytes <= 2 * 77 * 64 * 4 * 4
    assert large.memory.plan.param_bytes > 1 << 20


def test_a_table_that_is_read_whole_counts_whole(tmp_path):
    assert judge(write_lookup(tmp_path, 20_000, also=True)).totals.bytes > 20_000 * 64 * 2


def test_nobody_is_told_to_split_a_table(tmp_path):
    assert not judge(write_lookup(tmp_path, 40_000)).near_misses


def write_convs(folder: Path) -> Path:
    """Three convolutions: those at the border may be kept from halves, and so as they are."""
    names = [f"t{i}" for i in range(7)]
    weights, nodes = {}, ""
    for i in range(3):
        weights[f"w{i}"] = (DRAW.standard_normal((256, 256, 3, 3)) * 0.02).astype(np.float32)
        x, between, y = names[2 * i : 2 * i + 3]
        nodes += f"{between} = Conv <pads = [1, 1, 1, 1]>({x}, w{i}) {y} = Relu({between}) "
    return write(graph(nodes, {"t0": [1, 256, 32, 32]}, ["t6"], weights), folder)


def test_transformed_weights_are_told(tmp_path):
    model = write_convs(tmp_path)
    memory = judge(model).memory
    assert memory.plain_bytes in [256 * 256 * 9 * 2 * count for count in (1, 2, 3)]
    assert memory.winograd_bytes in [memory.plain_bytes * planes // 9 for planes in (16, 36)]
    said = invoke("check", model, "--device", "adreno:750", catch=True)
    assert "adrenoc compile --set winograd=false saves" in " ".join(said.stdout.split())


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("adreno:660", "in part: no source gives texels_per_clock of adreno:a660"),
        ("adreno", "unknown: no source gives fp32_fma_lanes"),
    ],
)
def test_rates_that_nobody_knows_are_told_beside_the_time(tmp_path, device, words):
    said = invoke("check", write_convs(tmp_path), "--device", device, catch=True)
    [line] = [one for one in said.stdout.splitlines() if one.strip().startswith("time ")]
    assert words in line


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (999, "999 "),
        (1490, "1.49 k"),
        (1_490_000_000_000, "1.49 T"),
        (999_960_000_000, "1 T"),
        (3_360_000_000, "3.36 G"),
        (2_500_000_000_000_000_000, "2500 P"),
    ],
)
def test_counts_are_plain_numbers(number, shown):
    assert show_count(number) == shown


BOTH = ["--device", "adreno:660,adreno:750"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    weights = np.random.default_rng(0).uniform(-1, 1, (16, 8, 3, 3)).astype(np.float32)
    nodes = "y = Conv <pads = [1, 1, 1, 1]>(x, w)"
    proto = graph(nodes, {"x": [1, 8, 32, 32]}, ["y"], {"w": weights})
    return str(write(proto, tmp_path_factory.mktemp("check"), "net.onnx"))


def test_each_device_has_its_own_verdict(model, capsys):
    assert main(["check", model, *BOTH, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["devices"]
    assert [one["target"] for one in told] == ["adreno:a660", "adreno:a750"]
    for one in told:
        assert one["totals"]["time_us"] == judge(Path(model), one["target"]).totals.time_us
    assert told[0]["totals"]["time_us"] != told[1]["totals"]["time_us"]
    assert main(["check", model, *BOTH]) == 0
    said = capsys.readouterr().out
    assert "on 2 devices" in said and "adreno:a660" in said and "adreno:a750" in said


def test_the_next_command_names_the_file_as_it_was_given(model, capsys):
    assert main(["check", model, *BOTH]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"adrenoc check {quote_word(model)} --device adreno:a660 shows" in said


def test_limits_hold_on_each_device(model, capsys):
    code = main(["check", model, *BOTH, "--limit", "time-ms=1e-6"])
    assert code == PolicyError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert "breaks 2 of the limits" in said
    assert "on adreno:a660" in said and "on adreno:a750" in said
    assert main(["check", model, *BOTH, "--limit", "time-ms=1e-6", "--json"]) == code


def test_what_shows_one_device_takes_no_set(model, tmp_path, capsys):
    assert main(["check", model, *BOTH, "--html", "page.html"]) == 2
    assert "for one --device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


SHAPE = DecoderShape(layers=2, context=300)


def check(model: Path, *options: str) -> dict[str, object]:
    done = succeed("check", model, "--device", "adreno:750", "--json", *options)
    return dict(json.loads(done.output)["decoder"] or {})


@pytest.mark.parametrize(("preset", "bytes_each"), [("fp32", 4), ("mixed", 2)])
def test_what_a_token_takes(tmp_path, preset, bytes_each):
    model = write_decoder(tmp_path, SHAPE)
    usual = check(model, "--preset", preset)
    shorter = check(model, "--preset", preset, "--context", "150")
    cache = SHAPE.layers * 2 * SHAPE.kv_heads * SHAPE.head * bytes_each
    assert (usual["rows"], shorter["rows"]) == (300, 150)
    assert (usual["cache_bytes"], shorter["cache_bytes"]) == (300 * cache, 150 * cache)
    assert usual["weight_bytes"] == shorter["weight_bytes"]
    # Four bits a weight with a scale each block, and no more than that of the embedding's table.
    products = (
        SHAPE.layers
        * SHAPE.hidden
        * (2 * SHAPE.heads * SHAPE.head + 2 * SHAPE.kv_heads * SHAPE.head + 3 * SHAPE.mlp)
    )
    packed = (products + SHAPE.vocabulary * SHAPE.hidden) * (0.5 + bytes_each / SHAPE.block)
    assert packed <= int(str(usual["weight_bytes"])) < 1.1 * packed
    empty, full = (float(str(usual[key])) for key in ("tokens_per_s", "full_tokens_per_s"))
    assert empty / full == pytest.approx(1 + 300 * cache / int(str(usual["weight_bytes"])))


def test_states_alone_make_no_decoder(tmp_path):
    """What a network of sound keeps from step to step are no caches of tokens."""
    # ONNX operator reference, LinearAttention-27.
    step, state = [2, 1, 32], [2, 4, 8, 8]
    inputs = {"q": step, "k": step, "v": step, "past": state, "decay": step, "beta": [2, 1, 4]}
    outputs = {"output": step, "present": state}
    node = helper.make_node("LinearAttention", [*inputs], [*outputs], q_num_heads=4, kv_num_heads=4)
    ends = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in of]
        for of in (inputs.items(), outputs.items())
    )
    opsets = [helper.make_opsetid("", 27)]
    model = helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets)
    onnx.save(model, tmp_path / "model.onnx")
    assert check(tmp_path / "model.onnx") == {}


def test_a_context_is_of_decoders(tmp_path):
    model = write_network(tmp_path, "mobilenet_v2")
    done = invoke("check", model, "--device", "host", "--context", "9", catch=True)
    assert done.exit_code == 2
    assert "--context and --prefill are for decoders" in done.output
