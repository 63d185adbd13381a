"""The tuning log: appended, cut off, damaged, merged in the mind of a compilation."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import OutputError, TuningLogError
from adrenoc.cli.main import main
from adrenoc.ir.tuning_log import (
    LogWriter,
    Status,
    TunedDevice,
    best_trials,
    choose_trials,
    find_log,
    read_log,
    tuning_of,
)
from adrenoc.lab.tune.merge import differences, format_bans, merge, prune, summaries, write_log
from tests.tune.trials import trial


def _write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_what_is_appended_is_read_back(tmp_path):
    path = tmp_path / "a.jsonl"
    written = (trial(), trial(status=Status.CRASH, detail="signal 11"), trial("k2", error=1e-3))
    writer = LogWriter(path)
    for one in written:
        writer.append(one)
    writer.close()
    assert read_log(path) == written


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_line_that_a_crash_cut_off_costs_itself_only(tmp_path, cut):
    path = _write(
        tmp_path / "a.jsonl", trial().encode_line() + "\n", trial("k2").encode_line()[:-cut]
    )
    assert [t.kernel for t in read_log(path)] == ["k1"]
    writer = LogWriter(path)
    writer.append(trial("k3"))
    writer.close()
    assert [t.kernel for t in read_log(path)] == ["k1", "k3"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "not a JSON line"),
        ("[1]", "version None"),
        (trial().encode_line().replace('"version":1', '"version":9'), "version 9"),
        (trial().encode_line().replace('"ok"', '"fine"'), "fine"),
        (trial().encode_line().replace('"runs"', '"walks"'), "`walks`"),
        (trial().encode_line().replace('"k1"', "7"), "kernel is 7, expected text"),
        (trial().encode_line().replace('{"work_group":[8,4,1]}', "[]"), "actions is"),
        (trial().encode_line().replace("[8,4,1]", "8"), "actions.work_group is 8"),
        (trial().encode_line().replace("[8,4,1]", "[8]"), "actions.work_group is"),
        (trial(median_us=-5.0).encode_line(), "median_us is -5, expected 0 to 3.6e+09"),
        (trial(median_us=0.0).encode_line(), "median_us is 0, expected more than 0"),
        (trial(median_us=1e12).encode_line(), "median_us is 1e+12, expected 0 to 3.6e+09"),
        (trial(median_us=float("nan")).encode_line(), "median_us is NaN, expected a finite number"),
        (trial(median_us=float("inf")).encode_line(), "median_us is Infinity, expected a finite"),
        (trial(status=Status.CRASH, median_us=-1.0).encode_line(), "median_us is -1, expected"),
        (trial(spread_us=-0.5).encode_line(), "spread_us is -0.5, expected 0 to 3.6e+09"),
        (trial(runs=-1).encode_line(), "runs is -1, expected 0 to"),
        (trial(error=-0.1).encode_line(), "error is -0.1, expected 0 to"),
        (
            trial(device=TunedDevice(name="a", clock_mhz=-1)).encode_line(),
            "clock_mhz is -1, expected 0 to",
        ),
        (trial().encode_line().replace('"confirmed":false', '"confirmed":"no"'), "confirmed is"),
        (trial().encode_line().replace('"device":{', '"device":{"cores":1,'), "`cores`"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, said):
    path = _write(tmp_path / "a.jsonl", trial().encode_line() + "\n", line + "\n")
    with pytest.raises(TuningLogError, match=r"a\.jsonl:2") as caught:
        read_log(path)
    assert said in caught.value.message


def test_a_missing_log_says_how_to_make_one(tmp_path):
    with pytest.raises(TuningLogError) as caught:
        read_log(tmp_path / "none")
    assert "adrenoc tune run" in caught.value.hint


def test_logs_that_come_with_adrenoc_go_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("adrenoc.ir.tuning_log.data_folder", lambda _: tmp_path / "presets")
    shipped = tmp_path / "presets" / "a750.tune.json"
    shipped.parent.mkdir()
    shipped.write_text(trial().encode_line() + "\n")
    assert find_log("a750") == shipped
    assert find_log("a650") == Path("a650")
    monkeypatch.chdir(tmp_path)
    Path("a750").write_text("")  # a file of that name goes first
    assert find_log("a750") == Path("a750")


def test_two_writers_are_one_too_many(tmp_path):
    writer = LogWriter(tmp_path / "a.jsonl")
    with pytest.raises(TuningLogError, match="another tuner"):
        LogWriter(tmp_path / "a.jsonl")
    writer.close()
    LogWriter(tmp_path / "a.jsonl").close()


def test_a_place_that_cannot_be_written_is_an_output_error(tmp_path):
    with pytest.raises(OutputError):
        LogWriter(tmp_path / "none" / "a.jsonl")


def test_the_fastest_right_schedule_wins():
    trials = (
        trial(group=(8, 4, 1), median_us=10),
        trial(group=(4, 4, 1), median_us=5),
        trial(group=(2, 2, 1), median_us=1, status=Status.WRONG),
    )
    assert best_trials(trials)["k1"].actions == {"work_group": [4, 4, 1]}


def test_a_schedule_that_failed_once_is_out():
    fast = trial(group=(4, 4, 1), median_us=5)
    trials = (trial(), fast, replace(fast, status=Status.UNSTABLE))
    assert best_trials(trials)["k1"].actions == {"work_group": [8, 4, 1]}


def test_confirmed_times_outweigh_single_ones():
    lucky = trial(group=(4, 4, 1), median_us=1)
    trials = (
        lucky,
        trial(median_us=9, confirmed=True),
        replace(lucky, median_us=12, confirmed=True),
        replace(lucky, median_us=1),
    )
    assert best_trials(trials)["k1"].actions == {"work_group": [8, 4, 1]}


def test_failures_are_refused_and_unstable_groups_banned():
    tuning = tuning_of(
        (
            trial(),
            trial(group=(2, 2, 1), status=Status.TIMEOUT),
            trial(group=(16, 8, 1), status=Status.UNSTABLE),
        )
    )
    assert tuning.refused == {"k1": ({"work_group": [2, 2, 1]}, {"work_group": [16, 8, 1]})}
    assert tuning.banned == {(16, 8, 1)}
    assert tuning.actions == {"k1": {"work_group": [8, 4, 1]}}


def test_trials_of_another_gpu_serve_with_a_warning_only():
    own, other = trial(), trial("k2", gpu="660")
    assert choose_trials((own, other), "750", "log") == ((own,), "")
    kept, warning = choose_trials((other,), "750", "log")
    assert kept == (other,)
    assert "660" in warning
    newer = replace(own, device=TunedDevice(name="Adreno 750", driver="2.0"))
    assert "several drivers" in choose_trials((own, newer), "750", "log")[1]


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
