"""A function of one region that needs every operator of the emulated library."""

import numpy as np
from tvm import relax

from tests.clml.regions import constant, random

nn = relax.op.nn
SHAPE = (1, 8, 8, 6)


def _conv(emit, x, *, norm: bool = False, relu: bool = False):
    value = emit(nn.conv2d(x, constant(random(8, 8, 3, 3)), padding=(1, 1, 1, 1)))
    return _tail(emit, value, norm=norm, relu=relu)


def _tail(emit, value, *, norm: bool, relu: bool):
    if norm:
        vectors = [random(8, seed=s) for s in (1, 2, 3)] + [np.abs(random(8, seed=4)) + 0.5]
        normed = nn.batch_norm(value, *map(constant, vectors), axis=1, training=False)
        value = emit(relax.TupleGetItem(emit(normed), 0))
    return emit(nn.relu(value)) if relu else value


def make(emit, x):
    """[1, 8, 8, 6] -> [1, 2, 4]."""
    value = _conv(emit, x)
    value = _conv(emit, value, relu=True)
    value = _conv(emit, value, norm=True)
    value = _conv(emit, value, norm=True, relu=True)
    value = emit(nn.max_pool2d(value, (2, 2), (2, 2)))
    value = _tail(emit, value, norm=True, relu=False)
    value = emit(nn.relu(emit(relax.op.clip(value, -1, 1))))
    value = emit(nn.pad(value, [0, 0, 0, 0, 1, 1, 1, 1]))  # 8 x 6 x 5
    how = {"layout": "NCHW", "method": "linear", "coordinate_transformation_mode": "align_corners"}
    value = emit(relax.op.image.resize2d(value, (12, 10), **how))
    value = emit(relax.op.reshape(value, (1, 2, 2, 2, 12, 10)))
    value = emit(relax.op.permute_dims(value, [0, 3, 4, 1, 5, 2]))
    value = emit(relax.op.reshape(value, (1, 2, 24, 20)))
    value = emit(relax.op.concat([value, emit(nn.relu(value))], 1))  # 4 x 24 x 20
    value = emit(relax.op.add(value, emit(nn.softmax(value, 1))))
    value = emit(relax.op.reshape(value, (1, 1920)))
    value = emit(relax.op.matmul(value, constant(random(1920, 6, seed=5))))
    value = emit(relax.op.add(value, constant(random(6, seed=6))))
    value = emit(relax.op.reshape(value, (1, 2, 3)))
    return relax.op.matmul(value, constant(random(3, 4, seed=7)))


def plain(emit, x):
    """A convolution alone: interface 1, nothing to copy inside, so that it can be recorded."""
    return _conv(emit, x, relu=True)
