"""One rollout from outside: shown, checked, kept; exit code 1 for what was planted."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repl_rl.commands import rollout
from repl_rl.records import Finding, Trajectory
from repl_rl.runs.trajectory_file import places
from small_run import INLINE, set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
Call = Callable[..., tuple[int, str, str]]
Report = dict[str, tuple[str, str]]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHECKS = {
    *("mask", "shift by one", "prompt", "lines", "sampled ids", "gap", "observations"),
    *("text after newlines", "stop tokens", "budgets", "reward terms"),
}


def report(text: str) -> Report:
    """Name -> (mark, what is said)."""
    rows = re.findall(r"^(ok|!!)  (.+?)  +(.+)$", text, re.M)
    return {name: (mark, said) for mark, name, said in rows}


def only(path: Path) -> Trajectory:
    (place,) = places(path)
    assert place.origin is not None
    return place.read().trajectory


def test_a_rollout_is_shown_checked_and_kept(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    ended = repl_rl("rollout", "--model", str(tiny_model), "--output", "one.jsonl", *small())
    assert (ended.code, ended.stderr, ended.left_behind) == (0, "", [])
    found = report(ended.stdout)
    assert {mark for mark, _ in found.values()} == {"ok"}
    assert set(found) == CHECKS
    trajectory = only(tmp_path / "one.jsonl")
    assert f"\n{trajectory.prompt_text}" in ended.stdout
    assert f"stopped      {trajectory.stop_reason}\n" in ended.stdout
    assert f"{sum(trajectory.loss_mask)} sampled" in found["mask"][1]


def test_the_table_has_a_row_for_each_token(call: Call, tiny_model: Path, tmp_path: Path) -> None:
    _, out, _ = call(
        *("rollout", "--model", str(tiny_model), "--tokens", "--output", "one.jsonl"), *small()
    )
    rows = re.findall(r"^ *(\d+) +(\d+)  .+ (sampled|injected) ", out, re.M)
    trajectory = only(tmp_path / "one.jsonl")
    pairs = zip(trajectory.completion_ids, trajectory.loss_mask, strict=True)
    assert rows == [
        (str(at), str(token), "sampled" if is_sampled else "injected")
        for at, (token, is_sampled) in enumerate(pairs)
    ]


def test_the_seed_decides_the_rollout(call: Call, tiny_model: Path, tmp_path: Path) -> None:
    given = ("rollout", "--model", str(tiny_model), *small())
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        call(*given, "--seed", seed, "--output", f"{name}.jsonl")
    ids = [only(tmp_path / f"{name}.jsonl").completion_ids for name in "abc"]
    assert ids[0] == ids[1] != ids[2]


def test_a_loop_of_ones_own_is_checked_as_far_as_it_can_be(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / "inline_calls.py", tmp_path)
    ended = repl_rl("rollout", "--model", str(tiny_model), *small(), *set_words(*INLINE))
    found = report(ended.stdout)
    assert (ended.code, ended.left_behind) == (0, [])
    assert set(found) == CHECKS - {
        *("observations", "stop tokens", "budgets", "text after newlines"),
    }


def test_a_log_probability_that_is_off_is_exit_code_1(
    call: Call, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    """The trainer's, of the first token, by a hundredth of a nat."""
    right = rollout.score

    def wrong(*given: Any, **named: Any) -> Any:
        scores = right(*given, **named)
        first, *rest = scores.shifted
        return replace(scores, shifted=(first - 0.01, *rest))

    monkeypatch.setattr(rollout, "score", wrong)
    code, out, _ = call("rollout", "--model", str(tiny_model), *small())
    amiss = {name: said for name, (mark, said) in report(out).items() if mark == "!!"}
    assert code == 1
    assert list(amiss) == ["gap"]
    assert amiss["gap"].startswith("largest 1.0e-02 nats, at position 0 ")


def test_a_file_that_cannot_be_written_is_told_before_a_model_is_read(
    call: Call,
) -> None:
    code, out, err = call("rollout", "--model", "no/such", "--output", "none/one.jsonl")
    assert (code, out) == (2, "")
    assert err == "repl-rl: cannot write to 'none/one.jsonl': No such file or directory\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a note\n", "repl-rl: one.jsonl:1 is not a trajectory: "),
        (b'{"format":2,"origin":null', "repl-rl: one.jsonl ends in the middle of a row; "),
    ],
)
def test_a_file_that_takes_no_rows_is_told_before_a_model_is_read(
    call: Call, content: bytes, told: str
) -> None:
    Path("one.jsonl").write_bytes(content)
    code, out, err = call("rollout", "--model", "no/such", "--output", "one.jsonl")
    assert (code, out, err[: len(told)]) == (2, "", told)
    assert Path("one.jsonl").read_bytes() == content


def test_what_is_checked_is_told_even_where_nothing_can_be_kept(
    call: Call, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    planted = Finding(name="planted", passed=False, text="amiss")
    found = rollout.findings
    monkeypatch.setattr(rollout, "findings", lambda subject: [*found(subject), planted])
    monkeypatch.setattr(rollout, "append", full)
    code, out, err = call("rollout", "--model", str(tiny_model), "--output", "one.jsonl", *small())
    assert set(report(out)) == CHECKS | {"planted"}
    assert "kept: " not in out
    assert (code, err) == (
        2,
        "repl-rl: cannot write to 'one.jsonl': No space left on device; it is not kept\n",
    )
