"""Tell how far a shipped decoder is from a better one, which weights that is by, and repair it.

Both run over one passage on this computer's processor.  Each product that both have is then run
alone, as a model of its own, by the weights of either, on what the better model gives it.  The
repair takes the products that err most from the better file into a copy of the shipped one.

Two files of one model have products in common by the names of their results: quantisers keep a
product's name, or add how many bits its weights have (`/mlp/up_proj/MatMul_Q4`).
"""

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from adrenoc.base.errors import InputError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.chat import LOGITS
from adrenoc.check.accuracy.causes import number_of_layer
from adrenoc.check.accuracy.judge_preset import shortest_prefix
from adrenoc.check.accuracy.result import Arrays, TokenScore
from adrenoc.check.accuracy.samples import (
    Passage,
    Wording,
    check_tokens_known,
    compute_passage,
    draw_passage,
    read_passage,
    score_tokens,
)
from adrenoc.check.reference import run_reference
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.formats import MOST_FILE_BYTES, find_model_files
from adrenoc.importers.onnx.load import load_onnx
from adrenoc.importers.onnx.unroll import rename
from adrenoc.importers.states import DecoderForm

_KINDS = frozenset({"MatMul", "Gemm", "Gather", "MatMulNBits", "GatherBlockQuantized"})
"""Products, and tables of words, which are products by what is one at a word."""
_TABLES = frozenset({"Gather", "GatherBlockQuantized"})
_LEAST = 2
"""Axes of a matrix; constants of fewer are no weights."""
_ADDED = re.compile(r"(NBits|_Q\d+|_quant(ized)?)(?=/|$)")


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedProduct:
    """A product in one file: its node, what makes its constants, and the tensor that it reads.
    `before` are nodes that compute from constants alone, as those that open weights."""

    node: onnx.NodeProto
    before: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...]
    read: str

    @property
    def made(self) -> str:
        """Return the tensor that it computes."""
        return str(self.node.output[0])

    @property
    def key(self) -> str:
        """Return the same in both files."""
        return _ADDED.sub("", self.made)

    @property
    def bytes(self) -> int:
        """Return what its constants take."""
        return sum(tensor.ByteSize() for tensor in self.constants)


def _find_products(model: onnx.ModelProto) -> dict[str, WeightedProduct]:
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    fixed: dict[str, bool] = dict.fromkeys(constants, True)
    for node in model.graph.node:  # in order: what a node reads is known before it
        is_fixed = node.op_type == "Constant" or all(
            fixed.get(name, False) for name in node.input if name
        )
        fixed.update(dict.fromkeys(node.output, is_fixed and bool(node.output)))
    found = {}
    for node in model.graph.node:
        moving = [name for name in node.input if name and not fixed.get(name, False)]
        weights = node.input[:1] if node.op_type in _TABLES else node.input[1:2]
        if node.op_type not in _KINDS or len(moving) != 1 or moving[0] in weights:
            continue
        before = _collect_before(node, makers, fixed)
        names = {name for one in (*before, node) for name in one.input if name in constants}
        kept = tuple(constants[name] for name in sorted(names))
        if any(len(tensor.dims) >= _LEAST for tensor in kept):
            product = WeightedProduct(node=node, before=before, constants=kept, read=moving[0])
            found[product.key] = product
    return found


