"""Parts of the runtime beside Python's: digests, inflating, moved constants, programs."""

import hashlib
import json
import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.params import (
    ConstantSource,
    FilterTransform,
    Places,
    moves_to_json,
    write_params,
)
from adrenoc.kernels.families.winograd.winograd import winograd
from tests.commands import run_program
from tests.runtime.programs import HERE
from tests.runtime.test_android_headers import NATIVE
from tests.runtime.test_damage import TENSOR_READERS, build_with_readers

_DIGEST, _INSTRUCTIONS = "src/base/sha256", "src/base/sha256_instructions"
_PLAIN = """#include "base/sha256.h"
namespace adrenoc_runtime {
bool has_sha256_instructions() { return false; }
void mix_by_instructions(Sha256State*, const unsigned char*, size_t) {}
}  // namespace adrenoc_runtime
"""
_ARM64 = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
_LENGTHS = (0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 100_003)


def _check(command: list[str]) -> None:
    drawn = random.Random(3)
    for length in _LENGTHS:
        content = drawn.randbytes(length)
        done = subprocess.run(command, input=content, capture_output=True, check=True)
        assert done.stdout.decode().strip() == hashlib.sha256(content).hexdigest(), length


@pytest.mark.parametrize("way", ["instructions", "plain"])
def test_it_is_hashlibs(way, tmp_path):
    flags = Path("/proc/cpuinfo").read_text()
    if way == "instructions" and " sha_ni" not in flags and " sha2" not in flags:
        pytest.skip("this processor has no instructions for it")
    source = NATIVE / _INSTRUCTIONS
    if way == "plain":
        source = tmp_path / "plain"
        source.with_suffix(".cc").write_text(_PLAIN)
    program = build_with_readers("sha256_program.cc", tmp_path, [_DIGEST, str(source)], "-O1")
    _check([str(program)])


def test_it_is_hashlibs_on_arm64(tmp_path):
    """The processor that is emulated has the instructions."""
    if missing := [tool for tool in _ARM64 if shutil.which(tool) is None]:
        pytest.skip(f"no {' and no '.join(missing)}")
    compiler, emulator = _ARM64
    command = [compiler, "-std=c++17", "-O2", "-static", "-march=armv8-a+crypto"]
    sources = [HERE / "sha256_program.cc", *(NATIVE / f"{n}.cc" for n in (_DIGEST, _INSTRUCTIONS))]
    program = tmp_path / "arm64"
    words = [f"-I{NATIVE / 'src'}", *map(str, sources), "-o", str(program)]
    subprocess.run([*command, *words], check=True)
    _check([emulator, "-cpu", "cortex-a72", str(program)])


_KERNELS = b"".join(
    b"acc[%d] = mad(t%d.s%d, w[%d], acc[%d]);\n" % (i % 97, i, i % 4, i * 7 % 513, i % 97)
    for i in range(2000)
)
_DRAWN = random.Random(7)
_CONTENTS = {
    "nothing": b"",
    "a byte": b"x",
    "one byte often": b"\0" * 100_000,
    "a kernel's text": _KERNELS,
    "noise": _DRAWN.randbytes(80_000),
    "few letters": bytes(_DRAWN.choices(b"ab", k=50_000)),
    "skewed letters, so that words are long": bytes(
        _DRAWN.choices(range(40), [2.0**-i for i in range(40)], k=200_000)
    ),
    "far matches": (noise := _DRAWN.randbytes(32_000)) + noise + b"end",
}
_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)


