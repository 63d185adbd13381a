"""How many kernels a layer of a decoder takes for one token, by the form that its file has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.compile.pipeline import program_of
from adrenoc.importers.decoder_form import find_decoder
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.ir.planning import run_until

MOST = 5
"""Attention over parts of the caches, and four products: the first after it joins the parts."""
FORMS: dict[str, dict[str, Any]] = {
    "four bits": {},
    "floats": {"bits": 0},
    "halves": {"bits": 0, "half": True, "kind": "llama"},
    "three projections": {"bits": 0, "packed": False},
    "spelt out": {"bits": 0, "plain": 14},
    "spelt out, in halves": {"bits": 0, "plain": 14, "half": True},
    "the standard's operators": {"bits": 0, "plain": 23},
    "the standard's in four bits": {"plain": 23},
}


def count_launches(folder: Path, shape: DecoderShape) -> int:
    """Of one token, on an Adreno 750."""
    folder.mkdir()
    model = write_decoder(folder, shape)
    form = find_decoder(model)
    assert form is not None
    plan = plan_decoder(form, None, (16,))
    said = {"shapes": plan.buckets[0], "caches": plan.caches}
    planned = run_until("lower", model, "adreno:750", preset="mixed", **said)
    return len(program_of(planned).steps)


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_takes_five_launches(tmp_path, form):
    extents = {"context": 512, "hidden": 256, "head": 64, "mlp": 512}
    shape = DecoderShape(**{**extents, **FORMS[form]})
    one, two = (
        count_launches(tmp_path / str(layers), replace(shape, layers=layers)) for layers in (1, 2)
    )
    assert two - one == MOST
