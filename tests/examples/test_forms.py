"""Forms beside the line, of `benchmarks/`: what of a block runs, is injected and trained.

Tokens are bytes.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attempt_kit import an_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import SampledLine
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.records import OutcomeKind, Split, StopReason, Trajectory, Verdict, VerdictKind
from repl_rl.rollout.builder import RolloutCancelled, check_trajectory
from repl_rl.rollout.plan import script_sampler
from repl_rl.rollout.sampler import LineSampler, ScriptSampler, fixed_script
from repl_rl.training.audit import Counts
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON, Prompt, spans
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

pytestmark = pytest.mark.slow  # the scripts import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROMPT = Prompt.plain(">>>")
CODEC = ByteCodec()
FAILED = Execution(
    status=ExecStatus.ERROR,
    output='Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\nNameError\n',
    error_type="NameError",
)
ANSWERS: Mapping[str, Execution] = {
    "x": Execution(status=ExecStatus.OK, output="3\n", value="3"),
    "y": Execution(status=ExecStatus.OK, output="4\n", value="4"),
    "z": FAILED,
    "print(w)": Execution(status=ExecStatus.OK, output="4\n"),
}


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("form_samplers")


def rolled(form: Any, *lines: str, kernel: FakeKernel | None = None, **limits: Any) -> Trajectory:
    """The rollout of a policy that writes these lines, one for each request."""
    engine = ScriptedEngine(CODEC, script(*lines))
    sampler = form(engine, CODEC, PYTHON, SamplingConfig(**limits), context_tokens=4096)
    kernel = kernel or FakeKernel(ANSWERS)
    made: Trajectory = asyncio.run(sampler.sample(an_attempt(seed=5), PROMPT, kernel))
    return audited(made)


def shown(form: Any, lines: Sequence[str], **limits: Any) -> Trajectory:
    """A task's script of these lines, as the form shows it."""
    sampler = form.scripts(
        lambda _: fixed_script(lines),
        Encoding(PYTHON, CODEC),
        SamplingConfig(**limits),
        context_tokens=4096,
    )
    kernel = FakeKernel(ANSWERS)
    made: Trajectory = asyncio.run(sampler.sample(an_attempt(), PROMPT, kernel))
    return audited(made)


def audited(made: Trajectory) -> Trajectory:
    """The trajectory itself, if `repl-rl audit` would find nothing in what it holds."""
    check_trajectory(made, maker="a form")
    counts = Counts()
    counts.take(made, CODEC, PYTHON)
    found = [one for one in counts.findings(is_exact=True) if one.passed is False]
    assert (found, counts.lines) == ([], len(made.own_lines))
    return made


def pieces(made: Trajectory) -> list[tuple[str, bool]]:
    """(text, whether it was sampled), in order."""
    return [
        (CODEC.decode(made.completion_ids[span.start : span.stop]), span.is_sampled)
        for span in spans(made)
    ]


def kinds(made: Trajectory) -> list[str]:
    return [str(line.outcome.kind) for line in made.lines]


def test_lines_of_a_block_run_together_and_their_answers_come_behind_its_blank_line(
    forms: ModuleType,
) -> None:
    kernel = FakeKernel(ANSWERS)
    made = rolled(forms.Block, " x = 3\n", "x\n", "y\n", "\n", kernel=kernel)
    assert pieces(made)[:2] == [(" x = 3\nx\ny\n\n", True), ("3\n4\n>>>", False)]
    assert kernel.sources == ["x = 3", "x", "y"]
    assert kinds(made)[0] == "ok_output"


def test_a_block_that_does_not_compile_runs_nothing(forms: ModuleType) -> None:
    kernel = FakeKernel(ANSWERS)
    made = rolled(forms.Block, " x = 3\n", "x)\n", "\n", kernel=kernel)
    assert kernel.sources == []
    assert kinds(made)[0] == "syntax_error"
    assert made.lines[0].outcome.observation.startswith('  File "<stdin>", line 2\n    x)\n')


def test_a_block_stops_at_its_first_error_and_names_the_line_in_the_block(
    forms: ModuleType,
) -> None:
    kernel = FakeKernel(ANSWERS)
    made = rolled(forms.Block, " x\n", "z\n", "y\n", "\n", kernel=kernel)
    assert kernel.sources == ["x", "z"]
    assert kinds(made)[0] == "name_error"
    assert made.lines[0].outcome.observation == (
        '3\nTraceback (most recent call last):\n  File "<stdin>", line 2, in <module>\nNameError\n'
    )


