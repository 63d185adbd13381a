"""An executor for `adrenoc tune run`: this computer plays the board, by its own compiler.

    python stand_in_board.py [garbage | crash | fail N]

Without a word it does as `adrenoc/firmware/mcu/boards.py` says; `fail N` refuses programs of more
than N schedules, as a board without room would.
"""

import subprocess
import sys
from pathlib import Path

_BOARD = """
#include <stdint.h>
#include <stdio.h>
uint32_t board_ticks(void) { static uint32_t now; return now += 1000; }
void board_print(const char *text) { fputs(text, stdout); }
"""


def main() -> None:
    """Answer until the end of the input."""
    words = sys.argv[1:]
    if words[:1] == ["garbage"]:
        print("hello", flush=True)
    else:
        print('BOARD {"name": "stand-in", "clock_mhz": 100, "flash_kib": 512, "ram_kib": 256}')
        sys.stdout.flush()
    for line in sys.stdin:
        if words[:1] == ["crash"]:
            return
        _answer(Path(line.split()[1]), int(words[1]) if words[:1] == ["fail"] else 1 << 20)


def _answer(folder: Path, most: int) -> None:
    text = (folder / "trial.c").read_text()
    if text.count("  run_trial(") > most:
        print("FAIL no room", flush=True)
        return
    (folder / "board.c").write_text(_BOARD)
    program = folder / "trial"
    sources = [str(folder / "trial.c"), str(folder / "board.c")]
    subprocess.run(["cc", "-O1", "-w", *sources, "-o", str(program)], check=True)
    print(subprocess.run([program], check=True, capture_output=True, text=True).stdout, flush=True)


if __name__ == "__main__":
    main()
