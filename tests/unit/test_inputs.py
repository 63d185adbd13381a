"""Inputs of models: files, images, random numbers, and sets where nobody gave any."""

from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import InputError
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check import trial_inputs
from adrenoc.check.inputs import ImageOptions, InputFile, make_inputs, random_input
from adrenoc.check.trial_inputs import FORMS, draw_trials
from tests.models import graph, write

IMAGE = TensorSpec(name="image", shape=(1, 3, 4, 5), dtype="float32")
MASK = TensorSpec(name="mask", shape=(2,), dtype="bool")
TOKENS = TensorSpec(name="tokens", shape=(2, 3), dtype="int64")


def refused(specs: list[TensorSpec], *files: str, image: ImageOptions | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        make_inputs(specs, [InputFile.parse(f) for f in files], image=image)
    assert caught.value.hint
    return caught.value


def test_random_numbers_repeat_and_do_not_depend_on_company():
    alone = make_inputs([TOKENS])["tokens"]
    together = make_inputs([IMAGE, MASK, TOKENS])
    np.testing.assert_array_equal(alone, together["tokens"])
    assert list(together) == ["image", "mask", "tokens"]
    assert not np.array_equal(alone, make_inputs([TOKENS], seed=1)["tokens"])
    for spec in (IMAGE, MASK, TOKENS):
        assert together[spec.name].dtype == spec.dtype
        assert together[spec.name].shape == spec.shape
    assert alone.min() >= 0
    assert alone.max() <= 9


def test_random_bytes_cover_their_range():
    values = random_input(TensorSpec(name="x", shape=(5000,), dtype="int8"))
    assert (values.min(), values.max()) == (-128, 127)


def test_npy_npz_and_raw(tmp_path):
    image = np.arange(60, dtype=np.float32).reshape(IMAGE.shape)
    tokens = np.arange(6).reshape(2, 3)
    np.save(tmp_path / "i.npy", image.astype(np.float64))
    np.savez(tmp_path / "all.npz", image=image, tokens=tokens)
    (tmp_path / "i.bin").write_bytes(image.tobytes())
    for name in ("i.npy", "i.bin", "all.npz"):
        found = make_inputs([IMAGE], [InputFile(path=tmp_path / name)])
        np.testing.assert_array_equal(found["image"], image)
        assert found["image"].dtype == np.float32
    both = make_inputs([IMAGE, TOKENS], [InputFile(path=tmp_path / "all.npz")])
    np.testing.assert_array_equal(both["tokens"], tokens)


def test_npz_with_one_array_serves_the_only_input(tmp_path):
    np.savez(tmp_path / "x.npz", np.ones((2,), np.bool_))
    assert make_inputs([MASK], [InputFile(path=tmp_path / "x.npz")])["mask"].all()


def test_a_scalar_of_a_file_stays_one(tmp_path):
    flag = TensorSpec(name="flag", shape=(), dtype="bool")
    step = TensorSpec(name="step", shape=(), dtype="float32")
    np.savez(tmp_path / "all.npz", flag=np.array(True), step=np.array(2.5))
    np.save(tmp_path / "flag.npy", np.array(True))
    found = make_inputs([flag, step], [InputFile(path=tmp_path / "all.npz")])
    alone = make_inputs([flag], [InputFile(path=tmp_path / "flag.npy")])
    assert found["flag"].shape == found["step"].shape == alone["flag"].shape == ()
    assert (found["flag"], found["step"]) == (True, 2.5)


def test_name_may_hold_an_equals_sign():
    assert InputFile.parse("a=b=c.npy") == InputFile(name="a=b", path=Path("c.npy"))
    assert InputFile.parse("c.npy") == InputFile(path=Path("c.npy"))
    with pytest.raises(InputError, match="names no file"):
        InputFile.parse("image=")


def save(path: Path, content: object) -> None:
    """Write an array, several by name, or bytes."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content, allow_pickle=True)


@pytest.mark.parametrize(
    ("content", "file", "specs", "said"),
    [
        (np.ones((3, 4, 5), np.float32), "image=i.npy", [IMAGE], ["[3, 4, 5]", "[1, 3, 4, 5]"]),
        (np.array([{}], object), "i.npy", [IMAGE], ["it holds objects of Python"]),
        (np.full(IMAGE.shape, "a"), "i.npy", [IMAGE], ["save numbers of float32 with np.save"]),
        (
            *(np.ones(IMAGE.shape, np.int64), "i.npy", [IMAGE]),
            ["holds int64; input 'image' takes float32"],
        ),
        (bytes(7), "i.raw", [IMAGE], ["7 bytes"]),
        (np.ones(3), "imgae=i.npy", [IMAGE, TOKENS], ["no input 'imgae'", "--input image="]),
        (np.ones(3), "i.npy", [IMAGE, TOKENS], ["2 inputs"]),
        (
            *({"a": np.ones(1), "b": np.ones(1)}, "x.npz", [IMAGE]),
            ["holds 'a', 'b'; expected 'image'"],
        ),
    ],
    ids=["shape", "objects", "words", "dtype", "size", "name", "no name", "names"],
)
def test_what_does_not_fit_is_told(tmp_path, content, file, specs, said):
    name, _, path = file.rpartition("=")
    save(tmp_path / path, content)
    error = refused(specs, f"{name}={tmp_path / path}" if name else str(tmp_path / path))
    assert all(part in f"{error.message} {error.hint}" for part in said)


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((3, 4, 5), "array.reshape([1, 3, 4, 5])"),
        ((2, 3, 4, 5), "compile with --shape image:2,3,4,5"),
        ((1, 3, 5, 4), "array.reshape([1, 3, 4, 5]), or compile with --shape image:1,3,5,4"),
        ((0, 3, 4, 5), "save an array of the shape [1, 3, 4, 5] with np.save"),
        ((), "save an array of the shape [1, 3, 4, 5] with np.save"),
    ],
)
def test_a_hint_about_a_shape_can_be_followed(tmp_path, shape, hint):
    np.save(tmp_path / "i.npy", np.ones(shape, np.float32))
    assert refused([IMAGE], str(tmp_path / "i.npy")).hint == hint


@pytest.mark.parametrize("name", ["no.npy", "no.npz", "no.bin", "no.png"])
def test_missing_file(tmp_path, name):
    error = refused([IMAGE], str(tmp_path / name))
    assert "does not exist" in error.message or "cannot be read" in error.message


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.png"])
def test_damaged_file(tmp_path, name):
    (tmp_path / name).write_bytes(b"this is not what it says")
    assert "is not a" in refused([IMAGE], str(tmp_path / name)).message


def write_image(path: Path, height: int = 4, width: int = 5) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)
    image.fromarray(pixels).save(path)
    return pixels


def test_image_in_both_layouts(tmp_path):
    pixels = write_image(tmp_path / "x.png")
    file = [InputFile(path=tmp_path / "x.png")]
    options = ImageOptions(mean=(0.5, 0.4, 0.3), std=(0.2,))
    expected = (pixels / 255.0 - [0.5, 0.4, 0.3]) / 0.2
    first = make_inputs([IMAGE], file, image=options)["image"]
    np.testing.assert_allclose(first[0].transpose(1, 2, 0), expected, rtol=1e-5)
    last = TensorSpec(name="image", shape=(1, 4, 5, 3), dtype="float32")
    np.testing.assert_allclose(
        make_inputs([last], file, image=options)["image"][0], expected, rtol=1e-5
    )


def test_image_as_bytes_and_as_grey(tmp_path):
    pixels = write_image(tmp_path / "x.png")
    file = [InputFile(path=tmp_path / "x.png")]
    spec = TensorSpec(name="x", shape=(1, 4, 5, 3), dtype="uint8")
    np.testing.assert_array_equal(make_inputs([spec], file)["x"][0], pixels)
    grey = TensorSpec(name="x", shape=(1, 1, 4, 5), dtype="float32")
    assert make_inputs([grey], file)["x"].shape == (1, 1, 4, 5)


def test_image_of_another_size_is_not_resized(tmp_path):
    write_image(tmp_path / "x.png", 8, 6)
    error = refused([IMAGE], str(tmp_path / "x.png"))
    assert "6x8 pixels" in error.message
    assert "5x4" in error.message
    assert "-resize 5x4" in error.hint


def test_images_that_do_not_fit_are_told(tmp_path):
    write_image(tmp_path / "x.png")
    file = str(tmp_path / "x.png")
    assert "takes no image" in refused([TOKENS], file).message
    assert "--mean has 2" in refused([IMAGE], file, image=ImageOptions(mean=(0.1, 0.2))).message


@pytest.mark.parametrize("names", [("a.npy", "b.npy"), ("a.npy", "c.npz"), ("c.npz", "a.npy")])
def test_an_input_that_is_given_twice_is_refused(tmp_path, names):
    mask = np.ones((2,), np.bool_)
    np.save(tmp_path / "a.npy", mask)
    np.save(tmp_path / "b.npy", mask)
    np.savez(tmp_path / "c.npz", mask=mask)
    error = refused([MASK], *(str(tmp_path / name) for name in names))
    assert "'mask' is given twice" in error.message


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "CHWN"},
        *({"std": std} for std in ((0.0,), (), (float("inf"),), (float("nan"),))),
        *({"mean": mean} for mean in ((), (float("nan"), 0.0, 0.0))),
    ],
)
def test_image_options_are_checked(options):
    with pytest.raises(InputError):
        ImageOptions(**options)


def _sets(folder: Path, *shape: int, dtype: str = "float32", **more: object) -> list[np.ndarray]:
    model = write(graph([], {}, []), folder)
    spec = TensorSpec(**{"name": "x", "shape": shape, "dtype": dtype, **more})
    trials = draw_trials(model, [spec], seed=0)
    assert len(trials.sets) == len(FORMS)
    assert np.array_equal(trials.sets[0][spec.name], make_inputs([spec], seed=0)[spec.name])
    for one in trials.sets:
        assert one[spec.name].shape == shape and one[spec.name].dtype == dtype
    return [one[spec.name] for one in trials.sets]


@pytest.mark.parametrize("shape", [(1, 3, 32, 32), (2, 32, 48, 1)])
def test_images_that_are_scaled_reach_255_and_have_flat_and_dotted_rows(tmp_path, shape):
    assert 0.9 < _sets(tmp_path, *shape)[1].max() <= 1
    _, large, flat, sparse = _sets(tmp_path, *shape, bounds=(0, 255))
    assert (large.min(), large.max()) == (0, 255)
    assert flat.min() >= 0 and 200 < flat.max() <= 255
    assert not np.ptp(flat.reshape(-1, shape[-1])[::2], axis=1).any()
    assert np.mean(sparse.reshape(-1, shape[-1])[::2] == 0) > 0.8


@pytest.mark.parametrize(("dtype", "name"), [("int16", "x"), ("int32", "pcm")])
def test_sounds_reach_what_16_bits_hold(tmp_path, dtype, name):
    large = _sets(tmp_path, 1, 16000, dtype=dtype, name=name)[1]
    assert large.min() < -32000 and large.max() > 32000


def test_sounds_in_float_reach_both_scales(tmp_path):
    usual, large, flat, sparse = _sets(tmp_path, 1, 16000, bounds=(-(2**15), 2**15 - 1))
    assert large.min() < -32000 and large.max() > 32000
    assert max(abs(usual).max(), abs(flat).max(), abs(sparse).max()) < 8
    learned = _sets(tmp_path, 1, 16000)[1]
    assert 0.9 < learned.max() <= 1 and -1 <= learned.min() < -0.9


@pytest.mark.parametrize(
    ("dtype", "bounds", "ends"),
    [
        ("int64", (0, 30521), (0, 30521)),
        ("int64", (), (0, 999)),
        ("uint16", (), (0, 65535)),
        ("int8", (), (-128, 127)),
    ],
)
def test_whole_numbers_reach_both_ends(tmp_path, dtype, bounds, ends):
    _, large, flat, sparse = _sets(tmp_path, 2, 64, dtype=dtype, bounds=bounds)
    assert (large.min(), large.max()) == ends
    assert (flat == ends[1]).all()
    assert np.mean(sparse == 0) > 0.8


def test_masks_are_all_ones_and_padded_on_the_left(tmp_path):
    _, _, flat, sparse = _sets(tmp_path, 2, 8, dtype="int64", bounds=(0, 1))
    assert flat.all()
    assert sparse.tolist() == [[0, 0, 1, 1, 1, 1, 1, 1]] * 2


def test_other_floats_have_rows_of_four_times_as_much_about_four(tmp_path):
    usual, large, _, _ = _sets(tmp_path, 4, 6)
    np.testing.assert_allclose(large[::2], 4 * usual[::2] + 4, rtol=1e-6)
    assert np.array_equal(large[1::2], usual[1::2])


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0)])
def test_any_shape_will_do(tmp_path, shape):
    for dtype in ("float32", "float16", "int64", "bool"):
        _sets(tmp_path, *shape, dtype=dtype)


def test_a_huge_model_takes_one_set_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_inputs, "_HUGE_BYTES", 1)
    model = write(graph([], {}, []), tmp_path)
    trials = draw_trials(model, [TensorSpec(name="x", shape=(2,), dtype="float32")], seed=0)
    assert len(trials.sets) == 1
    assert trials.said.startswith("one set of random numbers: the model has")
