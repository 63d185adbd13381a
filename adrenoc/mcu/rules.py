"""Which kernel computes an operator on a core: the fastest that covers it, plain C at the end."""

from __future__ import annotations

from collections.abc import Callable

from adrenoc.decision import Decision
from adrenoc.mcu.core import Core
from adrenoc.mcu.dsp.depthwise import depthwise_kernel
from adrenoc.mcu.dsp.products import product_kernel
from adrenoc.mcu.kernel import Kernel
from adrenoc.mcu.mve.depthwise import vector_depthwise_kernel
from adrenoc.mcu.mve.products import vector_kernel
from adrenoc.mcu.neon.depthwise import neon_depthwise
from adrenoc.mcu.neon.products import neon_products
from adrenoc.mcu.network import Convolution, Depthwise, Network, Operator
from adrenoc.mcu.plain import plain_kernel


def choose_kernel(
    network: Network,
    operator: Operator,
    core: Core,
    scratch_bytes: int,
    decisions: list[Decision],
) -> Kernel:
    """The kernel of an operator, with a decision where a faster one declined.

    It may take about `scratch_bytes` of working memory.
    """
    refused = ""
    for way in _WAYS[core.facts.arithmetic]:
        try:
            found = way(operator, network, scratch_bytes)
        except NotImplementedError as error:
            refused = refused or str(error)
            continue
        break
    else:
        found = plain_kernel(operator, network)
    if refused:
        subject = network.tensors[operator.result].name
        decisions.append(Decision(subject=subject, taken=found.how, reason=refused))
    return found


def _vectors(operator: Operator, network: Network, scratch_bytes: int) -> Kernel:
    if isinstance(operator, Convolution):
        return vector_kernel(operator, network, scratch_bytes)
    if isinstance(operator, Depthwise):
        return vector_depthwise_kernel(operator, network)
    return plain_kernel(operator, network)


def _pairs(operator: Operator, network: Network, scratch_bytes: int) -> Kernel:
    if isinstance(operator, Convolution):
        return product_kernel(operator, network, scratch_bytes)
    if isinstance(operator, Depthwise):
        return depthwise_kernel(operator, network)
    return plain_kernel(operator, network)


def _neon(operator: Operator, network: Network, _scratch_bytes: int) -> Kernel:
    if isinstance(operator, Convolution):
        return neon_products(operator, network)
    if isinstance(operator, Depthwise):
        return neon_depthwise(operator, network)
    return plain_kernel(operator, network)


_WAYS: dict[str, tuple[Callable[[Operator, Network, int], Kernel], ...]] = {
    "plain": (),
    "dsp": (_pairs,),
    "mve": (_vectors, _pairs),
    "neon": (_neon,),
}
