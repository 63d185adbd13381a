"""How much work a search for precision may do: counted, not timed.

A search that ends by the clock takes other decisions on a busy machine.  Work is counted in nodes:
a plan takes as many as the model has, a run of one set of inputs a part of that.  The same command
therefore ends at the same place anywhere, and can say what it left untried.
"""

from __future__ import annotations

NODES = 100_000
"""Nodes that a search may plan in all: some ten minutes of one core."""
_NODES_A_RUN = 0.1
"""A run of a set of inputs launches what a plan writes the kernels of, which is less work."""


class Effort:
    """The work that one search has done, of what it may do."""

    def __init__(self, *, nodes: int, share: float = 1.0) -> None:
        """For a model of so many nodes; `share` of the usual effort."""
        self._nodes = max(1, nodes)
        self._limit = share * NODES
        self._spent = 0.0
        self._left: dict[str, int] = {}
        self.plans, self.runs = 0, 0

    def plan(self) -> None:
        """Count one plan of the model."""
        self.plans += 1
        self._spent += self._nodes

    def run(self, samples: int = 1) -> None:
        """Count one run of each of some sets of inputs."""
        self.runs += samples
        self._spent += samples * self._nodes * _NODES_A_RUN

    def is_spent(self, share: float = 1.0) -> bool:
        """Whether this share of it is done."""
        return self._spent >= share * self._limit

    def leave(self, what: str, count: int) -> None:
        """Note what a search did not look at for that reason; nothing if `count` is zero."""
        if count:
            self._left[what] = self._left.get(what, 0) + count

    @property
    def left(self) -> tuple[str, ...]:
        """What was left untried, in words for people."""
        return tuple(f"{count} {what}" for what, count in self._left.items())
