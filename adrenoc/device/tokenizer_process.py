"""The process that runs the `tokenizers` package: a tokenizer.json may panic, or never end.

Lines of JSON come in and go out: first {"load": TEXT}, then {"encode": TEXT} or {"decode": [...]}.
Each is answered by {"is": ...}, or by {"error": ...} where the library refuses.  A question that
takes more than the limits ends the process.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
from typing import Any

_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
"""What the library reads: threads map memory that they never use, and the limit counts it."""


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (allowed, hard))


def _limit_time(most_s: int) -> None:
    """Give the next question its processor time, whatever those before it took."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + most_s)


def _answer(library: Any, question: dict[str, Any]) -> tuple[Any, Any]:
    """The library from now on, and what it says."""
    if "load" in question:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(question["load"]), None
    if "encode" in question:
        return library, library.encode(question["encode"]).ids
    return library, library.decode(question["decode"], skip_special_tokens=True)


def main() -> None:
    """Answer questions until there are no more; the arguments are the limits, in s and bytes."""
    most_s, most_bytes = map(int, sys.argv[1:])
    os.environ.update(_ONE_THREAD)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, most_bytes)
    library: Any = None
    for line in sys.stdin.buffer:
        _limit_time(most_s)
        try:
            library, said = _answer(library, json.loads(line))
            told = {"is": said}
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
            told = {"error": str(error) or type(error).__name__}
        sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
