"""Micro-kernels on a device, through a tuner's worker: what hangs or crashes ends one request.

The worker (`adrenoc.lab.tune.worker`) holds the session; here requests go to it one at a time, for
builds are timed too.  A session that breaks, or does not end in time, is a `ProbeError`, and the
next request opens another.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import RemoteError
from adrenoc.base.files.read import sha256_bytes
from adrenoc.lab.calibrate.measure import (
    NAME,
    Answers,
    HostOperation,
    MicroKernel,
    ProbeError,
    Tensor,
)
from adrenoc.lab.tune.lane import Event, Worker
from adrenoc.lab.tune.session import TunerAddress
from adrenoc.lab.tune.variant import Argument, Variant

_TICK_S = 0.2
_PAUSES_S = (1.0, 3.0)
"""Before a device that is not there is asked again."""
_MOST_DETAIL = 200


class Bench:
    """Runs micro-kernels at a place; a context manager.  `scratch` is a folder of its own."""

    def __init__(self, place: TunerAddress, scratch: Path) -> None:
        self._place, self._scratch = place, scratch
        self._worker = Worker(place)
        self._serial = 0
        self.facts: dict[str, object] = {}
        """What the device said of itself when the last session began."""

    def __enter__(self) -> Bench:
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.kill()

    def run(
        self, kernels: Sequence[MicroKernel | HostOperation], *, output: bool = False
    ) -> Answers:
        """Build kernels, run them in turn, and time each; with `output` what the last wrote.

        Operations of the host stand for themselves: no kernel is among them.

        Raises:
            ProbeError: one was refused, or broke the device.
            RemoteError: no device is there.
        """
        operations = [dict(one.words) for one in kernels if isinstance(one, HostOperation)]
        if operations:
            return self._request([], "", operations=operations)
        variants = [self._variant(k) for k in kernels if isinstance(k, MicroKernel)]
        reference = self._scratch / f"output{self._serial + 1}.npy"
        answers = self.launch(variants, reference)
        return replace(answers, output=np.load(reference)) if output else answers

    def launch(
        self, variants: Sequence[Variant], reference: Path, *, tolerance: float | None = None
    ) -> Answers:
        """Build kernels, run them in turn, and time each.

        `reference` gets the output of the last; with a `tolerance` it is there already, and all
        outputs have to be as near to it, relative to its largest value.

        Raises:
            ProbeError: one was refused, or broke the device.
            RemoteError: no device is there.
        """
        return self._request(
            variants, str(reference), write_reference=tolerance is None, tolerance=tolerance or 0.0
        )

    def _request(self, variants: Sequence[Variant], reference: str, **more: object) -> Answers:
        """What came of a request; see `launch`."""
        self._serial += 1
        request: dict[str, Any] = {
            "id": self._serial,
            "variants": [variant.plain() for variant in variants],
            "reference": reference,
            "write_reference": False,
            "tolerance": 0.0,
            "stop_us": 0.0,
            "careful": True,
            "state": True,
            **more,
        }
        event = self._present(request)
        answer = event["answer"]
        if answer["event"] != "measured":
            text = f"{answer['kind']}: {_one_line(answer['detail'])}"
            raise ProbeError(text, answer.get("index", -1))
        return Answers(
            times_us=tuple(tuple(times) for times in answer["times_us"]),
            build_ms=event["build_ms"],
            clock_mhz=answer.get("clock_mhz", 0.0),
            temperature_c=answer.get("temperature_c", 0.0),
            by_host=answer.get("by_host", False),
        )

    def _present(self, request: dict[str, Any]) -> Event:
        """The end of a request; a device that left, as after a reset, gets time to come back.

        Raises:
            ProbeError: the worker died, or was too late.
            RemoteError: no device came.
        """
        for pause_s in (*_PAUSES_S, None):
            self._worker.start()
            self._worker.send(request)
            event = self._await()
            answer = event["answer"]
            if answer["event"] != "absent":
                return event
            if pause_s is not None:
                time.sleep(pause_s)
        raise RemoteError(f"no device is there: {answer['detail']}", hint="adrenoc doctor")

    def _await(self) -> Event:
        """The end of the request that was sent."""
        while True:
            try:
                event = self._worker.event(_TICK_S)
            except EOFError:
                self._worker.kill()
                raise ProbeError("lost: the process that measures died") from None
            if event is None:
                if not self._worker.overdue:
                    continue
                self._worker.kill()
                raise ProbeError(f"timeout: no end within {self._place.limit_s:.0f} s")
            if event["event"] == "connected":
                self._check_same_device(event)
            elif event["event"] == "end":
                return event

    def _check_same_device(self, event: Event) -> None:
        facts = event["facts"]
        known = self.facts
        if known and any(known.get(key) != facts.get(key) for key in ("name", "driver")):
            self._worker.kill()
            raise RemoteError(
                f"another device answers now: {facts.get('name')} after {known.get('name')}",
                hint="adrenoc device calibrate --on HOST:PORT, which is one device",
            )
        self.facts = facts

    def _variant(self, kernel: MicroKernel) -> Variant:
        return Variant(
            kernel=NAME,
            source=kernel.source,
            work_items=kernel.threads,
            work_group=kernel.group,
            arguments=tuple(self._argument(tensor) for tensor in kernel.arguments),
        )

    def _argument(self, tensor: Tensor) -> Argument:
        file = ""
        if tensor.value is not None:
            # By content: the session keeps what it has under this name.
            told = repr((tensor.shape, tensor.dtype)).encode() + tensor.value.tobytes()
            path = self._scratch / f"{sha256_bytes(told)[:24]}.npy"
            if not path.exists():
                np.save(path, np.asarray(tensor.value, order="C"))
            file = str(path)
        return Argument(shape=tensor.shape, dtype=tensor.dtype, scope=tensor.scope, file=file)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MOST_DETAIL]
