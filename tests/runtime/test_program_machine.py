"""The machine that runs a bundle's program: what it does not know is refused as it is loaded."""

import shutil
import struct

import pytest

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
