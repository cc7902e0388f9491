"""Warm starts: what they train, what they leave as it was, which transcripts they show."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from adapter_kit import logits, wrapped
from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import LoraConfig, SamplingConfig
from repl_rl.errors import ConfigError
from repl_rl.models.loading import load_model
from repl_rl.models.precision import Precision
from repl_rl.models.weights import named_weights
from repl_rl.records import (
    Attempt,
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.rollout.sampler import (
    LineSampler,
    ScriptSampler,
    Written,
    WrittenLine,
    fixed_script,
)
from repl_rl.runs.folder import RunFolder, WarmRecord, write_record
from repl_rl.runs.resume import begun, newest_run
from repl_rl.runs.trajectory_file import append
from repl_rl.training.lessons import Gathering, name_held_out
from repl_rl.training.sources import Sources, adapted, check_sources
from repl_rl.training.warmstart import _save
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON, Prompt
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update.sft import adamw, example_of, fit
from repl_rl.update.token_tree import IGNORED
from repl_rl.viewer.show.display import Screen
from repl_sandbox.types import ExecStatus, Execution, Kernel
from script_runtime import ScriptRuntime
from tiny_model import save_tiny_model

pytestmark = pytest.mark.slow

MakeTrajectory = Callable[..., Trajectory]
OUTPUT = OutcomeKind.OK_OUTPUT

ANSWERS = {
    "1 + 1": Execution(status=ExecStatus.OK, output="2\n"),
    "2": Execution(status=ExecStatus.OK, output="", value="2"),
    "3": Execution(status=ExecStatus.OK, output="", value="3"),
}


def test_labels_are_the_sampled_tokens_and_with_a_mask_those_of_answers_too(
    make_trajectory: MakeTrajectory,
) -> None:
    trajectory = make_trajectory([(" 1\n", OUTPUT, "1\n>>>"), (" 2\n", OUTPUT, None)])
    ids, labels = example_of(trajectory)
    assert bytes(ids) == b">>> 1\n1\n>>> 2\n"
    assert labels == [IGNORED] * 3 + [*b" 1\n"] + [IGNORED] * 5 + [*b" 2\n"]
    mask = [at in (3, 4) for at in range(11)]
    same, answered = example_of(trajectory, mask)
    assert same == ids
    assert answered == [IGNORED] * 3 + [*b" 1\n1\n"] + [IGNORED] * 3 + [*b" 2\n"]


@pytest.mark.train
def test_an_adapter_leaves_its_base_bit_for_bit_and_final_is_their_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    loaded = wrapped(save_tiny_model(tmp_path / "tiny"))
    before = {name: one.clone() for name, one in loaded.model.state_dict().items()}
    train(loaded, tmp_path)
    after = loaded.model.state_dict()
    moved = {name for name, one in after.items() if not torch.equal(one, before[name])}
    assert moved
    assert all("lora_" in name for name in moved)

    folder = RunFolder(tmp_path / "run")
    _save(folder, loaded)
    final = load_model(
        str(folder.final_checkpoint), device=torch.device("cpu"), precision=Precision()
    )
    assert (logits(final.model) - logits(loaded.model)).abs().max() < 1e-5
    sums = dict(named_weights(loaded.model))
    assert all((one - sums[name]).abs().max() < 1e-6 for name, one in named_weights(final.model))
    beside = folder.final_checkpoint.with_name("adapter")
    assert (beside / "adapter_model.safetensors").is_file()
    assert not (folder.final_checkpoint / "adapter_model.safetensors").exists()


def train(loaded: Any, scratch: Path, **options: Any) -> None:
    examples = [
        ([62, 63, 64, 65], [IGNORED, IGNORED, 64, 65]),
        ([62, 63, 66, 67], [IGNORED, IGNORED, IGNORED, 67]),
    ] * 4
    fit(
        loaded.model,
        loaded.tokenizer,
        examples,
        steps=2,
        batch_size=4,
        optimizer=adamw(loaded.model, learning_rate=1e-2),
        is_mixed=False,
        seed=1,
        scratch=scratch,
        **options,
    )


@pytest.mark.train
@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True, "micro_batch_size": 2}])
def test_what_transcripts_begin_with_is_forwarded_once_and_teaches_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    folder = save_tiny_model(tmp_path / "tiny")
    trained, sizes = {}, []
    for as_trees in (True, False):
        trained[as_trees] = loaded = wrapped(folder)
        layer = next(m for name, m in loaded.model.named_modules() if name.endswith("layers.0"))
        seen: list[int] = []
        handle = layer.register_forward_hook(
            lambda _module, inputs, _out, seen=seen: seen.append(inputs[0].shape[:2].numel())
        )
        train(loaded, tmp_path, as_trees=as_trees, **options)
        handle.remove()
        sizes.append(seen)
    gap = (logits(trained[True].model) - logits(trained[False].model)).abs().max()
    moved = (logits(trained[True].model) - logits(wrapped(folder).model)).abs().max()
    assert moved > 100 * gap  # the first steps of Adam make much of a gradient near 0
    # 62 63 64 and behind 62 63 a 66: nothing is learned from what follows a last token.
    _rows_of_the_trial, _its_tree, *of_trees = sizes[0]
    assert max(of_trees) <= 4
    assert min(sizes[1]) >= 8


class Judge:
    async def grade(self, task_spec: str, problem: Problem, submission: str) -> Verdict:
        is_right = submission == problem.meta.get("answer")
        return Verdict(kind=VerdictKind.PROVED if is_right else VerdictKind.WRONG)


def plan_of(*overrides: str) -> Plan:
    return make_plan(resolve(flags={"model": "m"}, overrides=overrides))


def scripts_on(plan: Plan) -> Any:
    """Return a runtime whose kernels know `ANSWERS`."""
    return ScriptRuntime(plan, ANSWERS, judge=Judge(), reward=reward)


def reward(trajectory: Trajectory, verdict: Verdict | None) -> Reward:
    return Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=0.0)


def gathering(plan: Plan, held_out: Sequence[Attempt] = ()) -> Gathering:
    runtime = scripts_on(plan)
    screen = Screen(Console(file=io.StringIO()))
    return Gathering(runtime, screen, held_out=held_out)


def stored(plan: Plan, path: Path, *lines: Sequence[str]) -> list[Scored]:
    """A file of trajectories that these lines make of problems 0, 1, ..., each solved by 2."""
    attempts = [
        Attempt(
            problem=Problem(id=str(i), statement=f"Problem {i}", meta={"answer": "2"}),
            group_index=i,
            sibling_index=0,
            seed=i,
        )
        for i in range(len(lines))
    ]
    sampler = ScriptSampler(
        lambda attempt: fixed_script(lines[attempt.group_index]),
        Encoding(PYTHON, ByteCodec()),
        SamplingConfig(),
        context_tokens=4096,
    )
    scored = scripts_on(plan).sampling_by(sampler).run(attempts)
    append(path, scored)
    return list(scored)


RIGHT, WRONG = ("1 + 1", "submit_final_answer(2)"), ("submit_final_answer(3)",)
SILENT = ("# not sure",)


def test_of_a_run_exactly_the_solved_ones_are_shown_token_for_token(tmp_path: Path) -> None:
    plan = plan_of("warmstart.demonstrations=0")
    made = stored(plan, tmp_path / "step-000000.jsonl", RIGHT, WRONG, SILENT, RIGHT)
    found = gathering(plan).gather(Sources(runs=(tmp_path / "step-000000.jsonl",)))
    assert [one.trajectory for one in found.scored] == [made[0].trajectory, made[3].trajectory]
    assert found.left_out["unsolved"] == 2


class LastLines(ScriptSampler):
    """Shows of each script the last line."""

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        whole = ScriptSampler(lambda _: fixed_script(RIGHT[-1:]), self.encoding, self.limits,
                              context_tokens=self.context_tokens)  # fmt: skip
        return await whole.sample(attempt, prompt, kernel)


class OfLastLines(LineSampler):
    scripts = LastLines


def test_demonstrations_are_shown_in_the_form_that_the_sampler_brings() -> None:
    sampler = f"sampling.sampler={__name__}:OfLastLines"
    plan = plan_of("warmstart.demonstrations=3", "warmstart.keep=all", sampler)
    found = gathering(plan).gather(Sources())
    sources = [[line.source for line in one.trajectory.lines] for one in found.scored]
    assert sources == [[" submit_final_answer(2)\n"]] * 3


def test_what_is_there_twice_is_shown_once(tmp_path: Path) -> None:
    plan = plan_of("warmstart.demonstrations=0")
    stored(plan, tmp_path / "one.jsonl", RIGHT)
    stored(plan, tmp_path / "two.jsonl", RIGHT, RIGHT)
    found = gathering(plan).gather(Sources(runs=(tmp_path / "one.jsonl", tmp_path / "two.jsonl")))
    assert [one.problem.id for one in found.scored] == ["0", "1"]
    assert str(found).endswith("two.jsonl 1); left out: duplicate 1")


def test_no_problem_of_a_held_out_family_is_shown(tmp_path: Path) -> None:
    """Another run may have trained on it."""
    plan = plan_of("warmstart.demonstrations=0")
    plan = plan.changed(task=dataclasses.replace(plan.config.task, held_out=("ode",)))
    made = stored(plan, tmp_path / "other.jsonl", RIGHT, RIGHT)
    family = [{"family": "ode"}, {"family": "sum"}]
    rows = [
        dataclasses.replace(one, problem=dataclasses.replace(one.problem, meta=meta))
        for one, meta in zip(made, family, strict=True)
    ]
    append(tmp_path / "step-000000.jsonl", rows)
    found = gathering(plan).gather(Sources(runs=(tmp_path / "step-000000.jsonl",)))
    assert [one.problem.id for one in found.scored] == ["1"]
    assert found.left_out["held out"] == 1


def test_no_held_out_problem_is_shown(tmp_path: Path) -> None:
    plan = plan_of("warmstart.demonstrations=0")
    made = stored(plan, tmp_path / "step-000000.jsonl", RIGHT, RIGHT)
    stored(plan, tmp_path / "eval-000000.jsonl", RIGHT, RIGHT, RIGHT)
    measured = Attempt(problem=made[0].problem, group_index=0, sibling_index=0, seed=0)
    found = gathering(plan, [measured]).gather(
        Sources(runs=(tmp_path / "step-000000.jsonl", tmp_path / "eval-000000.jsonl"))
    )
    assert [one.problem.id for one in found.scored] == ["1"]
    assert found.left_out["held out"] == 4


def rows_plan(folder: Path, *overrides: str) -> Plan:
    """A file of two rows with the answer 2, of which one is held out."""
    path = folder / "rows.jsonl"
    row = '{"id": "%d", "question": "Row %d", "answer": 2, "split": "%s"}\n'
    path.write_text(row % (0, 0, "train") + row % (1, 1, "test"))
    return plan_of("warmstart.demonstrations=0", f"task={path}", *overrides)


def test_no_row_is_shown_that_a_file_holds_out_measured_or_not(tmp_path: Path) -> None:
    plan = rows_plan(tmp_path)
    written = [by_hand(("submit_final_answer(2)", ""), asks=f"Row {i}") for i in range(2)]
    found = gathering(plan).gather(Sources(written=tuple(written)))
    assert [one.problem.id for one in found.scored] == ["0"]
    assert found.left_out["held out"] == 1


def test_a_transcript_of_a_held_out_row_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    plan = rows_plan(tmp_path)
    train, held = (by_hand(("submit_final_answer(2)", ""), asks=f"Row {i}") for i in range(2))
    shown = io.StringIO()
    screen = Screen(Console(file=shown, width=200))
    name_held_out(plan, Sources(written=(train, held)), [], screen)
    assert shown.getvalue() == f"left out: {held.lines[0].place}: rows.jsonl:2 is held out\n"
    with pytest.raises(ConfigError) as told:
        name_held_out(plan, Sources(written=(held,)), [], screen)
    assert str(told.value) == (
        f"nothing to show the model: {held.lines[0].place}: rows.jsonl:2 is held out; expected "
        "transcripts of problems to train on, which `repl-rl tasks` lists"
    )
    name_held_out(plan, Sources(written=(held,), runs=(tmp_path,)), [], screen)


def test_a_rows_transcript_by_hand_has_its_answer(tmp_path: Path) -> None:
    """A slip of whoever wrote it is not taught, unless all are to be shown."""
    written = by_hand(("1 + 1", "2\n"), ("submit_final_answer(3)", ""), asks="Row 0")
    with pytest.raises(ConfigError, match=r"^mine.repl:3: 3 is wrong by the answer of 0; correct"):
        gathering(rows_plan(tmp_path)).gather(Sources(written=(written,)))
    plan = rows_plan(tmp_path, "warmstart.keep=all")
    (found,) = gathering(plan).gather(Sources(written=(written,))).scored
    assert found.problem.meta["answer"] == "2"


def test_a_trajectory_of_other_tokens_is_run_again_in_those_of_the_model(tmp_path: Path) -> None:
    plan = plan_of("warmstart.demonstrations=0")
    (made,) = stored(plan, tmp_path / "a.jsonl", RIGHT)
    foreign = dataclasses.replace(made.trajectory, prompt_ids=(1, 2, 3))
    append(tmp_path / "b.jsonl", [dataclasses.replace(made, trajectory=foreign)])
    (found,) = gathering(plan).gather(Sources(runs=(tmp_path / "b.jsonl",))).scored
    assert found.trajectory.prompt_ids == made.trajectory.prompt_ids
    assert found.trajectory.completion_ids == made.trajectory.completion_ids


def test_nothing_left_to_show_is_refused_with_the_reasons(tmp_path: Path) -> None:
    plan = plan_of("warmstart.demonstrations=0")
    stored(plan, tmp_path / "a.jsonl", WRONG, SILENT)
    with pytest.raises(ConfigError, match="nothing to show the model: left out unsolved 2; give"):
        gathering(plan).gather(Sources(runs=(tmp_path / "a.jsonl",)))


def by_hand(*lines: tuple[str, str], asks: str = "What is 1 + 1?") -> Written:
    return Written(
        problem=Problem(id="by hand", statement=asks),
        lines=tuple(
            WrittenLine(source=source, output=output, place=f"mine.repl:{number}")
            for number, (source, output) in enumerate(lines, 2)
        ),
    )


def test_a_transcript_by_hand_is_run_and_shown() -> None:
    written = by_hand(("1 + 1", "2\n"), ("submit_final_answer(2)", ""))
    plan = plan_of("warmstart.demonstrations=0")
    (found,) = gathering(plan).gather(Sources(written=(written,))).scored
    assert [line.source for line in found.trajectory.lines] == [
        " 1 + 1\n",
        " submit_final_answer(2)\n",
    ]
    assert "# What is 1 + 1?" in found.trajectory.prompt_text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            [("1 + 1", "3\n"), ("submit_final_answer(2)", "")],
            r"^mine.repl:2: '1 \+ 1' answers '2\\n', not '3\\n'; correct it, or write no outputs",
        ),
        (
            [("submit_final_answer(2)", ""), ("1 + 1", "2\n")],
            r"^mine.repl:3: not run, as the transcript ends above it \(submitted\); take the line",
        ),
    ],
)
def test_a_transcript_that_is_not_what_happens_is_refused_with_its_line(
    lines: list[tuple[str, str]], said: str
) -> None:
    plan = plan_of("warmstart.demonstrations=0")
    with pytest.raises(ConfigError, match=said):
        gathering(plan).gather(Sources(written=(by_hand(*lines),)))


def test_a_transcript_without_any_output_is_run_for_them() -> None:
    plan = plan_of("warmstart.demonstrations=0")
    written = by_hand(("1 + 1", ""), ("submit_final_answer(2)", ""))
    (found,) = gathering(plan).gather(Sources(written=(written,))).scored
    assert found.trajectory.lines[0].outcome.observation == "2\n"


@pytest.mark.parametrize(("keep", "num"), [("solved", 1), ("submitted", 2), ("all", 3)])
def test_of_the_tasks_own_attempts_those_asked_for_are_shown(keep: str, num: int) -> None:
    """Three problems are all there are, so no more attempts are made for those left out."""
    task = scripted((RIGHT, WRONG, SILENT), num_problems=3)
    plan = plan_of("warmstart.demonstrations=3", f"warmstart.keep={keep}")
    assert len(gathering(dataclasses.replace(plan, task=task)).gather(Sources()).scored) == num


def test_attempts_are_made_until_enough_are_kept() -> None:
    """One of two is right: three attempts give two, and of three more two are as many as miss."""
    task = scripted((RIGHT, WRONG) * 50, num_problems=100)
    plan = dataclasses.replace(plan_of("warmstart.demonstrations=3"), task=task)
    found = gathering(plan).gather(Sources())
    assert (len(found.scored), found.left_out["unsolved"]) == (3, 2)


def test_attempts_that_all_fail_end() -> None:
    task = scripted((WRONG,) * 100, num_problems=100)
    plan = dataclasses.replace(plan_of("warmstart.demonstrations=3"), task=task)
    with pytest.raises(ConfigError, match="left out unsolved 12;"):
        gathering(plan).gather(Sources())


def scripted(scripts: Sequence[Sequence[str]], *, num_problems: int) -> Any:
    """A task of so many problems that attempts them by these scripts, one after another."""
    left = iter(scripts)
    problems = [
        Problem(id=str(i), statement=f"Problem {i}", meta={"answer": "2"})
        for i in range(num_problems)
    ]
    return SimpleNamespace(
        name="own",
        prompt="{{problem}}",
        problems=lambda split, seed: iter(problems),
        grade=len,
        demonstrate=lambda problem, rng: fixed_script(next(left)),
    )


def test_an_adapter_is_trained_unless_all_weights_are_asked_for() -> None:
    assert adapted(Config(model="m"), is_whole=False).lora.rank == 32
    assert adapted(Config(model="m", lora=LoraConfig(rank=4)), is_whole=False).lora.rank == 4
    assert adapted(Config(model="m"), is_whole=True).lora.rank == 0
    with pytest.raises(ConfigError, match=r"--whole trains all weights, but lora\.rank = 4"):
        adapted(Config(model="m", lora=LoraConfig(rank=4)), is_whole=True)


def test_nothing_to_show_is_refused_before_anything_is_loaded() -> None:
    plan = plan_of("warmstart.demonstrations=0")
    with pytest.raises(ConfigError, match="nothing to show the model"):
        check_sources(plan, Sources())


def test_a_run_of_grpo_does_not_go_on_in_a_warm_start(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "warm"
    RunFolder(path)
    write_record(path, WarmRecord(transcripts=1, steps=1, learning_rate=0.1))
    for _ in range(2):
        with pytest.raises(ConfigError, match="is a warm start, which cannot be resumed"):
            begun(path)
        (path / "warmstart.json").write_bytes(b'{"\xff')  # a disk that loses what it had
    with pytest.raises(ConfigError, match="no run to resume in"):
        newest_run(tmp_path / "runs", to_resume=True)
    assert newest_run(tmp_path / "runs") == path
