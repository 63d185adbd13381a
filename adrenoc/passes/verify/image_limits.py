"""Is an image one that the target has?"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.errors import DefectError
from adrenoc.target.gpu import Limits


def check_image(name: str, physical: Sequence[int], limits: Limits) -> None:
    """Hold an image of physical shape `[layers, rows, columns, 4]` against the limits.

    Raises:
        DefectError: it is beyond them.
    """
    layers, rows, columns, _ = physical
    if (
        columns > limits.image2d_max_width_texels
        or rows > limits.image2d_max_height_texels
        or layers > limits.image_max_array_layers
    ):
        raise DefectError(
            f"{name} is {columns} x {rows} texels in {layers} layers, at most "
            f"{limits.image2d_max_width_texels} x {limits.image2d_max_height_texels} in "
            f"{limits.image_max_array_layers}"
        )
