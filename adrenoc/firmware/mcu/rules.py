"""Which kernel computes an operator on a core: the fastest that covers it, plain C at the end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from adrenoc.base.decision import Decision
from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.dsp.depthwise import depthwise_choices, paired_kernel
from adrenoc.firmware.mcu.dsp.products import product_choices
from adrenoc.firmware.mcu.kernel import (
    Choice,
    FirmwareKernel,
    Grounds,
    Measured,
    Room,
    digest_of,
    pick,
    usable,
)
from adrenoc.firmware.mcu.mve.depthwise import vector_depthwise_choices
from adrenoc.firmware.mcu.mve.products import vector_choices
from adrenoc.firmware.mcu.neon.depthwise import neon_depthwise
from adrenoc.firmware.mcu.neon.products import neon_products
from adrenoc.firmware.mcu.network import Network, has_words
from adrenoc.firmware.mcu.operators import Convolution, Depthwise, Filter, Operator
from adrenoc.firmware.mcu.plain import plain_kernel
from adrenoc.firmware.mcu.plain_words import word_filter, word_kernel

_Products: TypeAlias = Callable[[Convolution, Network], list[Choice]]
_Windows: TypeAlias = Callable[[Depthwise, Network], list[Choice]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedules:
    """The choices of an operator, those of a faster arithmetic first, and why that declined."""

    ways: tuple[Sequence[Choice], ...]
    refused: str = ""


def schedules_of(operator: Filter, network: Network, core: Core) -> Schedules:
    """Return all schedules of an operator on a core; none where plain C computes it."""
    refused, found = "", []
    ways = () if has_words(network, operator) else _WAYS.get(core.facts.arithmetic, ())
    for products, depthwise in ways:
        try:
            if isinstance(operator, Convolution):
                found.append(products(operator, network))
            elif isinstance(operator, Depthwise):
                found.append(depthwise(operator, network))
        except RefusedError as error:
            refused = refused or str(error)
    return Schedules(ways=tuple(found), refused=refused)


def choose_kernel(
    network: Network,
    operator: Operator,
    core: Core,
    room: Room,
    measured: Measured,
    decisions: list[Decision],
) -> FirmwareKernel:
    """Return the kernel of an operator, with a decision where a faster one declined. It takes what
    `room` allows of working memory, or the least that there is."""
    if not isinstance(operator, Filter):
        words = has_words(network, operator)
        return word_kernel(operator, network) if words else plain_kernel(operator, network)
    if has_words(network, operator):
        return word_filter(operator, network, core)
    subject, refused = network.tensors[operator.result].name, ""
    if core.facts.arithmetic == "neon":
        try:
            kernel = _processor_kernel(operator, network)
        except RefusedError as error:
            kernel, refused = plain_kernel(operator, network), str(error)
    else:
        schedules = schedules_of(operator, network, core)
        refused = schedules.refused
        if not schedules.ways:
            kernel = _plain_kernel(operator, network, core)
        else:
            digest = digest_of(operator, network, core)
            times_us = measured.times_us.get(digest, {})
            choices = [c for way in schedules.ways if (c := usable(way, digest, measured))]
            chosen, grounds = pick(choices, room, times_us)
            kernel = replace(chosen.make(), schedule=chosen.key)
            if times_us:
                decisions.append(_decide_tuned(subject, chosen, times_us, grounds))
    if refused:
        decisions.append(Decision(subject=subject, taken=kernel.how, reason=refused))
    return kernel


def _plain_kernel(operator: Filter, network: Network, core: Core) -> FirmwareKernel:
    if isinstance(operator, Depthwise) and core.has_dsp:
        with suppress(RefusedError):
            return paired_kernel(operator, network)
    return plain_kernel(operator, network)


def _decide_tuned(
    subject: str, chosen: Choice, times_us: Mapping[str, float], grounds: Grounds
) -> Decision:
    taken = ", ".join(f"{key} {value}" for key, value in chosen.actions.items())
    reason = "none that the tuning log measured fits into the arena: by the cost model"
    if grounds is Grounds.ESTIMATED:
        reason = "at the rate of those in the tuning log faster than the ones of them that fit"
    if grounds is Grounds.MEASURED:
        reason = f"the fastest of the tuning log that fits: {times_us[chosen.key]:.3f} µs there"
    return Decision(subject=subject, taken=taken, reason=reason)


def _processor_kernel(operator: Filter, network: Network) -> FirmwareKernel:
    if isinstance(operator, Convolution):
        return neon_products(operator, network)
    if isinstance(operator, Depthwise):
        return neon_depthwise(operator, network)
    raise TypeError(type(operator))


_WAYS: dict[str, tuple[tuple[_Products, _Windows], ...]] = {
    "dsp": ((product_choices, depthwise_choices),),
    "mve": (
        (vector_choices, vector_depthwise_choices),
        (product_choices, depthwise_choices),
    ),
}
"""The schedules of convolutions and of depthwise ones, those of the faster arithmetic first."""
