"""What `adrenoc check` says of a decoder with caches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from adrenoc.cli.main import cli
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.models import write_network

SHAPE = DecoderShape(layers=2, context=300)


def check(model: Path, *options: str) -> dict[str, object]:
    done = CliRunner().invoke(
        cli, ["check", str(model), "--device", "adreno:750", "--json", *options]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    return dict(json.loads(done.output)["decoder"] or {})


@pytest.mark.parametrize(("preset", "bytes_each"), [("fp32", 4), ("mixed", 2)])
def test_what_a_token_takes(tmp_path: Path, preset: str, bytes_each: int) -> None:
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


def test_a_context_is_of_decoders(tmp_path: Path) -> None:
    model = write_network(tmp_path, "mobilenet_v2")
    done = CliRunner().invoke(cli, ["check", str(model), "--device", "host", "--context", "9"])
    assert done.exit_code == 2
    assert "--prefill and --tokenizer are for decoders" in done.output