def test_a_submission_ends_a_block_and_the_trajectory(forms: ModuleType) -> None:
    kernel = FakeKernel(ANSWERS)
    made = rolled(forms.Block, " submit_final_answer(x)\n", "y\n", "\n", kernel=kernel)
    assert (made.submission, made.stop_reason) == ("3", StopReason.SUBMITTED)
    assert kernel.sources == ["x"]
    assert all(made.loss_mask)


def test_a_statement_of_several_lines_is_one_source(forms: ModuleType) -> None:
    kernel = FakeKernel()
    block = (" for i in x:\n", "    print(i)\n", "a = 1; b = 2\n", "f(\n", "1)\n", "\n")
    rolled(forms.Block, *block, kernel=kernel)
    assert kernel.sources == ["for i in x:\n    print(i)\n", "a = 1; b = 2", "f(\n1)"]


@pytest.mark.parametrize(
    ("limits", "lines", "stop"),
    [
        ({"max_tokens": 8}, (" x = 3\n", "x\n", "\n"), StopReason.MAX_TOKENS),
        ({"max_line_tokens": 8}, (" x = 3\n", "x = 33333\n"), StopReason.MAX_LINE_TOKENS),
        ({}, (" x = 3\n", "x"), StopReason.EOS),
    ],
)
def test_a_block_without_its_blank_line_never_runs(
    forms: ModuleType, limits: Mapping[str, int], lines: Sequence[str], stop: StopReason
) -> None:
    kernel = FakeKernel(ANSWERS)
    made = rolled(forms.Block, *lines, kernel=kernel, **limits)
    assert kernel.sources == []
    assert (made.stop_reason, kinds(made)) == (stop, ["cut"])


def test_a_block_that_is_called_off_hands_over_what_ran_before(forms: ModuleType) -> None:
    class Stalling(ScriptedEngine):
        async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
            if CODEC.decode(ids).endswith("y = 2\n"):
                stalled.set()
                await asyncio.Event().wait()
            return await super().line(ids, max_tokens=max_tokens, seed=seed)

    async def call_off() -> Trajectory:
        sampler = forms.Block(engine, CODEC, PYTHON, SamplingConfig(), context_tokens=4096)
        task = asyncio.create_task(sampler.sample(an_attempt(), PROMPT, FakeKernel(ANSWERS)))
        await stalled.wait()
        task.cancel()
        with pytest.raises(RolloutCancelled) as cancelled:
            await task
        return cancelled.value.trajectory

    engine, stalled = Stalling(CODEC, script(" x\n", "\n", " y = 2\n")), asyncio.Event()
    made = asyncio.run(call_off())
    assert [line.source for line in made.lines] == [" x\n\n"]
    assert made.stop_reason is StopReason.CANCELLED


def test_a_script_is_one_block_and_sees_nothing(forms: ModuleType) -> None:
    made = rolled(forms.Script, " x\n", "\n", " y\n", "\n")
    assert pieces(made) == [(" x\n\n", True)]
    assert made.stop_reason is StopReason.MAX_LINES
    submitted = rolled(forms.Script, " x\n", "submit_final_answer(y)\n", "\n")
    assert (submitted.submission, submitted.stop_reason) == ("4", StopReason.SUBMITTED)


def test_of_a_text_nothing_runs_and_the_answer_is_as_it_stands(forms: ModuleType) -> None:
    kernel = FakeKernel(ANSWERS)
    made = rolled(forms.Written, " x is 3\n", "\n", "submit_final_answer(x)\n", kernel=kernel)
    assert kernel.sources == []
    assert (made.submission, made.stop_reason) == ("x", StopReason.SUBMITTED)
    assert pieces(made) == [(" x is 3\n\nsubmit_final_answer(x)\n", True)]
    # A token may be two newlines.
    made = rolled(forms.Written, " submit_final_answer(3)\n\n")
    assert (made.submission, made.stop_reason) == ("3", StopReason.SUBMITTED)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (" submit_final_answer(-6)", "-6"),
        ("submit_final_answer(1/2 + x)", "1/2 + x"),
        ("submit_final_answer(2*3)", None),
        ("submit_final_answer(14 - +1)", None),
        ("submit_final_answer(-3 - 2)", None),
        ("submit_final_answer([1, 7 % 4])", None),
        ("the answer is 6", None),
    ],
)
def test_a_written_answer_leaves_no_sum_to_its_reader(
    forms: ModuleType, line: str, answer: str | None
) -> None:
    assert forms.written_answer(line) == answer


