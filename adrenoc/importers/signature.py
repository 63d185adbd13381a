"""What a model file says of its inputs and outputs: names, axes, dtypes; loads no TVM.

How a model file is entered: with which settings, and by which of its signatures.

Inputs that are settings: `--fix NAME=VALUE` makes one a constant of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adrenoc.base.decision import Decision
from adrenoc.base.errors import ModelFormatError, OptionError
from adrenoc.base.files.read import open_plain
from adrenoc.base.text.spelling import did_you_mean, list_names, quote_word
from adrenoc.bundle.chat import EMBEDDINGS, PAST_BRANCH, TOKENS
from adrenoc.importers.formats import find_model_files, is_ort
from adrenoc.importers.onnx_wire import TooManyNodesError, WireError, read_outline
from adrenoc.ir.options import Shapes

if TYPE_CHECKING:
    from adrenoc.importers.tflite.file import TensorInfo


Extent = int | str | None
"""The extent of an axis: fixed, by a name that several share, or not said."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or an output; `axes` is None where the file does not say how many there are."""

    name: str
    axes: tuple[Extent, ...] | None
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The inputs that a user gives, constants left out, and the outputs.

    `variables` are those that a TFLite file keeps in variables from run to run: an input, and the
    output that it is in the next run."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    variables: tuple[tuple[str, str], ...] = ()

    def leave_out(self, names: Iterable[str]) -> Signature:
        """Return the same without inputs that a user does not give after all."""
        gone = set(names)
        kept = tuple(port for port in self.inputs if port.name not in gone)
        return self if len(kept) == len(self.inputs) else replace(self, inputs=kept)


_ANY_TOKENS = Port(name=TOKENS, axes=None, dtype="int64")
"""Of an embedding that takes something else, which the importer says."""

UNKNOWN = Signature(inputs=(), outputs=())
"""The signature of a damaged model, of which the importer says what is wrong."""


def read_signature(model: Path, key: str = "") -> Signature:
    """Read the inputs and outputs of a model file, of a TFLite file by the signature `key`. Raises
    ModelNotFoundError or ModelFormatError as `find_model_files` does; OptionError where the file
    has no such signature."""
    files = find_model_files(model)
    if files.format == "onnx":
        if key:
            raise OptionError(
                f"the signature {key} is of TFLite files; {model} is ONNX, and has one graph",
                hint="leave --signature out",
            )
        own = _of_onnx(files.paths[0])
        if files.embedding is None:
            return own
        looked_up = _of_onnx(files.embedding.paths[0]).inputs
        tokens = next((port for port in looked_up if port.name == TOKENS), _ANY_TOKENS)
        return replace(own, inputs=tuple(_as_tokens(port, tokens) for port in own.inputs))
    from adrenoc.importers.tflite.file import read_tflite
    from adrenoc.importers.tflite.variables import lift_variables, take_signature

    try:
        file = read_tflite(files.paths[0], files.read()[0])
    except ModelFormatError:
        return UNKNOWN
    file, variables = lift_variables(take_signature(file, key))
    main = file.main
    return Signature(
        inputs=tuple(port_of(main.tensors[i]) for i in main.inputs),
        outputs=tuple(port_of(main.tensors[i]) for i in main.outputs),
        variables=variables,
    )


def _as_tokens(port: Port, tokens: Port) -> Port:
    """Return the tokens of which embeddings are looked up, and any other port as it is."""
    is_looked_up = port.name == EMBEDDINGS
    return replace(tokens, axes=(port.axes or ())[:2]) if is_looked_up else port


def list_signatures(model: Path) -> tuple[str, ...]:
    """Return the names of the signatures that a TFLite file lists; none of another file. Raises
    ModelNotFoundError or ModelFormatError where the file cannot be read."""
    files = find_model_files(model)
    if files.format == "onnx":
        return ()
    from adrenoc.importers.tflite.file import read_tflite

    file = read_tflite(files.paths[0], files.read()[0])
    return tuple(one.key for one in file.signatures)


def port_of(info: TensorInfo) -> Port:
    """Return a tensor of a TFLite file as a port."""
    axes = enumerate(info.shape)
    return Port(
        name=info.name,
        axes=tuple(None if at in info.open_axes else extent for at, extent in axes),
        dtype=info.dtype,
    )


def _of_onnx(path: Path) -> Signature:
    with open_plain(path) as file:
        head = file.read(8)
    if is_ort(head):
        from adrenoc.importers.onnx.load import read_proto

        graph = read_proto(path).graph
    else:
        try:
            graph = read_outline(path).model.graph
        except (WireError, TooManyNodesError):
            return UNKNOWN
    return Signature(inputs=ports_of(graph), outputs=_ports(graph.output))


def ports_of(graph: Any) -> tuple[Port, ...]:
    """Return the inputs of a graph of ONNX, constants left out."""
    constants = {tensor.name for tensor in graph.initializer}
    return _ports(value for value in graph.input if value.name not in constants)


def _ports(values: Iterable[Any]) -> tuple[Port, ...]:
    return tuple(
        Port(name=value.name, axes=_axes(value), dtype=_dtype(value.type.tensor_type.elem_type))
        for value in values
    )


