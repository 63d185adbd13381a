"""Weights of few bits in blocks, as onnxruntime's own domain has them.

Before -> after:
    y = com.microsoft.MatMulNBits(x, bytes, scales)    y = adrenoc.NBits(x, bytes, scales)

Weights of 2, 4 and 8 bits stay as they are: a family of kernels multiplies them so.  Rows that are
no whole words are opened here, once, as floats.

Products by weights that a DequantizeLinear in blocks opens, as onnxruntime's MatMulNBits.

Before -> after:
    y = MatMul(x, Transpose(DequantizeLinear(bytes, scales, block_size=32)))
    y = com.microsoft.MatMulNBits(x, bytes, scales)

So weights stay in few bits.  onnxruntime does the same.

Source: onnxruntime's ContribOperators reference: MatMulNBits, GatherBlockQuantized.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.graph import MICROSOFT, OnnxGraph, array_of, attributes, is_standard
from adrenoc.importers.onnx.writer import Writer

N_BITS = "adrenoc.NBits"
"""Our own operator: x, bytes [N, blocks, a block's], scales [N, blocks], perhaps zero points."""

_KEPT_BITS, _BYTE, _WORD_BITS = 4, 8, 32

_TYPED = {"int4": 8, "uint4": 0}
"""Types of four bits -> what makes numbers from 0 to 15 of them, which is their zero then."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """N rows of blocks of whole numbers, each with a scale, and perhaps with a zero point."""

    bits: int
    block: int
    inputs: int
    packed: np.ndarray
    """[N, blocks, bytes], low bits first."""
    scales: np.ndarray
    zeros: np.ndarray | None

    @property
    def middle(self) -> float:
        """Return what stands for zero where no zero points are given."""
        return float(1 << (self.bits - 1))

    def open(self) -> np.ndarray:
        """Return [N, K] in float32."""
        n, blocks, _ = self.packed.shape
        values = unpack_bits(self.packed, self.bits)[:, :, : self.block].astype(np.float32)
        zeros = np.float32(self.middle) if self.zeros is None else self.zeros[:, :, None]
        opened = (values - zeros) * self.scales.astype(np.float32)[:, :, None]
        return np.asarray(opened.reshape(n, blocks * self.block)[:, : self.inputs])


def _matmul_n_bits(write: Writer) -> None:
    weights = _read_weights(write)
    x, bias = write.input(0), write.input(5)
    result = "" if bias else write.result
    if weights.inputs * weights.bits % _WORD_BITS == 0:
        product = _keep(write, weights, x, result)
    else:
        dtype = np.dtype(write.dtype(x))
        held = write.array(np.ascontiguousarray(weights.open().T).astype(dtype))
        product = write("MatMul", x, held, out=result)
    if bias:
        write("Add", product, bias, out=write.result)


def _keep(write: Writer, weights: _Weights, x: str, result: str) -> str:
    constants = [write.array(weights.packed), write.array(weights.scales)]
    if weights.zeros is not None:
        constants.append(write.array(weights.zeros))
    return write.own(
        N_BITS,
        x,
        *constants,
        shape=(*write.shape(x)[:-1], len(weights.packed)),
        out=result,
        like=x,
        block=weights.block,
        zero=weights.middle,
        bits=weights.bits,
    )


def _read_weights(write: Writer) -> _Weights:
    """Read the weights of a MatMulNBits in one form.

    Raises:
        RefusedError: they are no constants, or of a form that nothing here reads.
    """
    bits, block = int(write.number("bits", 4)), int(write.number("block_size", 32))
    k, n = int(write.number("K", 0)), int(write.number("N", 0))
    packed, scales = write.value(write.input(1)), write.value(write.input(2))
    zeros = write.value(write.input(3)) if write.input(3) else None
    if bits not in (2, 4, 8) or packed is None or scales is None:
        raise RefusedError("its weights are no constants of 2, 4 or 8 bits")
    if write.input(3) and zeros is None:
        raise RefusedError("its zero points are no constants")
    if write.input(4):
        raise RefusedError("its rows are reordered (g_idx)")
    if write.number("weight_prepacked", 0):
        raise RefusedError("its weights lie as one GPU wants them (weight_prepacked)")
    blocks = -(-k // block)
    return _Weights(
        bits=bits,
        block=block,
        inputs=k,
        packed=packed.reshape(n, blocks, block * bits // 8),
        scales=scales.reshape(n, blocks),
        zeros=None if zeros is None else _zero_points(zeros, n, blocks, bits),
    )


def _zero_points(zeros: np.ndarray, n: int, blocks: int, bits: int) -> np.ndarray:
    """Return [N, blocks] in float32, of packed bytes or of numbers."""
    if zeros.dtype != np.uint8:
        return zeros.reshape(n, blocks).astype(np.float32)
    return unpack_bits(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float32)


def unpack_bits(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return bytes along the last axis as the numbers packed in them, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


def _gather_block_quantized(write: Writer) -> None:
    """Write a lookup in a table of 4 bits: bytes of the rows that are asked for, opened then."""
    data, ids, scales, zeros = (write.input(index) for index in range(4))
    bits, block = int(write.number("bits", 4)), int(write.number("block_size", 128))
    table, steps, given = write.value(data), write.value(scales), write.value(zeros)
    axes = (int(write.number("gather_axis", 0)), int(write.number("quantize_axis", 1)))
    if table is None or steps is None or (zeros and given is None):
        raise RefusedError("its table is computed, expected constants")
    typed = _TYPED.get(str(table.dtype))
    bits = bits if typed is None else _KEPT_BITS
    if (
        (table.dtype != np.uint8 and typed is None)
        or bits not in (_KEPT_BITS, _BYTE)
        or table.ndim != 2
        or axes not in ((0, 1), (0, -1))
    ):
        raise RefusedError(
            f"its table is of {table.dtype} with {bits} bits, gathered along axis {axes[0]} and "
            f"quantised along {axes[1]}; expected 4 or 8 bits along axes 0 and 1"
        )
    if typed is not None:
        data = write.array(_pack_pairs(table.astype(np.int8) + typed))
        given = None if given is None else given.astype(np.float32) + typed
    shape = write.shape(ids)
    depth, blocks = (
        table.shape[1] * (1 if typed is not None or bits == _BYTE else 2),
        steps.shape[1],
    )
    if blocks * block != depth:
        raise RefusedError(f"its rows of {depth} are no whole blocks of {block}")
    dtype = int(write.element(scales))
    whole = write("Gather", data, ids, axis=0)
    codes = whole if bits == _BYTE else _split_nibbles(write, whole, (*shape, depth // 2, 1))
    grouped = write.reshape(write("Cast", codes, to=dtype), *shape, blocks, block)
    if given is not None:
        points = _zero_points(given, len(table), blocks, bits)
        held = write.array(points.astype(steps.dtype))
        zero = write.reshape(write("Gather", held, ids, axis=0), *shape, blocks, 1)
    else:
        middle = 1 << (bits - 1) if typed is None else typed
        zero = write.array(np.array(middle, steps.dtype))
    step = write.reshape(write("Gather", scales, ids, axis=0), *shape, blocks, 1)
    opened = write("Mul", write("Sub", grouped, zero), step)
    write.reshape(opened, *shape, depth, out=write.result)


def _pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Return rows of numbers from 0 to 15 as bytes, the first in the low bits."""
    wide = codes.astype(np.uint8)
    return np.asarray(wide[..., 0::2] | (wide[..., 1::2] << np.uint8(4)))


def _split_nibbles(write: Writer, data: str, shape: tuple[int, ...]) -> str:
    """Return bytes as the two numbers of each, along a last axis."""
    whole = write("Cast", data, to=6)
    sixteen = write.array(np.array(16, np.int32))
    high = write("Div", whole, sixteen)
    low = write("Sub", whole, write("Mul", high, sixteen))
    apart = [write.reshape(part, *shape) for part in (low, high)]
    return write("Concat", *apart, axis=len(shape) - 1)


N_BITS_REWRITES: dict[str, Callable[[Writer], None]] = {
    "GatherBlockQuantized": _gather_block_quantized,
    "MatMulNBits": _matmul_n_bits,
}


_LEAST_BLOCK = 16
_ZERO_OF = {**_TYPED, "int8": 128, "uint8": 0}
"""Type -> what makes numbers from zero on of it."""


def keep_block_weights(graph: OnnxGraph) -> None:
    """Change such products of `graph`, in place."""
    makers = graph.makers()
    changed = 0
    for at, node in enumerate(graph.nodes):
        product = _keep_codes(graph, makers, node)
        if product is not None:
            graph.nodes[at] = product
            changed += 1
    if changed:
        graph.drop_unused()
        reason = "a DequantizeLinear in blocks along what is added up opens them"
        graph.log.add(f"{changed} products", "keep their weights in few bits", reason)


def _keep_codes(
    graph: OnnxGraph, makers: Mapping[str, onnx.NodeProto], node: onnx.NodeProto
) -> onnx.NodeProto | None:
    """Return a product whose weights are opened in blocks as the operator of weights in few bits,
    with zero points as numbers; None for any other node."""
    opened, turned = _opening(makers, node)
    if opened is None:
        return None
    own = attributes(opened)
    block, axis = own.get("block_size", 0), own.get("axis", 1)
    values = [_value(graph, makers, name) for name in opened.input if name]
    if any(value is None for value in values) or block < _LEAST_BLOCK or block & (block - 1):
        return None
    codes, scales, *rest = (np.asarray(value) for value in values)
    kind = str(codes.dtype)
    floats = scales.dtype in (np.float32, np.float16)
    if codes.ndim != 2 or kind not in _ZERO_OF or axis % 2 != int(turned) or not floats:
        return None
    zero = _ZERO_OF[kind]
    if not turned:
        codes, scales, rest = codes.T, scales.T, [one.T for one in rest]
    n, k = codes.shape
    if k != scales.shape[1] * block:
        return None
    packed = (codes.astype(np.int16) + zero).astype(np.uint8).reshape(n, k // block, block)
    held = [_pack_pairs(packed) if kind in _TYPED else packed, scales]
    if rest or not zero:  # else zero is the middle, which goes without saying
        points = rest[0].astype(np.int16) + zero if rest else np.zeros(scales.shape)
        held.append(points.astype(scales.dtype))
    names = [f"{node.output[0]}/{what}" for what in ("codes", "scales", "zeros")][: len(held)]
    for name, value in zip(names, held, strict=True):
        graph.set_constant(name, np.ascontiguousarray(value))
    return helper.make_node(
        "MatMulNBits",
        [node.input[0], *names],
        list(node.output),
        name=node.name,
        domain=MICROSOFT,
        K=k,
        N=n,
        bits=_KEPT_BITS if kind in _TYPED else _BYTE,
        block_size=block,
    )


def _opening(
    makers: Mapping[str, onnx.NodeProto], node: onnx.NodeProto
) -> tuple[onnx.NodeProto | None, bool]:
    """Return what opens the weights of a product, and whether they are turned then."""
    opened, turned = None, False
    if node.op_type == "MatMul" and is_standard(node):
        opened = makers.get(node.input[1])
    if opened is not None and opened.op_type == "Transpose" and is_standard(opened):
        turned = attributes(opened).get("perm", [1, 0]) == [1, 0]
        opened = makers.get(opened.input[0]) if turned else None
    known = opened is not None and opened.op_type == "DequantizeLinear"
    return (opened if known else None), turned


def _value(graph: OnnxGraph, makers: Mapping[str, onnx.NodeProto], name: str) -> np.ndarray | None:
    """Return a constant, of an initialiser or of a node."""
    if name in graph.constants:
        return graph.constants[name]
    node = makers.get(name)
    if node is None or node.op_type != "Constant":
        return None
    return next((array_of(a.t) for a in node.attribute if a.name == "value"), None)
