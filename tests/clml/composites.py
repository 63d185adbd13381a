"""TVM's own CLML partition, made to work on its wheel: the code generator `relax.ext.openclml`.

`tvm.relax.backend.adreno.clml.OpenCLMLOffLoad` cuts composite functions out of a module and hands
them to that function, which the wheel lacks.  Here it writes the same graph as TVM's own code
generator would, from the composite functions and the names that TVM gave their constants.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from adrenoc import native
from adrenoc.clml.region import GraphWriter, plain_text
from adrenoc.importers.relax.values import constant_value, op_name

_CONVOLUTIONS = ("relax.nn.conv2d", "relax.nn.conv2d_transpose")


def register() -> None:
    """Register the code generator, once a process."""
    native.load()
    if tvm_ffi.get_global_func("relax.ext.openclml", allow_missing=True) is None:
        tvm_ffi.register_global_func("relax.ext.openclml", _generate)


def _generate(functions: Sequence[Any], _options, names: Mapping[Any, str]) -> list[Any]:
    create = tvm_ffi.get_global_func("runtime.clml_runtime_create")
    made = []
    for function in functions:
        graph, constants = composite_graph(function, names)
        made.append(create(str(function.attrs["global_symbol"]), plain_text(graph), constants))
    return made


def composite_graph(function, names: Mapping[Any, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the graph of one function that TVM cut out, and the constants that it reads, in
    order."""
    return _Composites(names).write(function)


class _Composites:
    def __init__(self, names: Mapping[Any, str]) -> None:
        self._names = names
        self._writer = GraphWriter()
        self._nodes: dict[Any, int] = {}
        """Variable -> the node that makes it."""
        self._constants: dict[str, int] = {}

    def write(self, function) -> tuple[dict[str, Any], list[str]]:
        for param in function.params:
            self._nodes[param] = self._writer.leaf("input", str(param.name), *_facts(param))
        functions: dict[Any, Any] = {}
        for binding in _bindings(function):
            value = binding.value
            if isinstance(value, relax.Function):
                functions[binding.var] = value
            elif isinstance(value, relax.Call):
                self._nodes[binding.var] = self._kernel(binding, functions[value.op])
            else:
                self._nodes[binding.var] = self._nodes[value]
        result = function.body.body
        heads = result.fields if isinstance(result, relax.Tuple) else [result]
        graph = self._writer.finish([self._nodes[head] for head in heads])
        return graph, list(self._constants)

    def _kernel(self, binding, composite) -> int:
        call = binding.value
        name = str(composite.attrs["Composite"])
        calls = [b.value for b in _bindings(composite) if isinstance(b.value, relax.Call)]
        # TVM's test for transposed ones looks for a name that none has: they go the general way.
        if name.endswith("nn.conv2d"):
            inputs, attrs = self._convolution(call, calls)
        else:
            inputs, attrs = self._general(call, calls)
        return self._writer.kernel(name, inputs, *_facts(binding.var), attrs)

    def _convolution(self, call, calls: list[Any]) -> tuple[list[int], dict[str, Any]]:
        by_name = {op_name(inner): inner for inner in calls}
        conv = next(by_name[name] for name in _CONVOLUTIONS if name in by_name)
        parts = [call.args[0], conv.args[1]]
        attrs = _attributes(conv.attrs)
        if "relax.add" in by_name:
            parts.append(by_name["relax.add"].args[1])
        norm = by_name.get("relax.nn.batch_norm")
        if norm is not None:
            parts += norm.args[1:5]
            a = norm.attrs
            words = (f"{int(a.axis)}", f"{a.epsilon:f}", f"{int(a.center)}", f"{int(a.scale)}")
            attrs["batchnorm"] = list(words)
        pad = by_name.get("relax.nn.pad")
        if pad is not None:
            widths = [int(w) for w in pad.attrs.pad_width]
            attrs["padding"] = [widths[4], widths[6], widths[5], widths[7]]
        if "relax.nn.relu" in by_name:
            attrs["activation_type"] = "relu"
        return [self._node(part) for part in parts], attrs

    def _general(self, call, calls: list[Any]) -> tuple[list[int], dict[str, Any]]:
        attrs: dict[str, Any] = {}
        inputs = [self._node(arg) for arg in call.args]
        for inner in calls:
            if op_name(inner) == "relax.nn.relu":
                attrs["activation_type"] = "relu"
            attrs.update(_attributes(inner.attrs))
            inputs += [self._node(arg) for arg in inner.args if constant_value(arg) is not None]
        return inputs, attrs

    def _node(self, expr) -> int:
        if constant_value(expr) is None:
            return self._nodes[expr]
        name = str(self._names[expr])
        if name not in self._constants:
            self._constants[name] = self._writer.leaf("const", name, *_facts(expr))
        return self._constants[name]


def _bindings(function) -> Iterator[Any]:
    for block in function.body.blocks:
        yield from block.bindings


def _facts(expr) -> tuple[list[int], str]:
    """Shape and dtype, -1 for extents that are not known."""
    dims = [int(d.value) if hasattr(d, "value") else -1 for d in expr.ty.shape]
    return dims, str(expr.ty.dtype)


def _attributes(attrs) -> dict[str, Any]:
    """Every field of an operator's attributes, as typed JSON."""
    if attrs is None:
        return {}
    fields = type(attrs).__tvm_ffi_type_info__.fields
    return {field.name: _plain(getattr(attrs, field.name)) for field in fields}


def _plain(value):
    if value is None or str(value) == "void":
        return ""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, int | float):
        return value
    for kind, convert in _LEAVES:
        if isinstance(value, kind):
            return convert(value.value)
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return str(value)
    return [_plain(item) for item in value]


_LEAVES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (tvm.tirx.IntImm, int),
    (tvm.tirx.FloatImm, float),
)
