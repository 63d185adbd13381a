"""Which operators get flash beyond their weights' bytes: those that save most for it."""

from __future__ import annotations

from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution, Depthwise
from adrenoc.firmware.mcu.rules import schedules_of
from adrenoc.firmware.mcu.schedule import Choice, Measured, Room, digest_of, pick, usable


def share_flash(
    network: Network, core: Core, measured: Measured, spare_bytes: int, scratch_bytes: int
) -> list[int]:
    """Return how many bytes of flash each operator may take; all of them at most `spare_bytes`."""
    shares = [0] * len(network.operators)
    if not spare_bytes:
        return shares
    gains: list[tuple[float, int, int]] = []
    for index, operator in enumerate(network.operators):
        if not isinstance(operator, Convolution | Depthwise):
            continue
        ways = schedules_of(operator, network, core).ways
        if not ways:
            continue
        digest = digest_of(operator, network, core)
        times_us = measured.times_us.get(digest, {})
        known = [usable(way, digest, measured) for way in ways]

        def take(spare: int) -> Choice:
            room = Room(scratch_bytes=scratch_bytes, spare_bytes=spare)
            return pick(known, room, times_us)[0]  # noqa: B023  (called in this turn alone)

        lean, large = take(0), take(spare_bytes)
        if large.spare_bytes:
            gain = (lean.instructions - large.instructions) / large.spare_bytes
            gains.append((gain, large.spare_bytes, index))
    left = spare_bytes
    for gain, wanted, index in sorted(gains, reverse=True):
        if gain > 0 and wanted <= left:
            shares[index] = wanted
            left -= wanted
    return shares
