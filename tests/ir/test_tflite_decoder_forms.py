"""Decoders in TFLite that are not covered, and plans of those that are: said before any work."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from model_zoo import tflite_decoders
from model_zoo.tflite_decoders import TFLiteDecoder, make_tflite_decoder

from adrenoc.base.errors import (
    AdrenocError,
    ModelFormatError,
    OptionError,
    UnsupportedOperatorError,
)
from adrenoc.compile.decoder_plan import USUAL_PREFILL, plan_decoder
from adrenoc.importers import import_model
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.tflite.file import read_tflite
from adrenoc.importers.tflite.stored import serialise

SMALL = TFLiteDecoder(layers=1, width=32, inner=32, heads=2, kept=1, rows=40, lengths=(4, 8, 32))


def write(folder: Path, shape: TFLiteDecoder, change: Callable[[Any], None] | None = None) -> Path:
    content = make_tflite_decoder(shape)
    if change is not None:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
        change(model)
        content = serialise(model)
    path = folder / "m.tflite"
    path.write_bytes(content)
    return path


def compile_call(model: Path):
    form = find_decoder(model)
    assert form is not None
    plan = plan_decoder(form, None, (4,))
    return import_model(model, shapes=dict(plan.buckets[0]), caches=plan.caches)


def rename(old: str, new: str) -> Callable[[Any], None]:
    """Give an input of all signatures another name."""

    def change(model) -> None:
        for signature in model.signatureDefs:
            for one in signature.inputs:
                one.name = new if one.name in (old, old.encode()) else one.name

    return change


def replace_code(old: str, new: str) -> Callable[[Any], None]:
    """Let all operators of a kind be of another one."""
    kinds = schema.BuiltinOperator

    def change(model) -> None:
        for code in model.operatorCodes:
            if code.builtinCode == vars(kinds)[old]:
                code.builtinCode = vars(kinds)[new]
                code.deprecatedBuiltinCode = min(code.builtinCode, 127)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename("tokens", "embeddings"), r"takes 'embeddings'.*and 2 more|takes 'embeddings'"),
        (rename("kv_cache_k_0", "kv_cache_k_7"), "gives no 'kv_cache_k_7' back"),
        (replace_code("DYNAMIC_UPDATE_SLICE", "ADD"), "'kv_cache_k_0' is made by ADD"),
        (replace_code("SOFTMAX", "LOGISTIC"), "LOGISTIC makes its probabilities"),
        (replace_code("COS", "SIN"), ""),
    ],
)
def test_what_is_not_covered_is_named(tmp_path, change, message):
    model = write(tmp_path, SMALL, change)
    if not message:  # another model, as well covered
        assert compile_call(model).states
        return
    with pytest.raises(UnsupportedOperatorError, match=message):
        compile_call(model)


def test_a_mask_that_hides_other_rows_is_refused(tmp_path):
    def change(model) -> None:
        # The table of masks: its rows in the other order.
        side = SMALL.rows
        for buffer in model.buffers:
            if buffer.data is not None and len(buffer.data) == 4 * side * side:
                buffer.data = buffer.data.reshape(side, -1)[::-1].reshape(-1)

    model = write(tmp_path, replace(SMALL, mask_given=False), change)
    with pytest.raises(UnsupportedOperatorError, match="hides other rows than those after"):
        compile_call(model)


def test_plans_keep_to_what_the_file_has(tmp_path):
    form = find_decoder(write(tmp_path, SMALL))
    assert form is not None and (form.rows, form.lengths) == (40, (4, 8, 32))
    assert [dict(b)["input_ids"] for b in plan_decoder(form, None, USUAL_PREFILL).buckets] == [
        (1, 1),
        (1, 32),
    ]
    assert len(plan_decoder(form, 20, (4, 8)).buckets) == 3
    assert dict(plan_decoder(form, 20, (4, 8)).buckets[0])["kv_cache_k_0"] == (1, 1, 20, 16)
    for context, prefill, message in (
        (41, (4,), "the caches of the file have 40 rows"),
        (None, (4, 5), "no signature of so many tokens, expected some of 4,8,32"),
    ):
        with pytest.raises(OptionError, match=message):
            plan_decoder(form, context, prefill)


def test_weights_may_lie_behind_the_tables(tmp_path):
    model = write(tmp_path, SMALL)
    before = read_tflite(model, model.read_bytes())
    large: list[bytes] = []

    def change(made) -> None:
        at = 1 << 20
        for buffer in made.buffers:
            if buffer.data is not None and len(buffer.data) > 1000:
                large.append(bytes(buffer.data))
                buffer.data, buffer.offset, buffer.size = None, at, len(large[-1])
                at += buffer.size

    content = write(tmp_path, SMALL, change).read_bytes()
    assert large
    whole = content.ljust(1 << 20, b"\0") + b"".join(large)
    after = read_tflite(model, whole)
    for one, other in zip(before.graphs, after.graphs, strict=True):
        for mine, theirs in zip(one.tensors, other.tensors, strict=True):
            np.testing.assert_array_equal(mine.value, theirs.value)
    with pytest.raises(ModelFormatError, match="a buffer ends at byte"):
        read_tflite(model, whole[:-1])


def test_weights_stay_in_their_bits(tmp_path):
    for bits, block, word in ((8, 0, "uint8"), (4, 0, "uint8"), (4, 32, "uint8")):
        model = write(tmp_path, replace(SMALL, bits=bits, block=block))
        text = compile_call(model).module.script(show_meta=False)
        assert text.count("adrenoc.n_bits") == 4 + 3 + 1, (bits, block, word)
        assert "relax.matmul" not in text


def test_shapes_of_ones_own_are_refused(tmp_path):
    model = write(tmp_path, SMALL)
    with pytest.raises(AdrenocError, match="signatures prefill_4, prefill_8, prefill_32, decode"):
        import_model(model, shapes={})


def test_masks_of_ten_thousand_hide(tmp_path, monkeypatch):
    """As exports of Gemma-3 have them, which are added to scores of either sign."""
    monkeypatch.setattr(tflite_decoders, "_HIDDEN", -1e4)
    compile_call(write(tmp_path, replace(SMALL, mask_given=False)))
