"""Run each kernel of the device suite in Oclgrind, which sees what a real device hides.

    scripts/verify races                     the suite of `adrenoc device verify`, fp32 and mixed
    scripts/verify races --only attention    its cases with that word
    scripts/verify races -- COMMAND...       what a command launches on this computer's OpenCL

The command runs on this computer's device; a layer of OpenCL's loader writes each launch down
(`tests/opencl/record_launches.cc`).  Oclgrind then runs each alone (`replay_launches.py`): it tells
of threads that race for memory, of barriers that some threads miss, and of reads and writes outside
of buffers, images and local memory; what a kernel wrote is held against what the device wrote.  It
has no arithmetic in halves.  Ends with 1 where anything was found.  Needs
`apt-get install oclgrind`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.opencl.implementation import compile_layer
from tests.opencl.replay_launches import MARK

REPLAY = Path(__file__).resolve().parents[2] / "tests" / "opencl" / "replay_launches.py"
SIMULATOR = Path("/usr/lib/oclgrind/liboclgrind-rt.so")
SUITE = (sys.executable, "-m", "adrenoc", "device", "verify")
PRECISIONS = ("fp32", "mixed")
ASKED = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_MAX_ERRORS": "100000",  # of all launches of a process; it is silent behind them
    "OCLGRIND_NUM_THREADS": "1",
}
FAR = 1e-2
"""Over the range: other roundings of halves stay below it, another number does not."""
BATCH = 8
BATCH_S = 900
_COMPLAINT = re.compile(r"^(?P<what>[A-Z].*)\n\tKernel: ", re.MULTILINE)
_SHOWN = re.compile(r"^\tAt line .*\n\t  (?P<line>.*)$", re.MULTILINE)
_UNKNOWN = "Unsupported"
"""How a sentence of Oclgrind's begins about what it cannot simulate."""


@dataclass(frozen=True)
class Replayed:
    """A launch in the simulator: what is wrong, or why it says nothing."""

    name: str
    """The kernel's, and the launch's folder."""
    found: tuple[str, ...] = ()
    skipped: str = ""
    unread: bool = False
    """Whether threads write to one place that nobody reads."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="cases of the suite")
    parser.add_argument("--keep", type=Path, help="a folder that keeps the launches")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if not SIMULATOR.is_file():
        print(f"no {SIMULATOR}: apt-get install oclgrind", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="adrenoc-races-") as scratch:
        folder = options.keep or Path(scratch)
        command = options.command or list_suite(options.only, Path(scratch) / "device.json")
        launches = record(command, folder / "launches", Path(scratch))
        rows = list(replay(launches, options.jobs))
    return report(rows)


def list_suite(
    only: Sequence[str], output: Path, precisions: Sequence[str] = PRECISIONS
) -> list[str]:
    """The command that runs the suite, or its cases with these words, and writes its report."""
    chosen = [word for precision in precisions for word in ("--precision", precision)]
    words = [word for part in only for word in ("--only", part)]
    return [*SUITE, "--output", str(output), *chosen, *words]


def record(command: Sequence[str], folder: Path, scratch: Path) -> list[Path]:
    """Run a command under the layer; the folders of its launches.

    Raises:
        FileNotFoundError: there is no C++ compiler.
        subprocess.CalledProcessError: the layer could not be built, or the command failed.
    """
    layer = compile_layer("record_launches.cc", scratch)
    if layer is None:
        raise FileNotFoundError("no C++ compiler: apt-get install g++")
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OPENCL_LAYERS": str(layer), "ADRENOC_LAUNCHES": str(folder)}
    subprocess.run(command, check=True, env=environment)
    return sorted(told.parent for told in folder.glob("*/launch.json"))


def replay(launches: Sequence[Path], jobs: int) -> Iterator[Replayed]:
    """Run launches in the simulator, some in a process and `jobs` processes at once."""
    batches = [launches[first : first + BATCH] for first in range(0, len(launches), BATCH)]
    with ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(replay_batch, batches):
            yield from done


def replay_batch(launches: Sequence[Path]) -> list[Replayed]:
    """Run launches in one process of the simulator."""
    command = [sys.executable, str(REPLAY), str(SIMULATOR)]
    try:
        done = subprocess.run(
            [*command, *map(str, launches)],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **ASKED},
            timeout=BATCH_S,
        )
    except subprocess.TimeoutExpired:
        late = f"not done in {BATCH_S} s"
        return [Replayed(name_launch(folder), skipped=late) for folder in launches]
    answers = {row["launch"]: row for row in map(json.loads, done.stdout.splitlines())}
    said = dict(
        part.partition("\n")[::2] for part in done.stderr.split(MARK) if part.partition("\n")[1]
    )
    return [
        judge(folder, answers.get(folder.name), said.get(folder.name, "")) for folder in launches
    ]


def judge(folder: Path, answer: dict[str, object] | None, said: str) -> Replayed:
    """What a launch's answer and the simulator's words come to."""
    name = name_launch(folder)
    starts = [match.start() for match in _COMPLAINT.finditer(said)]
    complaints = [said[a:b] for a, b in pairwise([*starts, len(said)])]
    text = (folder / "kernel.cl").read_text()
    unread = [each for each in complaints if is_unread(each, text)]
    titles = [each.partition("\n")[0] for each in complaints if each not in unread]
    unknown = [title for title in titles if title.startswith(_UNKNOWN)]
    if answer is None:
        return Replayed(name, skipped=unknown[0] if unknown else "the simulator crashed")
    if unknown or "refused" in answer:
        reason = unknown[0] if unknown else str(answer["refused"]).partition("\n")[0]
        return Replayed(name, skipped=reason)
    found = [re.sub(r" at .*| of size .*", "", title) for title in titles]
    off = float(str(answer["off"]))
    if not off <= FAR:
        found.append(f"wrote other numbers than the device: {off:.1e} of the range")
    return Replayed(name, found=tuple(dict.fromkeys(found)), unread=bool(unread))


def is_unread(complaint: str, text: str) -> bool:
    """Whether a race is for the place to which goes what is outside of a rectangle.

    Kernels that compute one convolution for another choose it by `select`, which takes less than
    branches (`adrenoc/kernels/families/expansion/expansion_plan.py`); nobody reads it.
    """
    lines = _SHOWN.findall(complaint)
    places = [re.match(r"\w+_ptr\[\(?(to\d+)\b", line) for line in lines]
    return (
        complaint.startswith("Write-write data race at local memory")
        and bool(places)
        and all(place and re.search(rf"\bint {place[1]} = .*select\(", text) for place in places)
    )


def name_launch(folder: Path) -> str:
    """The kernel's name, with the folder's behind it."""
    told = json.loads((folder / "launch.json").read_text())
    return f"{told['kernel']} {folder.name}"


def report(rows: Sequence[Replayed]) -> int:
    """Print what was found; 1 where anything was, or where nothing was simulated."""
    skipped = Counter(row.skipped for row in rows if row.skipped)
    for reason, count in skipped.most_common():
        print(f"  not simulated  {count:5}  {reason}")
    unread = sum(row.unread for row in rows)
    if unread:
        print(f"  write to one place that nobody reads  {unread}")
    wrong = [row for row in rows if row.found]
    for row in wrong:
        print(f"  {row.name}: {'; '.join(row.found)}")
    ran = len(rows) - skipped.total()
    print(f"{ran} of {len(rows)} launches simulated, {len(wrong)} with something wrong")
    return 1 if wrong or not ran else 0