def _collect_before(
    node: onnx.NodeProto, makers: dict[str, onnx.NodeProto], fixed: dict[str, bool]
) -> tuple[onnx.NodeProto, ...]:
    """Yield the nodes that make a product's constants, each behind what it reads."""
    seen: dict[str, onnx.NodeProto] = {}

    def visit(one: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        for name in one.input:
            maker = makers.get(name)
            if maker is not None and fixed[name] and maker.output[0] not in seen:
                yield from visit(maker)
                seen[maker.output[0]] = maker
                yield maker

    return tuple(visit(node))


Pair = tuple[WeightedProduct, WeightedProduct]


@dataclass(frozen=True, kw_only=True)
class WeightError:
    """A product of both files: how far what the shipped weights make is from what the source's
    make of the same numbers, root mean square over that of the source's; bytes of both."""

    name: str
    layer: str
    error: float
    shipped_bytes: int
    source_bytes: int


@dataclass(frozen=True, kw_only=True)
class MendedModel:
    """What was taken from the source, how far the model is from it then, and its bytes."""

    taken: tuple[str, ...]
    score: TokenScore
    bytes: tuple[int, int]
    trials: int


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """`model` and `source` are the files; `score` is the shipped model's, with the source as the
    reference; `apart` are products that the source does not have under their names.  `mended` is
    None where it was not asked for or needed, or where not even all products do."""

    model: str
    source: str
    passage: str
    tolerance: float
    score: TokenScore
    products: tuple[WeightError, ...]
    apart: tuple[str, ...]
    mended: MendedModel | None = None

    @property
    def passed(self) -> bool:
        """Return whether the shipped model is within the tolerance, or the mended one."""
        found = self.score if self.mended is None else self.mended.score
        return found.divergence <= self.tolerance


def compare_with_source(
    model: Path,
    source: Path,
    *,
    wording: Wording | None,
    tolerance: float,
    mended: Path | None,
    reporter: Reporter,
) -> SourceReport:
    """Compare `model` with `source` over a passage; `tolerance` bounds the divergence, in nats.

    `mended` is where the model is written with what it takes of the source's weights to hold that,
    the worst products first. Raises InputError where one is no decoder in ONNX, or they have no
    products or caches in common; else as `run_reference` does.
    """
    form, other = find_decoder(model), find_decoder(source)
    for path, found in ((model, form), (source, other)):
        if found is None or found.lengths or found.single:
            raise InputError(
                f"{path} is no decoder in ONNX with past and present keys and values that takes "
                "many tokens at once, and --source compares two of these",
                hint=f"adrenoc check-accuracy {quote_word(model)}",
            )
    assert form is not None
    assert other is not None
    vocabulary, others = _vocabulary_of(model, form), _vocabulary_of(source, other)
    if vocabulary != others:
        raise InputError(
            f"{model} knows {vocabulary} tokens and {source} {others}",
            hint="--source takes the same model, exported the same way, with more bits",
        )
    wording = wording or Wording()
    rows = min(wording.most, form.context or wording.most)
    passage = read_passage(model, wording, rows=rows)
    passage = passage or draw_passage(rows, vocabulary=vocabulary, seed=0)
    check_tokens_known(model, passage, vocabulary)
    comparison = _Comparison((model, form), (source, other), passage, tolerance, reporter)
    return comparison.run(mended)


def _vocabulary_of(model: Path, form: DecoderForm) -> int:
    """Find it by a run: what files say of their outputs may be names."""
    return compute_passage(model, form, Passage(tokens=(0,), source=""))[LOGITS].shape[-1]


class _Comparison:
    def __init__(
        self,
        shipped: tuple[Path, DecoderForm],
        better: tuple[Path, DecoderForm],
        passage: Passage,
        tolerance: float,
        reporter: Reporter,
    ) -> None:
        (model, self._form), (source, self._better_form) = shipped, better
        self._model, self._source = model, source
        self._passage, self._tolerance, self._reporter = passage, tolerance, reporter
        self._shipped, self._better = _load(model), _load(source)
        ours, theirs = _find_products(self._shipped), _find_products(self._better)
        self._pairs: list[Pair] = [(ours[key], theirs[key]) for key in ours if key in theirs]
        self._apart = tuple(product.made for key, product in ours.items() if key not in theirs)
        if not self._pairs:
            known = ", ".join(product.made for product in list(theirs.values())[:3]) or "none"
            raise InputError(
                f"{source} has none of the {len(ours)} products of {model} by name; its own are "
                f"{known}",
                hint="--source takes the same model, exported the same way, with more bits",
            )

    def run(self, mended: Path | None) -> SourceReport:
        started = time.perf_counter()
        made = self._compute(self._model, self._form, [old for old, _ in self._pairs])
        wanted = self._compute(self._source, self._better_form, [new for _, new in self._pairs])
        self._wanted = wanted[LOGITS]
        score = self._score(made[LOGITS])
        self._report("reference", started, f"{len(self._passage.tokens)} tokens by both files")
        started = time.perf_counter()
        self._elements = {
            old.made: helper.np_dtype_to_tensor_dtype(made[old.made].dtype)
            for old, _ in self._pairs
        }
        errors = [self._error(pair, made, wanted) for pair in self._pairs]
        self._report("products", started, f"{len(errors)} of both files")
        report = SourceReport(
            model=str(self._model),
            source=str(self._source),
            passage=self._passage.source,
            tolerance=self._tolerance,
            score=score,
            products=tuple(
                _tell(pair, error) for pair, error in zip(self._pairs, errors, strict=True)
            ),
            apart=self._apart,
        )
        if mended is None or report.passed:
            return report
        return replace(report, mended=self._mend(errors, mended))

    def _compute(
        self, model: Path, form: DecoderForm, products: Sequence[WeightedProduct]
    ) -> Arrays:
        """Return what a file makes of the passage: logits, and what products read and make."""
        names = {name for product in products for name in (product.read, product.made)}
        return compute_passage(model, form, self._passage, names)

    def _score(self, logits: np.ndarray) -> TokenScore:
        return score_tokens(self._passage.tokens, logits[0], self._wanted[0])

    def _error(self, pair: Pair, made: Arrays, wanted: Arrays) -> float:
        """Return how far the shipped weights are from the source's result, of what that reads."""
        old, new = pair
        given = self._read(new, wanted)
        own = self._read(old, made)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "alone.onnx"
            element = helper.np_dtype_to_tensor_dtype(own.dtype)
            onnx.save(make_alone(self._shipped, old, element), path)
            found = run_reference(path, {READ: given.astype(own.dtype)}, optimise=False)[MADE]
        theirs = wanted[new.made].astype(np.float64)
        difference = found.astype(np.float64) - theirs
        return float(np.sqrt(np.mean(difference**2)) / (np.sqrt(np.mean(theirs**2)) or 1.0))

    def _read(self, product: WeightedProduct, computed: Arrays) -> np.ndarray:
        """Return what a product reads: a tensor that was computed, or the tokens."""
        if product.read in computed:
            return computed[product.read]
        return np.asarray([self._passage.tokens], np.int64)

    # The repair

    def _mend(self, errors: Sequence[float], path: Path) -> MendedModel | None:
        """Write the model with the fewest of the worst products that hold the tolerance."""
        order = sorted(range(len(errors)), key=lambda at: -errors[at])
        tried: dict[int, TokenScore] = {}
        with tempfile.TemporaryDirectory() as folder:
            trial = Path(folder) / "mended.onnx"

            def holds(chosen: Sequence[int]) -> bool:
                started, count = time.perf_counter(), len(chosen)
                if count not in tried:
                    write_model(self._take(chosen), trial)
                    made = compute_passage(trial, self._form, self._passage)
                    tried[count] = self._score(made[LOGITS])
                    note = (
                        f"{count} products of the source: divergence {tried[count].divergence:.1e}"
                    )
                    self._report(f"trial {len(tried)}", started, note)
                return tried[count].divergence <= self._tolerance

            if not holds(order):
                return None
            enough = len(shortest_prefix(order, holds))
        model = self._take(order[:enough])
        write_model(model, path)
        return MendedModel(
            taken=tuple(self._pairs[at][0].made for at in sorted(order[:enough])),
            score=tried[enough],
            bytes=(self._shipped.ByteSize(), model.ByteSize()),
            trials=len(tried),
        )

    def _take(self, chosen: Sequence[int]) -> onnx.ModelProto:
        pairs = [self._pairs[at] for at in chosen]
        return take_products(self._shipped, self._better, pairs, self._elements)

    def _report(self, what: str, started: float, note: str) -> None:
        self._reporter.stage(what, ms_since(started), note)


def _load(path: Path) -> onnx.ModelProto:
    model, _ = load_onnx(find_model_files(path))
    return model


def _tell(pair: Pair, error: float) -> WeightError:
    old, new = pair
    return WeightError(
        name=old.made,
        layer=number_of_layer(old.read) or number_of_layer(old.made),
        error=error,
        shipped_bytes=old.bytes,
        source_bytes=new.bytes,
    )


_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_TAKEN = "source/"
"""Before the names of what comes from the other file."""
READ, MADE = "read", "made"
"""The input and the output of a product alone."""
_ROUNDING = "accuracy_level"


def make_alone(model: onnx.ModelProto, product: WeightedProduct, element: int) -> onnx.ModelProto:
    """Return a model of one product, of an input `READ` of this data type, which makes `MADE`."""
    nodes = [_copy(node) for node in (*product.before, product.node)]
    rename(nodes[-1], {product.read: READ, product.made: MADE})
    exact = [a for a in nodes[-1].attribute if a.name != _ROUNDING]
    del nodes[-1].attribute[:]
    nodes[-1].attribute.extend(exact)
    graph = helper.make_graph(
        nodes,
        "alone",
        [helper.make_tensor_value_info(READ, element, None)],
        [onnx.ValueInfoProto(name=MADE)],
        initializer=list(product.constants),
    )
    alone = helper.make_model(graph, opset_imports=list(model.opset_import))
    alone.ir_version = model.ir_version
    return alone


def take_products(
    shipped: onnx.ModelProto,
    source: onnx.ModelProto,
    pairs: Iterable[tuple[WeightedProduct, WeightedProduct]],
    elements: Mapping[str, int],
) -> onnx.ModelProto:
    """`shipped` with the second of each pair, of `source`, in place of the first. Constants in
    floats get the data type that the place has by `elements`, by the name of what is made there.
    Raises InputError where a weight of the source is beyond that data type."""
    mended = onnx.ModelProto()
    mended.CopyFrom(shipped)
    taken = {old.made: (old, new) for old, new in pairs}
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, TensorProto] = {}
    known: set[str] = set()
    for node in mended.graph.node:
        old, new = taken.get(node.output[0] if node.output else "", (None, None))
        if old is None or new is None:
            nodes.append(node)
            continue
        inside = {name for one in new.before for name in one.output}
        inside |= {tensor.name for tensor in new.constants}
        names = {name: _TAKEN + name for name in inside}
        for tensor in new.constants:
            constants[_TAKEN + tensor.name] = _convert(tensor, elements[old.made])
        for one in new.before:
            if _TAKEN + one.output[0] not in known:
                known.add(_TAKEN + one.output[0])
                nodes.append(_renamed(one, names))
        nodes.append(_renamed(new.node, {**names, new.read: old.read, new.made: old.made}))
    kept = [_copy(node) for node in nodes]
    del mended.graph.node[:]
    mended.graph.node.extend(kept)
    _keep_read(mended.graph, constants)
    _add_domains(mended, source)
    return mended


