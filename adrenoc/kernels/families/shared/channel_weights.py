"""The weights that stand between the channels of an operator's input and those of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import largest_by_axes


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelWeights:
    """Weights whose axes are `letters`: I for inputs, O for outputs, others for all the rest.

    Of a transposed convolution with groups the outputs of one group are stated, of others the
    inputs.  `value` is None where the weights are computed.
    """

    value: np.ndarray | None
    shape: tuple[int, ...]
    letters: str
    axis: int
    """The axis of the result along which the outputs lie."""
    groups: int = 1
    transposed: bool = False

    @property
    def mixes(self) -> bool:
        """Whether each result is made of several channels."""
        inputs = self.shape[self.letters.index("I")]
        return (inputs // self.groups if self.transposed else inputs) > 1

    @cached_property
    def input_sizes(self) -> np.ndarray | None:
        """The largest size of the weights that multiply each channel that is read."""
        return self._largest(axis=2)

    @cached_property
    def output_sizes(self) -> np.ndarray | None:
        """The largest size of the weights that make each channel of the result."""
        return self._largest(axis=1)

    def _largest(self, axis: int) -> np.ndarray | None:
        """Return what is zero altogether is of no size, and counts as one."""
        if self.value is None:
            return None
        rest = tuple(a for a, letter in enumerate(self.letters) if letter not in "IO")
        largest = largest_by_axes(self.value, rest)
        sizes = self.split_by_group(largest).max(axis=axis).reshape(-1)
        return np.where(sizes > 0, sizes, 1.0)

    def split_by_group(self, by_channels: np.ndarray) -> np.ndarray:
        """Numbers along the two axes I and O of the weights, as [group, input, output]."""
        ahead = self.letters.index("I") < self.letters.index("O")
        matrix = by_channels if ahead else by_channels.T
        inputs, outputs = matrix.shape
        if self.transposed:
            return matrix.reshape(self.groups, inputs // self.groups, outputs)
        return matrix.reshape(inputs, self.groups, outputs // self.groups).transpose(1, 0, 2)


WeightsByChannel = Callable[[Graph, Node], ChannelWeights]