def _deflate(content: bytes, level: int = 9, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
    return packer.compress(content) + packer.flush()


def _stream(bits: str) -> bytes:
    """Bits in the order in which they are read."""
    together = bits.replace(" ", "").ljust(8 * 16, "0")
    return bytes(int(together[at : at + 8][::-1], 2) for at in range(0, len(together), 8))


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inflate")
    return build_with_readers("inflate_program.cc", folder, ["runtime/src/bundle/inflate"], "-O1")


def _inflate(program: Path, deflated: bytes, *words: object, expect: int = 0) -> bytes:
    command = [program, *map(str, words)]
    done = subprocess.run(command, input=deflated, capture_output=True, check=False)
    assert done.returncode == expect, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("what", _CONTENTS)
def test_it_undoes_what_zlib_does(program, what):
    content = _CONTENTS[what]
    levels = [(level, zlib.Z_DEFAULT_STRATEGY) for level in (0, 1, 6)]
    for level, strategy in (*levels, *((9, strategy) for strategy in _STRATEGIES)):
        assert _inflate(program, _deflate(content, level, strategy), len(content)) == content


@pytest.mark.parametrize(
    ("deflated", "said", "reason"),
    [
        (_deflate(_KERNELS)[:-1], len(_KERNELS), "it ends too early"),
        (b"", 5, "it ends too early"),
        (_deflate(_KERNELS) + b"x", len(_KERNELS), "something follows it"),
        (_deflate(_KERNELS), len(_KERNELS) - 1, "it holds more than is said"),
        (_deflate(_KERNELS), len(_KERNELS) + 1, "it holds less than is said"),
        (_deflate(b"x"), 1 << 40, "it is said to hold too much"),
        (b"\x07", 1, "a block of no known kind"),
        (b"\x01\x05\x00\x00\x00hello", 5, "a stored block has a wrong length"),
        (_stream("1 10 0000001 00000"), 3, "a match before the beginning"),
        (_stream("1 10 10010001 0000001 11110"), 4, "a word is in no code"),
        (_stream("1 10 11000110"), 3, "a match of no known length"),
        # Four lengths of a code's lengths, of which three are one.
        (_stream("1 01 00000 00000 0000 100 100 100 000"), 9, "a code has more words"),
        # Two of them: words for 16 and 17, of which the first repeats what was before it.
        (_stream("1 01 00000 00000 0000 100 100 000 000 0 00"), 9, "before the first"),
        (_stream("1 01 00000 00000 0000 000 100 100 000" + " 1 1111111" * 2), 9, "more lengths"),
        # One word, which is another.
        (_stream("1 01 00000 00000 0000 100 000 000 000 1"), 9, "a word is in no code"),
    ],
)
def test_what_is_wrong_is_told(program, deflated, said, reason):
    told = _inflate(program, deflated, said, expect=3).decode()
    assert told.startswith("model.so cannot be inflated: ")
    assert reason in told


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED])
def test_damage_does_no_harm(program, strategy):
    for seed, what in enumerate(_CONTENTS):
        content = _CONTENTS[what][:20_000]
        _inflate(program, _deflate(content, strategy=strategy), len(content), seed, 500)


OUTPUTS, INPUTS, TAPS = 12, 5, 3
ALL = 2**31 - 1


@pytest.fixture(scope="module")
def program_bring(work) -> Path:
    return build_with_readers("bring.cc", work, TENSOR_READERS)


def _filters(dtype: str) -> np.ndarray:
    """Filters of all sizes: ordinary ones, what becomes infinite, and what halves hold coarsely."""
    random = np.random.default_rng(0)
    filters = random.standard_normal((OUTPUTS, INPUTS, TAPS, TAPS))
    scales = np.geomspace(1e-8, 6e4, OUTPUTS) / 4
    filters *= scales[:, None, None, None]
    filters[0] = 0
    filters[-1, 0] = 6e4
    filters[1, 1, 0] *= -0.0
    return filters.astype(dtype)