def _axes(value: Any) -> tuple[Extent, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(map(extent_of, tensor.shape.dim))


def extent_of(dim: Any) -> Extent:
    """Return the extent of an ONNX dimension; names without a letter, as `?`, name nothing."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    name = str(dim.dim_param)
    return name if any(map(str.isalpha, name)) else None


def _dtype(element: int) -> str:
    """Return it as NumPy calls it; empty of what holds no numbers, and of types that ONNX lacks."""
    from onnx import TensorProto, helper

    known = frozenset(helper.get_all_tensor_dtypes()) - {TensorProto.UNDEFINED, TensorProto.STRING}
    if element not in known:
        return ""
    return str(helper.tensor_dtype_to_np_dtype(element))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Inputs that are `fixed` to values, and the `signature` of a TFLite file that has several."""

    fixed: tuple[tuple[str, str], ...] = ()
    signature: str = ""

    @property
    def leaves_decoder(self) -> bool:
        """Return whether it is another way into a file than that of a decoder with a past."""
        branch = dict(self.fixed).get(PAST_BRANCH, "")
        return bool(self.signature) or branch.lower() in ("false", "0")

    def options(self) -> dict[str, Any]:
        """Return what options say of it; None is what they leave."""
        return {"fixed": self.fixed or None, "signature": self.signature or None}


AS_IT_IS = Entry()
"""Nothing is fixed, and the first graph is taken."""


Fixed = tuple[tuple[str, str], ...]
"""(input, value as it was written)."""

_WORDS = {"true": 1, "false": 0}


def parse_fixed(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`, whose name may itself hold `=`; OptionError: another form."""
    name, equals, value = (part.strip() for part in text.rpartition("="))
    if not (equals and name and value):
        raise OptionError(
            f"--fix {text} is no input and its value; expected NAME=VALUE",
            hint="adrenoc compile MODEL --fix sr=16000",
        )
    return name, value


def read_fixed_inputs(
    model: Path, fixed: Fixed, signature: str = "", shapes: Shapes = ()
) -> dict[str, np.ndarray]:
    """Return the arrays of inputs of a model file that are fixed, by name: a bundle takes them no
    more.  `shapes` are those that options give to inputs. Raises OptionError where the model has no
    such input, or that takes no such value."""
    if not fixed:
        return {}
    return fill_ports(read_signature(model, signature).inputs, fixed, dict(shapes))


def fill_ports(
    ports: Iterable[Port], fixed: Fixed, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Return the arrays of `fixed` inputs, of the dtypes and extents that their ports have.

    One value fills all of an input; axes that are open have the extents of `shapes`, else one
    element, or as many as there are values. Raises OptionError where there is no such input, it is
    named twice, or it takes no such value."""
    known = {port.name: port for port in ports}
    found: dict[str, np.ndarray] = {}
    for name, text in fixed:
        if name not in known:
            names = list_names(known)
            raise OptionError(
                f"--fix names the input '{name}'{did_you_mean(name, list(known))}; the model's are "
                f"{names}",
                hint="adrenoc compile MODEL --fix NAME=VALUE",
            )
        if name in found:
            raise OptionError(
                f"--fix names the input '{name}' twice; expected once",
                hint="give each input one value",
            )
        port = known[name]
        found[name] = _fill(replace(port, axes=shapes.get(name, port.axes)), text)
    return found


def _fill(port: Port, text: str) -> np.ndarray:
    values = [_number(port, part.strip()) for part in text.split(",")]
    axes = port.axes if port.axes is not None else (None,) * (len(values) > 1)
    fixed = int(np.prod([d for d in axes if isinstance(d, int)], dtype=np.int64))
    rest, opened = max(len(values) // max(fixed, 1), 1), False
    shape = []
    for extent in axes:
        is_first = not isinstance(extent, int) and not opened
        opened |= is_first
        shape.append(extent if isinstance(extent, int) else rest if is_first else 1)
    array = np.array(values, port.dtype)
    if array.size not in (1, int(np.prod(shape, dtype=np.int64))):
        raise OptionError(
            f"--fix {port.name}={text} has {array.size} values; input '{port.name}' of "
            f"{port.dtype} {shape} takes one, or {int(np.prod(shape))}",
            hint=f"--fix {quote_word(f'{port.name}={values[0]}')}",
        )
    laid = array.reshape(shape) if array.size > 1 else array.reshape(())
    return np.array(np.broadcast_to(laid, shape))


def _number(port: Port, text: str) -> int | float | bool:
    """Return a value as the input's dtype holds it."""
    kind = np.dtype(port.dtype).kind if port.dtype else ""
    expected = {"b": "true or false", "f": "a number", "i": "a whole number", "u": "a whole number"}
    try:
        if kind == "b" and text.lower() in (*_WORDS, "0", "1"):
            return bool(_WORDS.get(text.lower(), text == "1"))
        if kind in "iu":
            number = _WORDS.get(text.lower())
            whole = int(text) if number is None else number
            limits = np.iinfo(port.dtype)
            if limits.min <= whole <= limits.max:
                return whole
        elif kind == "f":
            return float(text)
    except ValueError:
        pass
    what, held = expected.get(kind, "nothing: it holds no numbers"), port.dtype or "of text"
    raise OptionError(
        f"--fix {port.name}={text}: input '{port.name}' is {held}; expected {what}",
        hint=f"--fix {quote_word(f'{port.name}=VALUE')}",
    )


def tell_fixed(
    arrays: Mapping[str, np.ndarray], fixed: Sequence[tuple[str, str]]
) -> list[Decision]:
    """Return a decision for each input that became a constant."""
    return [
        Decision(
            subject=name,
            taken=f"a constant of {text}",
            reason="--fix says so: it is no input of the bundle, and what hangs on it is decided",
        )
        for name, text in fixed
        if name in arrays
    ]
