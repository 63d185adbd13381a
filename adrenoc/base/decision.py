"""What the compiler chose, and why: nothing that it does is silent."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

ASSUMED = "assumed"
"""How what was `taken` begins where the file says too little, which is told without being asked."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One choice: `subject` (node, tensor, kernel), what was `taken`, and the `reason`. `stage` is
    the pipeline stage that chose; the driver fills it in."""

    subject: str
    taken: str
    reason: str
    stage: str = ""


class DecisionLog:
    """An append-only list of decisions, in the order in which they were taken."""

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        self.stage = ""

    def add(self, subject: str, taken: str, reason: str) -> None:
        """Record that `taken` was chosen for `subject` because of `reason`."""
        self._decisions.append(
            Decision(subject=subject, taken=taken, reason=reason, stage=self.stage)
        )

    def extend(self, decisions: Iterable[Decision]) -> None:
        """Record choices that were made elsewhere, as they are."""
        self._decisions.extend(decisions)

    def find(self, subject: str) -> list[Decision]:
        """Return all decisions on one subject."""
        return [d for d in self._decisions if d.subject == subject]

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    def __len__(self) -> int:
        return len(self._decisions)

    def to_json(self) -> list[dict[str, str]]:
        """Return the log as plain data, for the bundle and for `--json`."""
        return [asdict(d) for d in self._decisions]