def _keep_read(graph: onnx.GraphProto, more: Mapping[str, TensorProto]) -> None:
    """Leave the constants that a node reads, or that are outputs, and add others."""
    read = {name for node in graph.node for name in node.input}
    read |= {value.name for value in graph.output}
    nested = any(a.HasField("g") for node in graph.node for a in node.attribute)
    kept = [tensor for tensor in graph.initializer if nested or tensor.name in read]
    kept = [_copy(tensor) for tensor in (*kept, *more.values())]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _add_domains(model: onnx.ModelProto, source: onnx.ModelProto) -> None:
    known = {one.domain for one in model.opset_import}
    used = {node.domain for node in model.graph.node} - {""}
    for one in source.opset_import:
        if one.domain in used - known:
            model.opset_import.append(one)


def _convert(tensor: TensorProto, element: int) -> TensorProto:
    """Return a copy under the name that it gets, in floats of this type if it is of floats."""
    copy = _copy(tensor)
    if tensor.data_type in _FLOATS and element in _FLOATS and tensor.data_type != element:
        wanted = helper.tensor_dtype_to_np_dtype(element)
        value = numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            cast = value.astype(wanted)
        if not np.isfinite(cast.astype(np.float32)).all():
            raise InputError(
                f"the source's '{tensor.name}' holds {np.abs(value).max():.3g}, which {wanted} of "
                "the model does not",
                hint="--source takes a model whose weights fit the shipped one's type",
            )
        copy = numpy_helper.from_array(cast, tensor.name)
    copy.name = _TAKEN + tensor.name
    return copy


_Message = TypeVar("_Message", onnx.NodeProto, TensorProto)


def _copy(message: _Message) -> _Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = _copy(node)
    rename(copy, names)
    return copy


def write_model(model: onnx.ModelProto, path: Path) -> None:
    """Write `model` to `path`; weights of more than 2 GiB go to `path`.data. Raises OutputError
    where it cannot be written."""
    if model.ByteSize() <= MOST_FILE_BYTES:
        write_atomically(path, model.SerializeToString())
        return
    data = path.with_name(f"{path.name}.data")
    try:
        data.unlink(missing_ok=True)  # onnx appends to it
        onnx.save(model, path, save_as_external_data=True, location=data.name)
    except OSError as error:
        raise output_error(path, error) from error