def _move(dtype: str, outputs: int) -> ConstantSource:
    """Filters that lie with their window first become transformed ones, with outputs innermost."""
    transform = FilterTransform.from_matrix(winograd(outputs).weight_transform)
    side = transform.side
    steps = (1, OUTPUTS, OUTPUTS * INPUTS * side, OUTPUTS * INPUTS)
    own = (INPUTS, 1, OUTPUTS * INPUTS * TAPS, OUTPUTS * INPUTS)
    return ConstantSource(
        name="p1",
        shape=(side, side, INPUTS, OUTPUTS),
        dtype=dtype,
        source="p0",
        width=np.dtype(dtype).itemsize,
        counts=(OUTPUTS, INPUTS, TAPS, TAPS),
        places=Places(first=0, digits=tuple(((ALL, step),) for step in steps)),
        source_places=Places(first=0, digits=tuple(((ALL, step),) for step in own)),
        transform=transform,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("outputs", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_filters_are_transformed_in_the_same_bits(dtype, outputs, program_bring, tmp_path):
    filters, move = _filters(dtype), _move(dtype, outputs)
    stored = np.ascontiguousarray(filters.transpose(2, 3, 0, 1))
    wanted = move.bring(stored, "")
    exact = np.einsum(
        "ik,ockl,jl->ijco",
        np.array(winograd(outputs).weight_transform, np.float64),
        filters.astype(np.float64),
        np.array(winograd(outputs).weight_transform, np.float64),
    )
    kind = np.finfo(dtype)
    with np.errstate(over="ignore"):
        # The last bit of a double may lie across the middle of two of the narrower numbers.
        near = {"rtol": kind.eps, "atol": kind.smallest_subnormal}
        np.testing.assert_allclose(wanted, exact.astype(dtype), **near)
    # Weights of F(4, 3) are never larger than those that they are made of.
    assert np.isinf(wanted).any() == (dtype == "float16" and outputs < 4)
    (tmp_path / "moves.json").write_text(moves_to_json({"p1": move}))
    write_params(tmp_path / "params", {"p0": stored})
    words = [program_bring, tmp_path / "moves.json", tmp_path / "params", "p1", tmp_path / "made"]
    subprocess.run(words, check=True)
    assert (tmp_path / "made").read_bytes() == wanted.tobytes()


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("rows"),
        lambda t: t.update(rows=[]),
        lambda t: t["rows"].pop(),
        lambda t: t["rows"][0].pop(),
        lambda t: t.update(rows=[[1, 0], [0, 1]], divisors=[1, 1]),
        lambda t: t.update(rows=[[1, 0, 0]] * 9, divisors=[1] * 9),
        lambda t: t["divisors"].__setitem__(0, 0),
        lambda t: t["rows"][1].__setitem__(0, 1 << 20),
    ],
)
def test_transforms_that_no_compiler_writes_are_refused(change, program_bring, tmp_path):
    move = _move("float16", 2)
    plain = json.loads(moves_to_json({"p1": move}))
    change(plain["moves"][0]["transform"])
    (tmp_path / "moves.json").write_text(json.dumps(plain))
    write_params(tmp_path / "params", {"p0": _filters("float16")})
    words = [program_bring, tmp_path / "moves.json", tmp_path / "params", "p1", tmp_path / "made"]
    refused = run_program(words)
    assert refused.returncode == 1, refused
    assert "moves.json: moves[0].transform" in refused.stdout


def test_filters_of_whole_numbers_are_refused(program_bring, tmp_path):
    move = replace(_move("float16", 2), width=1)
    (tmp_path / "moves.json").write_text(moves_to_json({"p1": move}))
    write_params(tmp_path / "params", {"p0": _filters("float16")})
    words = [program_bring, tmp_path / "moves.json", tmp_path / "params", "p1", tmp_path / "made"]
    refused = run_program(words)
    assert refused.returncode == 1, refused
    assert "is of no filter" in refused.stdout


BAD_BUNDLE = 23
MAGIC = struct.pack("<Q", 0xD225DE2F4214151E)
RETURN = 2


def _find_last_instruction(content: bytes) -> int:
    """Return the place of the program's last two words: they give back a register."""
    begin = content.index(MAGIC)
    (length,) = struct.unpack_from("<Q", content, begin - 8)
    at = begin + int(length) - 16
    assert struct.unpack_from("<q", content, at) == (RETURN,)
    return at


def _change(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) >= 1
    assert len(old) == len(new)
    return content.replace(old, new)


def _change_return(content: bytes, words: tuple[int, int]) -> bytes:
    at = _find_last_instruction(content)
    return content[:at] + struct.pack("<qq", *words) + content[at + 16 :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda c: _change(c, b"vm.builtin.alloc_storage", b"vm.builtin.alloc_stor4ge"),
            "the program calls `vm.builtin.alloc_stor4ge`, which this runtime does not have",
        ),
        (
            lambda c: _change(c, MAGIC, MAGIC[:1] + b"\0" + MAGIC[2:]),
            "the program is of another version of TVM: compile the model again",
        ),
        (lambda c: _change_return(c, (9, 0)), "the program has an instruction 9, expected 1 to 4"),
        (
            lambda c: _change_return(c, (RETURN, 1 << 40)),
            "reads a register: 1099511627776, expected 0 to ",
        ),
        (lambda c: _change_return(c, (1, 1 << 50)), "the program ends in an instruction"),
    ],
)
def test_what_the_machine_does_not_know_is_refused(
    runtime, bundle, opencl, execute, tmp_path, change, said
):
    copy = tmp_path / "changed.adrenoc"
    shutil.copytree(bundle.root, copy)
    library = copy / "model.so"
    library.write_bytes(change(library.read_bytes()))
    command = [runtime.runner, copy, "--opencl", opencl, "--trust-files"]
    done = execute(*command, expect=BAD_BUNDLE)
    assert f"model.so cannot be loaded: {'' if said.startswith('reads') else said}" in done.err
    assert said in done.err
