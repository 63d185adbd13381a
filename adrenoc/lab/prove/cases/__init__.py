"""The cases of the suite: small graphs, many in one ONNX file, that meet what drivers get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Concatenate, ParamSpec

from adrenoc.lab.net import Net


def add_to(net: Net, case: Case) -> None:
    """Add a case to a model under construction."""
    net.begin(case.title)
    net.output(case.build(net))


Build = Callable[[Net], str]
"""Adds the graph of a case to the models under construction; gives its output."""


_P = ParamSpec("_P")


def builder(function: Callable[Concatenate[Net, _P], str]) -> Callable[_P, Build]:
    """Return what takes all but the first argument of a function, and returns the rest of it."""

    def take(*arguments: _P.args, **words: _P.kwargs) -> Build:
        return lambda net: function(net, *arguments, **words)

    return take


@dataclass(frozen=True)
class Case:
    """`family` is the operator of the planning graph whose kernel the case is there for.

    `name` is unique, and says what is odd about it.  `fusion` is the form of fused kernel that it
    becomes where the cost model says so, empty for none.  `exact`: the result is one of the
    numbers that are read, so that halves round it once, to nearest, and nothing else may.
    `slack` is how much more error than others it is allowed.  `kernel` is what it becomes where the
    GPU multiplies bytes, empty of what is no product of bytes.  `feature` is what of the driver it
    is there for, by a word of quirks that does without.
    """

    family: str
    name: str
    build: Build
    _: KW_ONLY
    fusion: str = ""
    kernel: str = ""
    feature: str = ""
    exact: bool = False
    slack: float = 1.0

    @property
    def title(self) -> str:
        """Family and name: "conv2d: one row"."""
        return f"{self.family}: {self.name}"
