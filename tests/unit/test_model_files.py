"""Files of models, and containers of language models: what is found, and what is wrong."""

import mmap
import os
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_zoo.containers import write_litertlm, write_task
from onnx import TensorProto, helper

from adrenoc.base.errors import ModelFormatError, ModelNotFoundError, UnsupportedOperatorError
from adrenoc.importers import onnx_wire
from adrenoc.importers.formats import MOST_DATA_BYTES, DataRange, ModelFiles, find_model_files
from adrenoc.importers.onnx.importer import import_onnx
from adrenoc.importers.onnx.load import load_onnx, load_parts
from tests.models import graph

TERABYTE = 1 << 40


def external(name: str, shape: tuple[int, ...], **entries: object) -> TensorProto:
    """A constant of float32 that lies in a data file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data.bin", **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_of(tensors: list[TensorProto]) -> onnx.ModelProto:
    """A model that adds the tensors to its input."""
    names = ["x", *(t.name for t in tensors)]
    model = graph([helper.make_node("Sum", names, ["y"])], {"x": (1,)}, ["y"])
    model.graph.initializer.extend(tensors)
    return model


def written(folder: Path, tensors: list[TensorProto], size: int = TERABYTE) -> Path:
    """A model that adds the tensors to its input, beside a data file without content."""
    model = model_of(tensors)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with (folder / "data.bin").open("wb") as file:
        file.truncate(size)
    return path


def put(folder: Path, offset: int, content: bytes) -> None:
    with (folder / "data.bin").open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_a_bundle_in_place_of_a_model_is_told(bundle_folder):
    with pytest.raises(ModelNotFoundError, match="is a bundle, which has been compiled") as caught:
        find_model_files(bundle_folder)
    assert caught.value.hint == f"adrenoc run {bundle_folder}"
    with pytest.raises(ModelNotFoundError, match="is a folder; expected a model file"):
        find_model_files(bundle_folder.parent)


def test_a_terabyte_is_not_read_where_tensors_name_little_of_it(tmp_path):
    tensors = [
        external("w", (4, 2), offset=TERABYTE - 64, length=32),
        external("v", (3,), offset=12),  # its length by shape and type
        external("u", (5,), offset=16),
        external("first", ()),
    ]
    files, data = find_model_files(written(tmp_path, tensors)), tmp_path / "data.bin"
    assert files.data == (
        DataRange(path=data, offset=0, length=4),
        DataRange(path=data, offset=12, length=24),
        DataRange(path=data, offset=TERABYTE - 64, length=32),
    )
    before = files.sha256()
    put(tmp_path, 1 << 20, b"nobody reads this")
    assert files.sha256() == before
    put(tmp_path, TERABYTE - 36, np.float32(5).tobytes())
    assert files.sha256() != before
    held = {t.name: onnx.numpy_helper.to_array(t) for t in load_onnx(files)[0].graph.initializer}
    assert held["w"][3, 1] == 5
    assert held["v"].shape == (3,)


def test_what_functions_keep_in_data_files_is_found(tmp_path):
    path = written(tmp_path, [])
    model = onnx.load(path)
    made = helper.make_node("Constant", [], ["b"], value=external("c", (6,), offset=8))
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "F", [], ["b"], [made], imports))
    path.write_bytes(model.SerializeToString())
    files = find_model_files(path)
    assert [(part.offset, part.length) for part in files.data] == [(8, 24)]
    assert len(load_onnx(files)[0].functions[0].node[0].attribute[0].t.raw_data) == 24


@pytest.mark.parametrize(
    "tensors",
    [
        [external("w", (MOST_DATA_BYTES // 4 + 1,))],
        [external(f"w{i}", (MOST_DATA_BYTES // 16,), offset=0) for i in range(5)],
        [external("w", (2**40, 2**40, 2**40))],
    ],
    ids=["by shape", "in sum", "beyond numbers"],
)
def test_more_than_a_phone_holds_is_refused_unread(tmp_path, tensors):
    with pytest.raises(ModelFormatError, match=f"expected up to {MOST_DATA_BYTES}"):
        find_model_files(written(tmp_path, tensors))


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (external("w", (4,), length=8), "has 8 bytes, expected 16"),
        (external("w", (4,), length=MOST_DATA_BYTES + 1), "expected 16"),
        (external("w", (-4,)), "has -16 bytes, expected 0"),
        (external("w", (4,), offset=TERABYTE), "does not fit the model"),
        (external("w", (4,), length="much"), "does not fit the model"),
    ],
    ids=["shorter than its shape", "vast", "below zero", "beyond the end", "no number"],
)
def test_what_does_not_fit_the_data_file_is_refused(tmp_path, tensor, said):
    with pytest.raises(ModelFormatError, match=said):
        load_onnx(find_model_files(written(tmp_path, [tensor])))


@pytest.mark.parametrize("data_type", [TensorProto.UNDEFINED, TensorProto.STRING, 99])
def test_a_type_without_size_reads_nothing_to_the_end_of_the_file(tmp_path, data_type):
    tensor = external("w", (4,))
    tensor.data_type = data_type
    with pytest.raises(ModelFormatError, match="no fixed size"):
        find_model_files(written(tmp_path, [tensor]))


@pytest.mark.parametrize("head", [b"\x1c\0\0\0TFL3", b"\x08\x08\x3a\x00"], ids=["tflite", "onnx"])
def test_a_vast_model_file_is_refused_unread(tmp_path, head):
    path = tmp_path / "model"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(TERABYTE)
    with pytest.raises(ModelFormatError, match=f"has {TERABYTE} bytes"):
        find_model_files(path)


def test_a_range_counts_in_the_digest_by_where_it_lies(tmp_path):
    path = written(tmp_path, [external("w", (4,))])
    data = tmp_path / "data.bin"
    digests = {
        ModelFiles(format="onnx", paths=(path, data), data=parts).sha256()
        for parts in (
            (DataRange(path=data, offset=0, length=16),),
            (DataRange(path=data, offset=8, length=16),),
            (DataRange(path=data, offset=0, length=8), DataRange(path=data, offset=16, length=8)),
        )
    }
    assert len(digests) == 3


def test_small_files_are_walked_once_as_long_as_their_bytes_are_the_same(tmp_path, monkeypatch):
    """Neither size nor times of a file say whether it was changed: another process may write to
    pages of it."""
    walks: list[None] = []
    made: Any = onnx_wire.Outline.__init__

    def begin(own: onnx_wire.Outline, **given: object) -> None:
        walks.append(None)
        made(own, **given)

    monkeypatch.setattr(onnx_wire.Outline, "__init__", begin)
    path = written(tmp_path, [external("a", (1,), offset=123)], size=1024)
    found = find_model_files(path)
    assert find_model_files(path) == found
    assert len(walks) == 1
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b"123", b"456"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [span.offset for span in find_model_files(path).spans] == [456]
    assert len(walks) == 2


@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
def test_large_weights_are_read_into_memory_once(tmp_path, beside):
    """A message held a second copy of each, and a model took twice its file to be imported."""
    values = {f"w{i}": np.full((2, 1 << 20), i, np.float32) for i in range(8)}
    model = model_of([onnx.numpy_helper.from_array(v, n) for n, v in values.items()])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=beside, location="m.data")
    del model
    begun = held_bytes()
    loaded = load_parts(find_model_files(tmp_path / "m.onnx"))
    assert held_bytes() - begun < sum(value.nbytes for value in values.values()) + (16 << 20)
    assert loaded.model.ByteSize() < 4096
    for name, value in values.items():
        np.testing.assert_array_equal(loaded.weights[name], value)


def test_a_tensor_that_does_not_fit_its_large_data_is_refused(tmp_path):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=bytes(1 << 17))
    path = tmp_path / "m.onnx"
    onnx.save(model_of([tensor]), path)
    with pytest.raises(ModelFormatError, match=r"'w' of the shape \[3\] does not fit"):
        import_onnx(find_model_files(path), shapes={})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data_type": 99}, "'w' has the element type 99"),
        ({"dims": [-2, -16384]}, r"'w' has the shape \[-2, -16384\]"),
    ],
    ids=["type", "extents"],
)
def test_a_damaged_tensor_with_large_data_is_named(tmp_path, change, said):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 15])
    tensor.raw_data = bytes(1 << 17)
    for name in change:
        tensor.ClearField(name)
    tensor.MergeFrom(TensorProto(**change))
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of([tensor]).SerializeToString())
    with pytest.raises(ModelFormatError, match=said):
        import_onnx(find_model_files(path), shapes={})


def held_bytes() -> int:
    """The memory of this process, with what it has read of mapped files."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


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
