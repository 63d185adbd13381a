"""Work on logs: merge, prune, compare, export; and the commands for it."""

import csv
import io
import json
from pathlib import Path

from trials import trial

from adrenoc.base.errors import TuningLogError
from adrenoc.cli.main import main
from adrenoc.ir.tuning_log import Status, best_trials, read_log, tuning_of
from adrenoc.lab.tune.merge import differences, format_bans, merge, prune, summaries, write_log

UNTUNED = trial(untuned=True, median_us=10.0)
FAST = trial(group=(4, 4, 1), median_us=4.0)
SLOW = trial(group=(2, 2, 1), median_us=20.0)
BROKEN = trial(group=(1, 1, 1), status=Status.WRONG)
UNSTABLE = trial(group=(16, 8, 1), status=Status.UNSTABLE, at="2026-01-01")
OTHER = trial("k2", gpu="660", median_us=3.0)
ALL = (UNTUNED, FAST, SLOW, BROKEN, UNSTABLE, OTHER)


def test_merging_keeps_every_trial_once():
    assert merge([(UNTUNED, FAST), (FAST, OTHER)]) == (UNTUNED, FAST, OTHER)


def test_pruning_changes_no_compilation():
    kept = prune((*ALL, BROKEN))
    assert kept == (UNTUNED, FAST, BROKEN, UNSTABLE, OTHER)
    for gpu in ("750", "660"):
        before, after = ([t for t in log if t.gpu == gpu] for log in (ALL, kept))
        assert tuning_of(after) == tuning_of(before)


def test_differences_are_those_of_the_best():
    assert differences(ALL, ALL) == ()
    (first, second) = differences((UNTUNED,), (FAST, OTHER))
    assert (first.kernel, first.gain) == ("k1", 2.5)
    assert (second.kernel, second.first, second.gain) == ("k2", None, 0.0)


def test_summaries_by_gpu():
    rows = {row.gpu: row for row in summaries(ALL)}
    assert (rows["750"].kernels, rows["750"].trials, rows["750"].failed) == (1, 5, 2)
    assert rows["660"].failed == 0


def test_bans_are_quirks_of_a_target(tmp_path):
    """What is printed is TOML that the target's loader takes."""
    import shutil

    from adrenoc.base.files.read import data_folder, read_toml
    from adrenoc.target.target import load_target

    folder = tmp_path / "targets"
    shutil.copytree(data_folder("targets"), folder)
    file = folder / "gpu" / "750.toml"
    file.write_text(file.read_text() + "\n" + format_bans(ALL))
    assert read_toml(file)["quirks"]
    target = load_target("adreno:750", folder=folder)
    assert (16, 8, 1) in {g for q in target.gpu.quirks for g in q.banned_work_groups}
    assert format_bans((UNTUNED,)) == ""


def test_commands(tmp_path, capsys):
    first, second, out = (str(tmp_path / name) for name in ("a", "b", "c"))
    write_log(Path(first), ALL[:3])
    write_log(Path(second), ALL[1:])
    assert main(["tune", "log", "merge", first, second, "-o", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"log": out, "read": 8, "written": 6}
    assert read_log(Path(out)) == ALL
    assert main(["tune", "log", "prune", out, "-o", out]) == 0
    assert "5 of 6" in capsys.readouterr().out
    assert main(["tune", "log", "show", out]) == 0
    assert "Adreno 750 (1.0)" in capsys.readouterr().out
    assert main(["tune", "log", "diff", first, second]) == 0
    assert "k2" in capsys.readouterr().out
    assert main(["tune", "log", "export", out]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(r["gpu"], r["kernel"]) for r in rows] == [("660", "k2"), ("750", "k1")]
    assert float(rows[1]["untuned_us"]) == 10.0
    assert json.loads(rows[1]["actions"]) == best_trials(ALL[:5])["k1"].actions
    assert main(["tune", "log", "export", out, "--as", "bans"]) == 0
    assert "[[16, 8, 1]]" in capsys.readouterr().out
    assert main(["tune", "log", "show", str(tmp_path / "none")]) == TuningLogError.exit_code