LINES = ("# two", "x = 3", "x", "z", "y)", "y", "submit_final_answer(x)")


def test_a_block_is_shown_up_to_each_value_that_its_author_wants_to_see(forms: ModuleType) -> None:
    made = shown(forms.Block, LINES)
    assert [line.source for line in made.lines] == [
        " # two\nx = 3\nx\n\n",
        " z\n\n",
        " y)\n\n",
        " y\n\n",
        " submit_final_answer(x)\n\n",
    ]
    assert kinds(made) == ["ok_output", "name_error", "syntax_error", "ok_output", "submitted"]


def test_a_slip_that_nobody_sees_costs_its_whole_block(forms: ModuleType) -> None:
    """The first slip is typed again, the second is not: what ran in lines runs in the end."""
    typed = ("a = 1)", "a = 1", "b = 2)", "c = 3", "submit_final_answer(x)")
    made = shown(forms.Block, typed)
    assert [line.source for line in made.lines] == [
        " a = 1)\nb = 2)\nc = 3\nsubmit_final_answer(x)\n\n",
        " a = 1\nb = 2)\nc = 3\nsubmit_final_answer(x)\n\n",
        " a = 1\nc = 3\nsubmit_final_answer(x)\n\n",
    ]
    assert kinds(made) == ["syntax_error", "syntax_error", "submitted"]


def test_a_script_is_shown_with_its_slips_and_fails_by_the_first(forms: ModuleType) -> None:
    made = shown(forms.Script, LINES)
    assert made.lines[0].source == " # two\nx = 3\nx\nz\ny)\nsubmit_final_answer(x)\n\n"
    assert (kinds(made), made.submission) == (["name_error"], None)
    right = shown(forms.Script, ["x = 3", "submit_final_answer(x)"])
    assert (right.submission, right.stop_reason) == ("3", StopReason.SUBMITTED)


def test_a_text_is_shown_with_values_and_without_what_failed(forms: ModuleType) -> None:
    made = shown(forms.Written, LINES)
    assert made.lines[0].source == " # two\nx = 3\nx\n3\ny\n4\nsubmit_final_answer(3)\n"
    assert made.submission == "3"
    made = shown(forms.Written, ["w = 4", "w = x + 1", "submit_final_answer(x)"])
    assert made.lines[0].source == " w = 4\nw = x + 1\n4\nsubmit_final_answer(3)\n"
    assert shown(forms.Written, ["# not sure"]).stop_reason is StopReason.EOS


@pytest.mark.parametrize("name", ["Block", "Script", "Written"])
def test_a_policy_that_writes_what_is_shown_has_the_trajectory_that_is_shown(
    forms: ModuleType, name: str
) -> None:
    form = getattr(forms, name)
    made = shown(form, ["x = 3", "x", "submit_final_answer(x)"])
    typed = "".join(line.source for line in made.lines).splitlines(keepends=True)
    again = rolled(form, *typed)
    for part in ("completion_ids", "loss_mask", "submission", "stop_reason"):
        assert getattr(again, part) == getattr(made, part)
    assert [line.outcome.kind for line in again.lines] == [line.outcome.kind for line in made.lines]


