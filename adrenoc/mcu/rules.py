"""Which kernel computes an operator on a core: the fastest that covers it, plain C at the end."""

from __future__ import annotations

from adrenoc.decision import Decision
from adrenoc.mcu.core import Core
from adrenoc.mcu.dsp.depthwise import depthwise_kernel
from adrenoc.mcu.dsp.products import product_kernel
from adrenoc.mcu.kernel import Kernel
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
    if core.has_dsp:
        try:
            if isinstance(operator, Convolution):
                return product_kernel(operator, network, scratch_bytes)
            if isinstance(operator, Depthwise):
                return depthwise_kernel(operator, network)
        except NotImplementedError as error:
            subject = network.tensors[operator.result].name
            decisions.append(Decision(subject=subject, taken="plain C", reason=str(error)))
    return plain_kernel(operator, network)
