"""Compile random graphs, run them on the software OpenCL device, compare with onnxruntime.

scripts/verify random-graphs --cases 3000 --seed 1    prints findings, and keeps each model
scripts/verify random-graphs --seed 1 --only 1234     one case again, with its traceback
scripts/verify random-graphs --quantised              integers, which have to be within one quantum
scripts/verify random-graphs --ranges                 numbers of any size, as sounds and sums have
scripts/verify random-graphs --branches               concatenations, splits, chains of convolutions

Case N of a seed is the same on every machine, for as long as tests/host/random_graphs stays as
it is: a finding becomes a test with its graph written out.  `tests/host/test_property_graphs.py`
draws such graphs by hypothesis, which makes a finding smaller.
"""

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from tests.host.random_graphs.branches import draw_branches
from tests.host.random_graphs.draw import PRESETS, TARGETS, TOLERANCE, Case, draw_case
from tests.host.random_graphs.quantised import QuantisedCase, draw_quantised


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("graph-findings"), help="folder")
    parser.add_argument("--quantised", action="store_true", help="networks of integers")
    parser.add_argument("--branches", action="store_true", help="networks of branches")
    parser.add_argument("--ranges", action="store_true", help="inputs of any size")
    parser.add_argument("--only", type=int, help="one case, with its traceback")
    options = parser.parse_args()
    device = open_device()

    def case(number: int) -> Case | QuantisedCase:
        between = random.Random(f"{options.seed}/{number}").randint
        if options.branches:
            target, preset = TARGETS[between(0, len(TARGETS) - 1)], PRESETS[number % len(PRESETS)]
            return Case(ops=draw_branches(between), preset=preset, target=target)
        if options.quantised:
            return draw_quantised(between)
        return draw_case(between, ranged=options.ranges)

    def keep(number: int) -> None:
        options.keep.mkdir(parents=True, exist_ok=True)
        drawn = case(number)
        model = drawn if isinstance(drawn, QuantisedCase) else drawn.ops
        model.save(options.keep / f"graph-{options.seed}-{number}.onnx")

    if options.only is not None:
        keep(options.only)
        judge(case(options.only), device)
        return 0
    findings: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(options.first, options.first + options.cases):
        drawn = case(number)
        try:
            judge(drawn, device)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other cases are to be seen too
            findings[type(error).__name__] += 1
            keep(number)
            text = str(error).strip()[-1000:]
            where = f"{drawn.preset}, {drawn.target}"
            print(f"case {number} ({where}): {type(error).__name__}: {text}", flush=True)
        done = number + 1 - options.first
        if done % 100 == 0:
            spent = f"{time.monotonic() - began:.0f} s, {time.process_time():.0f} s of CPU"
            print(f"{done}: {spent}, {findings.total()} findings", file=sys.stderr, flush=True)
    print(f"{options.cases} graphs: {findings.total()} findings {dict(findings) or ''}".strip())
    return 1 if findings else 0


def open_device() -> object:
    """The software OpenCL device."""
    from adrenoc import native

    native.use_software_device()
    native.load()
    from adrenoc.base.host.extras import import_onnxruntime

    onnxruntime = import_onnxruntime()
    import tvm

    onnxruntime.set_default_logger_severity(3)  # it warns of each constant that nothing reads
    return tvm.opencl(0)


def judge(case: Case | QuantisedCase, device: object) -> None:
    if isinstance(case, QuantisedCase):
        case.check(device)
        return
    tolerance = TOLERANCE.get(case.preset)
    case.ops.check(device, case.preset, tolerance, target=case.target, rounding=True)
