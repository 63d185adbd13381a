"""What `adrenoc inspect` shows of a decoder fits on a screen."""

from adrenoc.bundle.manifest import FileEntry, TensorSpec
from adrenoc.pages.bundle_page import _files, _tell_option, _tensors


def _spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype="float32", layout="row-major")


def test_caches_of_all_layers_have_a_row_and_few_tensors_one_each() -> None:
    caches = [_spec(f"past.{n}.{kind}", 1, 8, 9, 4) for n in range(28) for kind in ("key", "value")]
    rows = _tensors("input", (_spec("ids", 1, 1), *caches, _spec("mask.0", 9), _spec("mask.1", 9)))
    assert [row[1] for row in rows] == [
        *("ids", "past.0.key to past.27.key, 28 of them"),
        *("past.0.value to past.27.value, 28 of them", "mask.0", "mask.1"),
    ]
    other = [_spec(f"past.{n}", n) for n in range(28)]
    assert len(_tensors("input", tuple(other))) == 28  # no two are alike


def test_a_long_list_is_counted() -> None:
    assert _tell_option("caches", [["past.0", "present.0"]] * 56) == "caches = 56 of them"
    assert _tell_option("end_tokens", [7, 8]) == "end_tokens = [7, 8]"
    assert _tell_option("preset", "m" * 80) == f'preset = "{"m" * 80}"'


def test_kernels_of_a_folder_have_a_row() -> None:
    names = ("model.so", "kernels/a.cl", "buckets/1/kernels/a.cl", "buckets/1/kernels/b.cl")
    found = _files(tuple(FileEntry(path=name, bytes=512, sha256="0" * 64) for name in names))
    assert [row[:2] for row in found.rows] == [
        ("model.so", "512 B"),
        ("kernels/ (1 file)", "512 B"),
        ("buckets/1/kernels/ (2 files)", "1.0 KiB"),
    ]
