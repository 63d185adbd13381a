"""Modules are loaded, and models compiled, with little looking for circles among objects.

TVM and what uses it make some hundred thousand objects that stay for as long as the process; the
collector would go over them again and again, an eighth of the time of the imports and a twentieth
of a compilation's.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def collector_paused() -> Iterator[None]:
    """While the block imports, nothing is collected; then all is as it was."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_MAKE_METHOD = "_create_fn"
_SELDOM_CALLED = frozenset({"__delattr__", "__eq__", "__hash__", "__repr__", "__setattr__"})
"""Methods of dataclasses; nearly all of these are never called, and `__init__` nearly always."""


@contextmanager
def methods_put_off() -> Iterator[None]:
    """Dataclasses that the block defines compile such methods as they are first called.

    Each is a text that Python compiles; of some 250 classes with five of them that is a fortieth of
    MobileNetV2's compilation.  From Python 3.13 on a class is compiled as a whole, quickly: there
    the block changes nothing.
    """
    make = getattr(dataclasses, _MAKE_METHOD, None)
    if make is None:
        yield
        return

    def make_later(name: str, *given: Any, **more: Any) -> Any:
        if name not in _SELDOM_CALLED:
            return make(name, *given, **more)
        return _compiled_on_call(name, lambda: make(name, *given, **more))

    setattr(dataclasses, _MAKE_METHOD, make_later)
    try:
        yield
    finally:
        setattr(dataclasses, _MAKE_METHOD, make)


def _compiled_on_call(name: str, compile_method: Callable[[], Any]) -> Any:
    """A method that puts the one that `compile_method` gives in its own place, and calls it."""

    def first_call(self: object, *given: object) -> Any:
        method = compile_method()
        method.__qualname__ = first_call.__qualname__
        for owner in type(self).__mro__:
            if vars(owner).get(name) is first_call:
                setattr(owner, name, method)
        return method(self, *given)

    first_call.__name__ = name
    return first_call


_RARELY = (100_000, 20, 20)
"""New objects before the youngest are looked at, and how many such looks before older ones are."""


@contextmanager
def collect_rarely() -> Iterator[None]:
    """While the block runs, what was there before is left alone, and new objects are many."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def leave_objects() -> None:
    """The process ends: what there is goes with it, and nobody looks for circles once more.

    Python does so twice as it ends, which takes a tenth of a compilation's time.
    """
    gc.freeze()
    gc.disable()
