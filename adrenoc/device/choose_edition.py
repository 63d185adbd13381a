"""Which edition of a bundle runs on a device: by what its driver says, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from adrenoc.base.decision import Decision
from adrenoc.base.errors import DeviceError
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.editions import COMMON, open_edition, rank_editions, read_editions
from adrenoc.device.compiled_for import adreno_number
from adrenoc.device.fit import list_missing
from adrenoc.device.place import Place
from adrenoc.device.result import Progress, RunResult

AnyPlace = TypeVar("AnyPlace", bound=Place)

_STAGE = "choose_edition"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a device runs of a bundle, and why: nothing where the bundle is for one device.

    `may_fall_back`: it holds kernels that are for any Adreno beside these.
    """

    bundle: Bundle
    decision: Decision | None = None
    may_fall_back: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """The decision in a sentence."""
        if self.decision is None:
            return ()
        return (f"kernels for {self.decision.taken} run: {self.decision.reason}",)


def choose_edition(bundle: Bundle, facts: Mapping[str, Any], *, refused: str = "") -> Chosen:
    """Return the edition of `bundle` for the device that `facts` are of.

    That is the first whose needs the device meets, of its own GPU and driver, of its own GPU, and
    the common one; with `refused`, what the driver said of the kernels of its own, the common one.

    Raises:
        BundleError: the bundle is damaged.
    """
    editions = read_editions(bundle)
    if not editions:
        return Chosen(bundle=bundle)
    driver = str(facts.get("driver", ""))
    ranked, why = rank_editions(editions, gpu=adreno_number(facts), driver=driver)
    if refused:
        ranked, why = ranked[-1:], f"{why}, and could not run those: {refused}"
    for edition in ranked:
        opened = open_edition(bundle, edition)
        missing = list_missing(opened, facts) if edition.folder != COMMON else []
        if missing:
            why += f"; those for {edition.title} do not fit, since {missing[0]}"
            continue
        subject = f"{facts.get('name', '')} (driver {driver})"
        decision = Decision(subject=subject, taken=edition.title, reason=why, stage=_STAGE)
        may_fall_back = edition.folder != COMMON
        return Chosen(bundle=opened, decision=decision, may_fall_back=may_fall_back)
    raise ValueError("the list of editions ends with the common one")


def run_with_edition(
    bundle: Bundle,
    open_place: Callable[[], AbstractContextManager[AnyPlace]],
    run: Callable[[AnyPlace, Chosen], RunResult],
    told: Progress,
) -> RunResult:
    """Run the edition of the device at a place; where that fails, the common one, before any run.

    Raises:
        DeviceError: the device failed with the common edition, or after it had computed.
    """
    chosen = Chosen(bundle=bundle)

    def attempt(refused: str = "") -> RunResult:
        nonlocal chosen
        with open_place() as place:
            chosen = choose_edition(bundle, place.facts, refused=refused)
            result = run(place, chosen)
            notes = (*chosen.notes, *result.notes)
            return replace(result, edition=chosen.decision, notes=notes)

    try:
        return attempt()
    except DeviceError as error:
        if told.first_ms is not None or not chosen.may_fall_back:
            raise
        return attempt(error.message)
