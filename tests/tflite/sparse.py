"""A sparse constant, as TFLite stores it."""

import numpy as np

from tests.tflite.build import T


def sparse_matrix(r: np.random.Generator) -> T:
    """Five rows of eight columns; the columns are compressed."""
    dense = r.uniform(-1, 1, (5, 8)).astype(np.float32)
    dense[r.uniform(0, 1, (5, 8)) < 0.7] = 0
    return T(data=dense, is_constant=True, is_sparse=True)