@pytest.mark.parametrize("name", ["Words", "Euclid", "NamedEuclid"])
def test_scripts_of_a_task_are_right_but_for_what_they_mistype(
    forms: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Run without slips: by Python, of a script that this repository writes."""
    if name != "Words":
        pytest.importorskip("reasoning_gym")
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent / "examples"))
    task = getattr(importlib.import_module("form_tasks"), name)()
    slip = importlib.import_module("form_scripts").slip
    rng, right = random.Random(0), 0
    for problem in itertools.islice(task.problems(Split.TRAIN, seed=0), 20):
        lines, script = [], task.demonstrate(problem, rng)
        line = next(script)
        while line is not None:
            lines.append(line)
            line = importlib.import_module("form_scripts").answered(script, "")
        names: dict[str, Any] = {"submit_final_answer": str}
        *before, last = [line for line in lines if slip(line) is None]
        try:
            exec("\n".join(before), names)
            right += eval(last, names) == problem.meta["answer"]
        except NameError:  # the line that binds the names was not typed again
            assert name == "NamedEuclid"
    assert right == 20 if name == "Words" else 10 < right < 20


def test_a_demonstration_over_a_limit_is_cut_as_a_rollout_is(forms: ModuleType) -> None:
    for form in (forms.Block, forms.Script, forms.Written):
        made = shown(form, ["x = 3", "submit_final_answer(x)"], max_tokens=12)
        assert (made.stop_reason, kinds(made)) == (StopReason.MAX_TOKENS, ["cut"])


def test_a_sampler_brings_what_shows_scripts_in_its_form(forms: ModuleType) -> None:
    assert script_sampler(forms.Block) is forms.BlockScripts
    assert script_sampler(LineSampler) is ScriptSampler


def test_habits_count_units_that_fail_and_those_that_come_right_behind_them(
    forms: ModuleType, make_trajectory: Any, make_scored: Any
) -> None:
    """Errors: 3 of 6 units. One of them is mended; one of two such trajectories is solved."""
    habits = importlib.import_module("form_tables").habits
    ok, error, submitted = OutcomeKind.OK_SILENT, OutcomeKind.NAME_ERROR, OutcomeKind.SUBMITTED
    right = Verdict(kind=VerdictKind.PROVED)
    scored = [
        make_scored(make_trajectory([(" x\n", error, None), (" x\n", error, None)]), 0.0),
        make_scored(
            make_trajectory([(" x\n", error, None), (" x\n", submitted, None)]), 1.0, None, right
        ),
        make_scored(make_trajectory([(" x\n", ok, None), (" x\n", submitted, None)]), 0.0),
    ]
    answers = "7", "7", "8"
    scored = [
        replace(one, problem=replace(one.problem, meta={"answer": answer}))
        for one, answer in zip(scored, answers, strict=True)
    ]
    found = habits(scored)
    assert (found["errors"], found["mended"]) == (0.5, pytest.approx(1 / 3))
    assert found["in spite"] == 0.5
    assert found["solved"] == pytest.approx(1 / 3)
    assert found["constant"] == pytest.approx(2 / 3)


def test_problems_that_a_guess_does_not_solve_are_told_apart(
    forms: ModuleType, make_trajectory: Any, make_scored: Any
) -> None:
    """The answers 1 and 2 are guessed; of the others, 5 and 6, one is right."""
    habits = importlib.import_module("form_tables").habits
    right = Verdict(kind=VerdictKind.PROVED)
    trajectory = make_trajectory([(" x\n", OutcomeKind.SUBMITTED, None)])
    scored = [
        replace(one, problem=replace(one.problem, meta={"answer": answer}))
        for one, answer in (
            (make_scored(trajectory, 1.0, None, right), "1"),
            (make_scored(trajectory, 1.0, None, right), "1"),
            (make_scored(trajectory, 1.0, None, right), "2"),
            (make_scored(trajectory, 1.0, None, right), "2"),
            (make_scored(trajectory, 1.0, None, right), "5"),
            (make_scored(trajectory, 0.0), "6"),
        )
    ]
    assert habits(scored)["rare"] == 0.5


def row(arms: ModuleType, form: str, seed: int, rate: float, *ends: float) -> Any:
    """A run whose solve rate goes from 0.1 to `ends`, at 1,000 and 2,000 tokens."""
    points = [
        arms.Point(step=step, tokens=1000 * step, steps_s=10.0 * step, rate=value)
        for step, value in enumerate((0.1, *ends))
    ]
    shares = "constant", "rare", "errors", "mended", "in spite", "injected", "submitted"
    habits = dict.fromkeys(shares, 0.25)
    habits |= {"solved": 0.1, "units": 2.0, "tokens": 40.0, "ms": 12.0}
    return importlib.import_module("form_tables").Row(
        task="doors",
        form=form,
        seed=seed,
        rate=rate,
        tokens=1500,
        points=points,
        cpu_s=1.0,
        before=habits,
        after=habits,
    )


def test_forms_stand_beside_one_another_at_equal_tokens_and_at_the_best_rate_of_each(
    forms: ModuleType,
) -> None:
    """At 1,500 tokens both seeds of `line` have 0.6 by the first rate in the mean, and 0.5 by the
    second, by which the first seed is ahead."""
    arms, tables = importlib.import_module("arms"), importlib.import_module("form_tables")
    rows = [
        row(arms, "line", 0, 1e-3, 0.4, 0.6),
        row(arms, "line", 0, 2e-3, 0.5, 0.7),
        row(arms, "line", 0, 3e-3, 0.9, 0.9),
        row(arms, "line", 1, 1e-3, 0.6, 0.8),
        row(arms, "line", 1, 2e-3, 0.3, 0.5),
        row(arms, "block", 0, 2e-3, 0.2, 0.2),
    ]
    assert tables.best_rate(rows[:5], 1500) == 1e-3
    assert tables.common(rows) == 1500
    text = tables.tables(rows)
    line = next(one for one in text.splitlines() if one.startswith("| line"))
    block = next(one for one in text.splitlines() if one.startswith("| block"))
    assert line.startswith(
        "| line | 0.001 | 2 | 10.0 (10.0 to 10.0) | 60.0 (50.0 to 70.0) | 50, 70"
    )
    assert block.startswith("| block | 0.002 | 1 | 10.0 | 20.0 | 20 | ")
    assert "line: 0.001 50.0 %, 0.002 60.0 %, 0.003 90.0 %; block: 0.002 20.0 %." in text
    # A CPU second stands for 20 seconds of steps here: 15 are half way to the last point.
    assert tables.at_seconds(rows[0], 0.75) == pytest.approx(0.5)


def test_a_row_that_is_on_file_is_not_measured_again(
    forms: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms, tables = importlib.import_module("arms"), importlib.import_module("form_tables")
    driver, kept = importlib.import_module("forms"), tmp_path / "rows.jsonl"
    assert tables.read_rows(kept) == []
    rows = [row(arms, "line", 3, 2e-3, 0.4, 0.6), row(arms, "line", 4, 2e-3, 0.5, 0.7)]
    kept.write_text("".join(json.dumps(asdict(one)) + "\n" for one in rows))
    assert tables.read_rows(kept) == rows
    case = driver.Case(
        name="doors",
        trial=driver.TRIALS["doors"],
        form="line",
        seed=4,
        output=tmp_path,
        model=None,
        rows=kept,
    )
    made: list[Path] = []
    monkeypatch.setattr(driver, "begun", made.append)
    assert driver.row_of(case, "rate-0.002", {}, rate=2e-3) == rows[1]
    assert made == []


@pytest.mark.parametrize(
    "task",
    ["euclid", "named", "doors", "tier-1", "tier-2", "real-doors", "real-euclid", "real-words"],
)
def test_the_notes_say_what_the_kept_rows_say(forms: ModuleType, task: str) -> None:
    tables = importlib.import_module("form_tables")
    docs = BENCHMARKS.parent / "docs"
    kept = [one for one in tables.read_rows(docs / "forms.jsonl") if one.task == task and one.rate]
    notes = (docs / "lab-notes.md").read_text().replace("*", "")
    rows = tables.best(kept)
    tokens = tables.common(rows)
    for form, found in tables.by(rows, lambda one: one.form):
        before = tables.spread([one.before["solved"] for one in found])
        after = tables.spread([tables.rate_at(one.points, tokens) for one in found])
        assert f"| {form} | {found[0].rate:g} | {before} | {after} |" in notes


def test_a_form_is_drawn_alike_whichever_row_comes_first(forms: ModuleType, tmp_path: Path) -> None:
    """Panels share a legend, and rows of a file lie as they were measured."""
    arms, tables = importlib.import_module("arms"), importlib.import_module("form_tables")
    rows = [
        row(arms, form, 0, 1e-3, *ends)
        for form, ends in (("line", (0.4, 0.6)), ("script", (0.3, 0.9)), ("block", (0.2, 0.5)))
    ]
    drawn = []
    for number, given in enumerate((rows, rows[::-1])):
        path = tmp_path / f"{number}.svg"
        tables.picture(given, path)
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
