"""Several C++ files as one: headers, which take most of a compiler's time, are read once."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_CONSTANT = re.compile(r"^(?:static )?(?:constexpr|const) [^;=(]*?\b(k[A-Z]\w*)", re.MULTILINE)


def write_unit(path: Path, sources: Sequence[Path]) -> Path:
    """A file that includes all of them; constants that several have of their own stay apart."""
    constants = {source: set(_CONSTANT.findall(source.read_text())) for source in sources}
    shared = {
        name for name, n in Counter(n for c in constants.values() for n in c).items() if n > 1
    }
    lines = []
    for number, source in enumerate(sources):
        own = sorted(constants[source] & shared)
        lines += [f"#define {name} {name}_{number}" for name in own]
        lines += [f'#include "{source}"']
        lines += [f"#undef {name}" for name in own]
    path.write_text("\n".join(lines) + "\n")
    return path
