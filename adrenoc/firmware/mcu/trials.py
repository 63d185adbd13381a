"""Many schedules in one program: each computes its layer on drawn numbers and prints ticks.

The program, `trial.c`, is whole but for two functions of the board: `board_ticks`, which counts
up, and `board_print`, which sends text to whoever listens.  It prints a line `T NUMBER TICKS HASH`
in hexadecimal for each schedule, then `DONE`; the hash tells whether the result is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.firmware.mcu.evaluate import evaluate
from adrenoc.firmware.mcu.kernel import Array, Choice, FirmwareKernel, digest_of, family_of, work_of
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Filter
from adrenoc.firmware.mcu.print_c import array_text, call_text, once, snippet_text, struct_lines
from adrenoc.firmware.mcu.program import FirmwareProgram, FirmwareStep
from adrenoc.firmware.mcu.rules import schedules_of

_WORTH_COUNTING = 40_000
"""Instructions that a schedule runs for at least: a tick may be some tens of them."""
_CODE_BYTES = 4096
"""Flash of a schedule beside its constants, with room to spare."""
_PRIME, _OFFSET = 16777619, 2166136261
_STEP, _ADD = 1664525, 1013904223


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A layer's work, what may compute it, and which schedule the program has without a log."""

    digest: str
    family: str
    work: dict[str, object]
    network: Network
    operator: Filter
    choices: tuple[Choice, ...]
    untuned: str
    calls: int
    scratch_bytes: int
    """What a schedule may take without a larger arena."""

    @property
    def title(self) -> str:
        """Return the task in words, for a table."""
        return f"{self.network.tensors[self.operator.result].name} ({self.family})"

    @property
    def ram_bytes(self) -> int:
        """Bytes of its inputs and output."""
        tensors = (*self.operator.sources, self.operator.result)
        return sum(self.network.tensors[index].elements for index in tensors)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One schedule of a task."""

    task: Task
    choice: Choice

    @property
    def flash_bytes(self) -> int:
        """About how much it takes."""
        arrays = self.choice.make().arrays
        return _CODE_BYTES + sum(array.size_bytes for array in arrays)

    @property
    def ram_bytes(self) -> int:
        """Return how much it takes."""
        return self.task.ram_bytes + self.choice.scratch_bytes

    @property
    def repeats(self) -> int:
        """Return how often it runs, so that ticks count it well."""
        return max(1, int(_WORTH_COUNTING / max(self.choice.instructions, 100)))


def tasks_of(program: FirmwareProgram) -> list[Task]:
    """Return the distinct layers of a program that have more than one schedule."""
    network, core = program.network, program.core
    steps = {step.made: step for step in program.steps}
    found: dict[str, list[Filter]] = {}
    for operator in network.operators:
        if isinstance(operator, Filter):
            found.setdefault(digest_of(operator, network, core), []).append(operator)
    tasks = []
    for digest, operators in found.items():
        first = operators[0]
        choices = [c for way in schedules_of(first, network, core).ways for c in way]
        if len(choices) > 1:
            tasks.append(
                Task(
                    digest=digest,
                    family=family_of(first),
                    work=work_of(first, network, core),
                    network=network,
                    operator=first,
                    choices=tuple(choices),
                    untuned=steps[first.result].kernel.schedule,
                    calls=len(operators),
                    scratch_bytes=min(program.rooms[o.result].scratch_bytes for o in operators),
                )
            )
    return tasks


def trial_program(candidates: Sequence[Candidate]) -> str:
    """`trial.c` of some candidates."""
    kernels = [candidate.choice.make() for candidate in candidates]
    pairs = zip(candidates, kernels, strict=True)
    steps = [_step(number, c, kernel) for number, (c, kernel) in enumerate(pairs)]
    parts = [_HEAD, *map(snippet_text, once(s for k in kernels for s in k.snippets))]
    parts += once(text for kernel in kernels for text in kernel.texts)
    shared: dict[tuple[str, bytes], str] = {}
    for step, kernel in zip(steps, kernels, strict=True):
        for array in kernel.arrays:
            parts.append(_array(f"{step.name}_{array.suffix}", array, shared))
        parts += struct_lines(step)
    most = [max(_sizes(c)[n] for c in candidates) for n in range(3)]
    scratch = max(kernel.scratch_bytes for kernel in kernels)
    names = ("in0", "in1", "out", "scratch")
    for name, size in zip(names, (*most, scratch), strict=True):
        parts.append(f"static int8_t {name}[{max(size, 4) + 8}] __attribute__((aligned(8)));")
    parts.append(_RUN)
    lines = ["int main(void) {"]
    for number, (step, candidate) in enumerate(zip(steps, candidates, strict=True)):
        first, second, result = _sizes(candidate)
        parts.append(f"static void trial{number}(void) {{ {call_text(step)} }}")
        seed = f"UINT32_C(0x{seed_of(candidate.task):08x})"
        given = f"{number}, trial{number}, {candidate.repeats}, {seed}, {first}, {second}, {result}"
        lines.append(f"  run_trial({given});")
    lines += ['  board_print("DONE\\n");', "  return 0;", "}", ""]
    return "\n".join([*parts, *lines])


def _sizes(candidate: Candidate) -> tuple[int, int, int]:
    """Bytes of the input, of what is added to it, and of the result."""
    task = candidate.task
    sizes = [task.network.tensors[index].elements for index in task.operator.sources]
    result = task.network.tensors[task.operator.result].elements
    return sizes[0], (sizes[1] if len(sizes) > 1 else 0), result


def _step(number: int, candidate: Candidate, kernel: FirmwareKernel) -> FirmwareStep:
    return FirmwareStep(
        name=f"layer{number}",
        label="",
        kernel=kernel,
        sources=("in0", "in1"),
        result="out",
        scratch="scratch",
        state="0",
        made=candidate.task.operator.result,
    )


def _array(name: str, array: Array, shared: dict[tuple[str, bytes], str]) -> str:
    """Return a constant, or another name for one that is there."""
    key = array.ctype, np.ascontiguousarray(array.values).tobytes()
    if key in shared:
        return f"#define {name} {shared[key]}"
    shared[key] = name
    return array_text(name, array)


def seed_of(task: Task) -> int:
    """Return what a task's numbers are drawn from."""
    return int(task.digest[:8], 16)


