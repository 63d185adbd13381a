"""What the runtime inflates is what zlib deflated, and nothing damaged harms it."""

import random
import subprocess
import zlib
from pathlib import Path

import pytest

from tests.runtime.test_damage import build_with_readers

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
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
