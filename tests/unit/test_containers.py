"""Containers of language models: where the model lies in them, and what is wrong with some."""

import random
import struct
import zipfile

import pytest
from model_zoo.containers import write_litertlm, write_task

from adrenoc.base.errors import ModelFormatError, UnsupportedOperatorError
from adrenoc.importers.formats import find_model_files

MODEL = bytes(4) + b"TFL3" + bytes(range(200))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.task", write_task(MODEL)),
        ("m.litertlm", write_litertlm(MODEL)),
        ("called.otherwise", write_litertlm(MODEL, tokenizer=b"{}", ends=(5,))),
    ],
)
def test_the_model_is_a_part_of_the_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    files = find_model_files(path)
    read, digest = files.read()
    assert (files.format, read, digest) == ("tflite", MODEL, files.sha256())
    assert files.ends == ((5,) if name == "called.otherwise" else ())
    path.write_bytes(content[:-1] + b"\xff" if content.endswith(MODEL) else content + b" ")
    assert find_model_files(path).format == "tflite"


def test_a_damaged_archive_is_told_in_one_sentence(tmp_path):
    """Whatever of it is damaged, as its version, or where it says that the model lies."""
    whole, drawn = write_task(MODEL), random.Random(3)
    path = tmp_path / "m.task"
    told = 0
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            content[drawn.randrange(len(content))] = drawn.choice((0, 255, drawn.randrange(256)))
        path.write_bytes(content)
        try:
            find_model_files(path)
        except (ModelFormatError, UnsupportedOperatorError):
            told += 1
    assert told > 200


def test_another_checksum_is_damage(tmp_path):
    """Of weights nothing else would tell."""
    path = tmp_path / "m.task"
    path.write_bytes(write_task(MODEL).replace(MODEL, MODEL[:-1] + b"!"))
    with pytest.raises(ModelFormatError, match="its model has the checksum"):
        find_model_files(path).read()


def test_names_of_entries_stay_in_their_line(tmp_path):
    path = tmp_path / "m.task"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a\x1b[2J\nb.tflite", MODEL)
    with pytest.raises(ModelFormatError, match=r"its entries are a\\x1b\[2J\\nb.tflite"):
        find_model_files(path)


def test_the_digest_is_of_the_model(tmp_path):
    path = tmp_path / "m.litertlm"
    path.write_bytes(write_litertlm(MODEL))
    before = find_model_files(path).sha256()
    path.write_bytes(write_litertlm(MODEL[:-1] + b"!"))
    assert find_model_files(path).sha256() != before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.task", write_task(MODEL, compressed=True), "compressed, expected it stored"),
        ("m.task", write_task(MODEL)[:-30], "is damaged or cut off"),
        ("m.task", write_task(MODEL).replace(b"PREFILL", b"PREFULL"), "holds no language model"),
        ("m.task", write_task(b"no model"), "as its decoder that begin with"),
        ("m.litertlm", write_litertlm(b"no model"), "as its decoder that begin with"),
        ("m.litertlm", write_litertlm(MODEL)[:40], "list of sections cannot be read"),
        ("m.litertlm", write_litertlm(MODEL)[:-1], "from byte 16384 to"),
        (
            "m.litertlm",
            b"LITERTLM" + struct.pack("<IIIIQ", 2, 0, 0, 0, 64) + bytes(99),
            "version 2",
        ),
        ("m.litertlm", b"LITERTLM" + struct.pack("<IIIIQ", 1, 0, 0, 0, 1 << 40), "ends at byte"),
        ("m.litertlm", write_litertlm(MODEL)[:36] + b"\xff" * 400, "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=message):
        find_model_files(path)


def test_damage_anywhere_in_the_list_is_an_error_or_harmless(tmp_path):
    whole = write_litertlm(MODEL, tokenizer=b"{}", ends=(5,))
    end = struct.unpack_from("<Q", whole, 24)[0]
    path = tmp_path / "m.litertlm"
    for at in range(8, end):
        damaged = bytearray(whole)
        damaged[at] ^= 0x81
        path.write_bytes(damaged)
        try:
            find_model_files(path)
        except ModelFormatError:
            continue