def draw_bytes(seed: int, count: int) -> tuple[np.ndarray, int]:
    """Return the bytes that `trial.c` draws from a seed, and the seed after them."""
    values = np.empty(count, np.uint8)
    for place in range(count):
        seed = (seed * _STEP + _ADD) & 0xFFFFFFFF
        values[place] = seed >> 24
    return values.view(np.int8), seed


def hash_of(values: np.ndarray) -> int:
    """Return the hash of bytes that `trial.c` prints."""
    found = _OFFSET
    for byte in values.reshape(-1).view(np.uint8).tolist():
        found = ((found ^ byte) * _PRIME) & 0xFFFFFFFF
    return found


def expected_hash(task: Task) -> int:
    """Return the hash of what a task's layer makes of its numbers."""
    operator, tensors = task.operator, task.network.tensors
    sources, seed, arrays = operator.sources, seed_of(task), {}
    for index in sources:
        values, seed = draw_bytes(seed, tensors[index].elements)
        arrays[index] = values.reshape(tensors[index].shape)
    alone = Network(
        name="trial",
        tensors=task.network.tensors,
        operators=(operator,),
        inputs=sources,
        outputs=(operator.result,),
    )
    return hash_of(evaluate(alone, arrays)[operator.result])


_HEAD = """\
/* Schedules of layers, each timed on drawn numbers.  The board has to have these two functions;
 * ticks are of 32 bits, or of the bits that TICK_MASK says. */
#include <stdint.h>
uint32_t board_ticks(void);
void board_print(const char *text);
#ifndef TICK_MASK
#define TICK_MASK 0xFFFFFFFFu
#endif
"""

_RUN = f"""\
static void draw(int8_t *to, int32_t count, uint32_t *seed) {{
  for (int32_t i = 0; i < count; ++i) {{
    *seed = *seed * UINT32_C({_STEP}) + UINT32_C({_ADD});
    to[i] = (int8_t)(*seed >> 24);
  }}
}}
static void print_word(uint32_t value) {{
  char text[10] = " 00000000";
  for (int i = 8; i > 0; --i, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  board_print(text);
}}
static void run_trial(uint32_t number, void (*trial)(void), int32_t repeats, uint32_t seed,
                      int32_t first, int32_t second, int32_t result) {{
  draw(in0, first, &seed);
  draw(in1, second, &seed);
  for (int32_t i = 0; i < result; ++i) out[i] = (int8_t)(number + i);
  const uint32_t begin = board_ticks();
  for (int32_t i = 0; i < repeats; ++i) trial();
  const uint32_t ticks = (board_ticks() - begin) & TICK_MASK;
  uint32_t hash = UINT32_C({_OFFSET});
  for (int32_t i = 0; i < result; ++i) hash = (hash ^ (uint8_t)out[i]) * UINT32_C({_PRIME});
  board_print("T");
  print_word(number);
  print_word(ticks);
  print_word(hash);
  board_print("\\n");
}}
"""
