"""The checked-in table: what is known to become of each case."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.onnx_backend.execute import Case

TABLE = Path(__file__).with_name("status.json")


def read_table(path: Path = TABLE) -> dict[str, str]:
    """Case -> `passed`, `refused: why` or `excluded: why`; empty where there is no table yet."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_table(table: Mapping[str, str], path: Path = TABLE) -> None:
    path.write_text(json.dumps(dict(table), indent=0, sort_keys=True) + "\n")


def summary(cases: Mapping[str, Case], table: Mapping[str, str]) -> str:
    """Counts by status, then by operator where not all cases passed."""
    total = Counter(line.partition(":")[0] for line in table.values())
    lines = [", ".join(f"{count} {status}" for status, count in total.most_common())]
    by_operator: dict[str, Counter[str]] = {}
    for name, line in table.items():
        kind = by_operator.setdefault(cases[name].operator, Counter())
        kind[line.partition(":")[0]] += 1
    for operator, counts in sorted(by_operator.items()):
        rest = {s: c for s, c in counts.items() if s not in ("passed", "excluded")}
        if rest:
            parts = ", ".join(f"{c} {s}" for s, c in sorted(rest.items()))
            lines.append(f"  {operator}: {counts['passed']} passed, {parts}")
    return "\n".join(lines)
