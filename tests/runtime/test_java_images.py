"""Pictures as inputs: the Java classes' conversion beside Pillow's filter in floats."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

MEAN = np.array([0.485, 0.456, 0.406], "float32")
DEVIATION = np.array([0.229, 0.224, 0.225], "float32")
YUV = (37, 26)  # width and height of the camera's picture


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A picture's way into a tensor, and what is asked of it."""

    name: str
    source: str
    size: tuple[int, int]
    degrees: int
    fit: str
    order: str
    dtype: str
    shape: tuple[int, ...]

    def line(self) -> str:
        """As the program reads it."""
        words = (self.name, self.source, *self.size, self.degrees, self.fit, self.order)
        return " ".join(map(str, (*words, self.dtype, "x".join(map(str, self.shape)))))


def _shot(source: str, size: tuple[int, int], degrees: int, words: str, *shape: int) -> Shot:
    fit, order, dtype = words.split()
    name = f"{source}_{size[0]}_{degrees}_{fit}_{order}_{dtype}_{shape[1]}"
    return Shot(
        name=name,
        source=source,
        size=size,
        degrees=degrees,
        fit=fit,
        order=order,
        dtype=dtype,
        shape=shape,
    )


SHOTS = (
    _shot("rgba", (64, 48), 0, "crop rgb float32", 1, 3, 12, 12),
    _shot("rgba", (40, 90), 90, "crop rgb float32", 1, 3, 16, 24),
    _shot("bitmap", (33, 21), 180, "stretch bgr float32", 1, 3, 10, 7),
    _shot("hardware", (33, 21), 270, "crop rgb uint8", 1, 10, 7, 3),
    _shot("image", (7, 5), 270, "stretch rgb float32", 1, 20, 30, 3),
    _shot("image", (16, 16), 450, "crop bgr int8", 16, 16, 3),
    _shot("rgba", (3, 200), 0, "stretch rgb uint8", 3, 5, 5),
    _shot("rgba", (1, 1), 90, "crop rgb float32", 1, 3, 2, 2),
    _shot("yuv", YUV, 90, "crop rgb float32", 1, 3, 12, 12),
    _shot("yuv", YUV, 0, "stretch bgr uint8", 1, 40, 50, 3),
)


def _filtered(picture: np.ndarray, shot: Shot) -> np.ndarray:
    """Red, green and blue at the tensor's size, turned."""
    image = pytest.importorskip("PIL.Image")
    planar = shot.shape[-3] == 3
    height, width = shot.shape[-2:] if planar else shot.shape[-3:-1]
    turns = shot.degrees // 90 % 4
    if turns % 2:
        height, width = width, height
    high, wide = picture.shape[:2]
    box = (0.0, 0.0, float(wide), float(high))
    if shot.fit == "crop":
        scale = min(wide / width, high / height)
        left, top = (wide - scale * width) / 2, (high - scale * height) / 2
        box = (left, top, left + scale * width, top + scale * height)
    channels = [
        np.asarray(
            image.fromarray(picture[:, :, c].astype("float32")).resize(
                (width, height), image.Resampling.BILINEAR, box=box
            )
        )
        for c in range(3)
    ]
    return np.rot90(np.stack(channels, axis=-1), -turns)


def _wanted(picture: np.ndarray, shot: Shot) -> np.ndarray:
    pixels = _filtered(picture, shot)
    if shot.dtype == "float32":
        pixels = (pixels / 255 - MEAN) / DEVIATION
    elif shot.dtype == "int8":
        pixels = pixels - 128
    if shot.order == "bgr":
        pixels = pixels[:, :, ::-1]
    if shot.shape[-3] == 3:
        pixels = pixels.transpose(2, 0, 1)
    return pixels.reshape(shot.shape)


def _camera_picture(rng: np.random.Generator, folder: Path) -> np.ndarray:
    """Luma and chromas as files, and the colours that they mean (JPEG's, over the full range)."""
    width, height = YUV
    luma = rng.integers(0, 256, (height, width), "uint8")
    chroma = rng.integers(0, 256, ((height + 1) // 2, (width + 1) // 2, 2), "uint8")
    (folder / "luma").write_bytes(luma.tobytes())
    (folder / "chroma").write_bytes(chroma.tobytes())
    whole = chroma.repeat(2, axis=0).repeat(2, axis=1)[:height, :width].astype("float64") - 128
    blue, red = whole[:, :, 0], whole[:, :, 1]
    colours = (luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue)
    return np.clip(np.stack(colours, axis=-1), 0, 255)


@pytest.mark.nightly
def test_pictures_become_tensors(jvm, tmp_path):
    rng = np.random.default_rng(11)
    camera = _camera_picture(rng, tmp_path)
    pictures = {}
    for shot in SHOTS:
        pixels = rng.integers(0, 256, (shot.size[1], shot.size[0], 4), "uint8")
        pictures[shot.name] = camera if shot.source == "yuv" else pixels
        (tmp_path / f"{shot.name}.rgba").write_bytes(pixels.tobytes())
    (tmp_path / "cases").write_text("".join(f"{shot.line()}\n" for shot in SHOTS))
    jvm.run("Images", tmp_path)
    for shot in SHOTS:
        made = np.fromfile(tmp_path / f"{shot.name}.raw", shot.dtype).reshape(shot.shape)
        wanted = _wanted(pictures[shot.name], shot)
        # Integers are rounded, once.
        tolerance = 1e-4 if shot.dtype == "float32" else 0.5 + 1e-3
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance, err_msg=shot.name)
