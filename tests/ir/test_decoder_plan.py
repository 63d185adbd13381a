"""What a decoder is told by, what is compiled of it, its launches a layer, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from model_zoo import tflite_decoders
from model_zoo.decoder_shape import DecoderShape, genai_config
from model_zoo.make_decoders import make_decoder
from model_zoo.tflite_decoders import TFLiteDecoder, make_tflite_decoder

from adrenoc.base.errors import (
    AdrenocError,
    CustomDomainError,
    ModelFormatError,
    OptionError,
    UnsupportedOperatorError,
)
from adrenoc.cli.plan_shapes import plan_shapes
from adrenoc.compile.decoder_plan import USUAL_PREFILL, plan_decoder
from adrenoc.compile.pipeline import program_of
from adrenoc.importers import import_model
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.states import CacheSpec, DecoderForm
from adrenoc.importers.tflite.file import read_tflite
from adrenoc.importers.tflite.stored import serialise
from tests.host.decoder_bundles import write_decoder
from tests.ir.planning import run_until
from tests.models import graph, write

SMALL = TFLiteDecoder(layers=1, width=32, inner=32, heads=2, kept=1, rows=40, lengths=(4, 8, 32))


def write_tflite(
    folder: Path, shape: TFLiteDecoder, change: Callable[[Any], None] | None = None
) -> Path:
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
    model = write_tflite(tmp_path, SMALL, change)
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

    model = write_tflite(tmp_path, replace(SMALL, mask_given=False), change)
    with pytest.raises(UnsupportedOperatorError, match="hides other rows than those after"):
        compile_call(model)


def test_plans_keep_to_what_the_file_has(tmp_path):
    form = find_decoder(write_tflite(tmp_path, SMALL))
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
    model = write_tflite(tmp_path, SMALL)
    before = read_tflite(model, model.read_bytes())
    large: list[bytes] = []

    def change(made) -> None:
        at = 1 << 20
        for buffer in made.buffers:
            if buffer.data is not None and len(buffer.data) > 1000:
                large.append(bytes(buffer.data))
                buffer.data, buffer.offset, buffer.size = None, at, len(large[-1])
                at += buffer.size

    content = write_tflite(tmp_path, SMALL, change).read_bytes()
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
        model = write_tflite(tmp_path, replace(SMALL, bits=bits, block=block))
        text = compile_call(model).module.script(show_meta=False)
        assert text.count("adrenoc.n_bits") == 4 + 3 + 1, (bits, block, word)
        assert "relax.matmul" not in text


def test_shapes_of_ones_own_are_refused(tmp_path):
    model = write_tflite(tmp_path, SMALL)
    with pytest.raises(AdrenocError, match="signatures prefill_4, prefill_8, prefill_32, decode"):
        import_model(model, shapes={})


def test_masks_of_ten_thousand_hide(tmp_path, monkeypatch):
    """As exports of Gemma-3 have them, which are added to scores of either sign."""
    monkeypatch.setattr(tflite_decoders, "_HIDDEN", -1e4)
    compile_call(write_tflite(tmp_path, replace(SMALL, mask_given=False)))


CACHE = CacheSpec(past="p", present="q", heads=2, head=16, dtype="float32")
FORM = DecoderForm(caches=(CACHE,), masked=True, positions=False, context=8192)


def test_a_decoder_is_told_by_its_names(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(make_decoder(DecoderShape(layers=1)), path)
    form = find_decoder(path)
    assert [(c.past, c.present) for c in form.caches] == [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.0.value", "present.0.value"),
    ]
    assert (form.masked, form.positions, form.context) == (True, False, 0)
    (tmp_path / "genai_config.json").write_text(genai_config(DecoderShape()))
    found = find_decoder(path)
    assert (found.context, found.tokens["end_tokens"]) == (64, (DecoderShape().vocabulary - 1,))
    said = json.loads(genai_config(DecoderShape()))
    for ends, read in (([5, 9], (5, 9)), ("x", ()), ([5, None, -1], (5,)), (None, ())):
        said["model"]["eos_token_id"] = ends
        (tmp_path / "genai_config.json").write_text(json.dumps(said))
        assert find_decoder(path).tokens["end_tokens"] == read
    suppressed = {"suppress_tokens": [7, -1, 9], "begin_suppress_tokens": [9, 3], "eos_token_id": 1}
    (tmp_path / "generation_config.json").write_text(json.dumps(suppressed))
    form = find_decoder(path)
    assert form.tokens == {
        "end_tokens": (1,),
        "suppress_tokens": (7, 9),
        "begin_suppress_tokens": (9, 3),
    }
    assert any("3 never come" in one.taken for one in plan_decoder(form, None, (16,)).decisions)
    (tmp_path / "genai_config.json").write_text("[1, 2")
    assert find_decoder(path).context == 0


def test_embeddings_in_place_of_tokens_are_refused(tmp_path):
    model = make_decoder(DecoderShape(layers=1))
    (lookup,) = (node for node in model.graph.node if "input_ids" in node.input)
    model.graph.node.remove(lookup)
    for node in model.graph.node:
        node.input[:] = ["inputs_embeds" if n == lookup.output[0] else n for n in node.input]
    (tokens,) = (value for value in model.graph.input if value.name == "input_ids")
    model.graph.input.remove(tokens)
    axes = ["batch", "sequence", 64]
    rows = onnx.helper.make_tensor_value_info("inputs_embeds", onnx.TensorProto.FLOAT, axes)
    model.graph.input.append(rows)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelFormatError, match="takes embeddings") as caught:
        plan_shapes(path, (), (None, None), (), accurate=False)
    assert "'input_ids'" in caught.value.hint
    shapes = (("inputs_embeds", (1, 1, 64)),)
    plan = plan_shapes(path, shapes, (None, None), (), accurate=False)
    assert plan.buckets == (shapes,) and not plan.caches


def test_a_model_without_caches_is_none(tmp_path):
    model = make_decoder(DecoderShape(layers=1))
    for value in model.graph.output:
        value.name = value.name.replace("present", "kept")
    for node in model.graph.node:
        node.output[:] = [name.replace("present", "kept") for name in node.output]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert find_decoder(path) is None


@pytest.mark.parametrize(
    ("form", "context", "rows", "reason"),
    [
        (FORM, None, 4096, "says 8192"),
        (replace(FORM, context=512), None, 512, "says so"),
        (replace(FORM, context=0), None, 2048, "no genai_config.json"),
        (FORM, 700, 700, "--context"),
    ],
)
def test_rows_of_caches_are_said_aloud(form, context, rows, reason):
    plan = plan_decoder(form, context, (16, 128))
    assert [dict(shapes)["input_ids"] for shapes in plan.buckets] == [(1, 1), (1, 16), (1, 128)]
    assert {dict(shapes)["p"] for shapes in plan.buckets} == {(1, 2, rows, 16)}
    assert plan.caches == (("p", "q"),)
    assert plan.decisions[0].taken == f"{rows} rows"
    assert reason in plan.decisions[0].reason


def test_prompts_fit_the_context():
    short = plan_decoder(FORM, 40, (16, 128))
    assert [dict(shapes)["input_ids"][1] for shapes in short.buckets] == [1, 16]
    with pytest.raises(OptionError, match="--prefill 64 takes more tokens than the context's 40"):
        plan_decoder(FORM, 40, (64,))


def _refused(
    model: onnx.ModelProto, folder: Path, error: type[AdrenocError], said: str, context: int = 64
) -> str:
    """What the import of a decoder says that is refused."""
    path = write(model, folder)
    form = find_decoder(path)
    assert form is not None
    plan = plan_decoder(form, context, ())
    with pytest.raises(error, match=said) as caught:
        import_model(path, shapes=dict(plan.buckets[0]), caches=plan.caches)
    return caught.value.message


def test_what_is_not_covered_is_refused_at_all_nodes(tmp_path):
    model = make_decoder(DecoderShape(layers=2))
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.attribute.append(onnx.helper.make_attribute("causal", 0))
    said = r"GroupQueryAttention \(2x\).*causal 0, which is not"
    _refused(model, tmp_path, CustomDomainError, said)


def test_what_is_refused_does_not_bury_what_reads_it(tmp_path):
    model = make_decoder(DecoderShape(layers=2, rotary_apart=True))
    for node in model.graph.node:
        if node.op_type == "RotaryEmbedding":
            node.attribute.append(onnx.helper.make_attribute("scale", 2.0))
    said = _refused(model, tmp_path, CustomDomainError, r"scale 2\.0, which is not covered")
    for supported in ("MatMulNBits", "GroupQueryAttention", "SkipSimplified"):
        assert supported not in said
    assert "RotaryEmbedding (4x)" in said


def test_tables_of_rotations_reach_as_far_as_the_context(tmp_path):
    model = make_decoder(DecoderShape(layers=1, context=64, rotary_apart=True))
    # The keys are read once more, so that the rotation stays apart.
    keys = "/model/layers.0/attn/k_rotary/out"
    model.graph.node.append(onnx.helper.make_node("Identity", [keys], ["again"]))
    model.graph.output.append(onnx.ValueInfoProto(name="again"))
    said = "have 64 rows, expected at least the context's 65"
    _refused(model, tmp_path, OptionError, said, context=65)


def test_states_beside_caches_are_kept_or_told(tmp_path):
    model = make_decoder(DecoderShape(layers=1))
    helper, element = onnx.helper, onnx.TensorProto.FLOAT
    for name, extents in (("conv.0", ["batch_size", 64, 2]), ("other", [1, 64, "n"])):
        for values, kind in ((model.graph.input, "past"), (model.graph.output, "present")):
            values.append(helper.make_tensor_value_info(f"{kind}_{name}", element, extents))
        model.graph.node.append(helper.make_node("Tanh", [f"past_{name}"], [f"present_{name}"]))
    plan = plan_shapes(write(model, tmp_path), (), (40, "4"), (), accurate=False)
    assert plan.recurrent == (("past_conv.0", "present_conv.0"),)
    assert ("past_conv.0", (1, 64, 2)) in plan.buckets[-1]
    told = {d.subject: d for d in plan.decisions}
    assert "leaves its extents open" in told["past_other, present_other"].reason
    assert len(plan.decisions) == 3


def test_states_that_the_model_lacks_are_refused(tmp_path):
    path = write(make_decoder(DecoderShape(layers=1)), tmp_path)
    shapes = {"input_ids": (1, 1), "attention_mask": (1, 8)}
    shapes |= {f"past_key_values.0.{kind}": (1, 2, 8, 16) for kind in ("key", "value")}
    with pytest.raises(OptionError, match=r"no output .present\.7\.key."):
        import_model(path, shapes=shapes, caches=(("past_key_values.0.key", "present.7.key"),))


def test_caches_that_grow_otherwise_are_refused(tmp_path):
    """As exporters write it without an operator for it: a concatenation."""
    caches = {f"past_key_values.0.{kind}": f"present.0.{kind}" for kind in ("key", "value")}
    concats = " ".join(f'"{q}" = Concat <axis = 2>("{p}", new)' for p, q in caches.items())
    made = f"""x = Cast <to = 1>(input_ids) new = Reshape(x, rows) {concats}
               total = ReduceSum <keepdims = 0>("present.0.key", last)
               logits = Unsqueeze(total, last)"""
    whole = {"input_ids": ["b", "s"], "attention_mask": ["b", "t"]}
    model = graph(
        made,
        whole | dict.fromkeys(caches, ("b", 1, "p", 1)),
        ["logits", *caches.values()],
        {"rows": np.array([1, 1, -1, 1]), "last": np.array([3])},
        dtypes=dict.fromkeys(whole, onnx.TensorProto.INT64),
    )
    said = r"2 of 2 caches are read by no attention .*'present.0.key', .* first read by "
    _refused(model, tmp_path, UnsupportedOperatorError, said, context=8)


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
