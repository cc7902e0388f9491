"""Another loop in place of the line loop: what of its prose is run, injected and trained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from attempt_kit import an_attempt
from repl_rl.base.plugins import load_spec
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import SampledLine, Weights, line_end
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, StopReason, Trajectory
from repl_rl.rollout.builder import check_trajectory
from repl_rl.training.audit import Counts, Witness
from repl_rl.transcript.format import Prompt, spans
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

EXAMPLES = Path(__file__).parents[2] / "examples"
CODEC = ByteCodec()
EOS = 256


@dataclass
class Typist:
    """Writes the bytes of `text` one by one, whatever else stands between them, then the end."""

    text: str
    asked: list[tuple[int, int]] = field(default_factory=list)
    """(max_tokens, seed) of every request."""
    num_sampled: int = 0

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        token = [*self.text.encode(), EOS][len(self.asked)]
        self.asked.append((max_tokens, seed))
        self.num_sampled += 1
        end = line_end(token, newline_ids=CODEC.newline_ids, eos_ids=CODEC.eos_ids)
        return SampledLine(ids=(token,), logprobs=(-0.5,), end=end, policy_version=3)

    async def sync(self, weights: Weights, *, version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...


def valued(value: str) -> Execution:
    return Execution(status=ExecStatus.OK, value=value)


FIVE: Mapping[str, Execution] = {"2 + 3": valued("5"), "5": valued("5")}
FAILED = Execution(status=ExecStatus.ERROR, output="NameError\n", error_type="NameError")
Write = Callable[..., Trajectory]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(text or engine, answers)`: the rollout of a policy that writes this text."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    inline_calls: Any = load_spec("inline_calls:InlineCalls")
    prose: Any = load_spec("inline_calls:PROSE")

    def roll_out(
        engine: Any,
        answers: Mapping[str, Execution] = FIVE,
        *,
        kernel: FakeKernel | None = None,
        prompt: str = "Go.",
        context_tokens: int = 4096,
        max_tokens: int = 400,
    ) -> Trajectory:
        if isinstance(engine, str):
            engine = Typist(engine)
        sampler = inline_calls(
            engine,
            CODEC,
            prose,
            SamplingConfig(max_tokens=max_tokens),
            context_tokens=context_tokens,
        )
        attempt = an_attempt(seed=5)
        trajectory: Trajectory = asyncio.run(
            sampler.sample(attempt, Prompt.plain(prompt), kernel or FakeKernel(answers))
        )
        check_trajectory(trajectory, maker="InlineCalls")
        return trajectory

    return roll_out


def test_the_prompt_is_the_statement_and_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    prose: Any = load_spec("inline_calls:PROSE")
    prompt = prose.prompt("x = 1\n{{problem}}", "What is 2 + 3?", python_version="3.11")
    assert prompt.text == "What is 2 + 3?\nPython in <fn>...</fn> is run at once.\n\n"


def test_a_call_is_answered_where_it_stands_and_the_answer_is_not_trained(write: Write) -> None:
    trajectory = write("It is <fn>2 + 3</fn>.\n")
    pieces = [
        (CODEC.decode(trajectory.completion_ids[span.start : span.stop]), span.is_sampled)
        for span in spans(trajectory)
    ]
    assert pieces == [("It is <fn>2 + 3</fn>", True), (" = 5", False), (".\n", True)]
    assert trajectory.logprobs == (*[-0.5] * 20, *[0.0] * 4, *[-0.5] * 3)
    assert trajectory.stop_reason is StopReason.EOS


def test_a_submission_ends_it(write: Write) -> None:
    trajectory = write("<fn>2 + 3</fn> so <fn>submit_final_answer(5)</fn> and more")
    assert CODEC.decode(trajectory.completion_ids) == (
        "<fn>2 + 3</fn> = 5 so <fn>submit_final_answer(5)</fn>"
    )
    assert (trajectory.submission, trajectory.stop_reason) == ("5", StopReason.SUBMITTED)
    kinds = [line.outcome.kind for line in trajectory.lines]
    assert kinds == [OutcomeKind.OK_SILENT, OutcomeKind.SUBMITTED]


def test_the_kernel_sees_what_stands_between_the_last_marks(write: Write) -> None:
    kernel = FakeKernel(FIVE)
    write("<fn> 2 <fn> 2 + 3 </fn>", kernel=kernel)
    assert kernel.sources == ["2 + 3"]


@pytest.mark.parametrize(
    ("execution", "shown", "kind"),
    [
        (FAILED, "NameError", OutcomeKind.NAME_ERROR),
        (Execution(status=ExecStatus.TIMEOUT), "nothing", OutcomeKind.TIMEOUT),
    ],
)
def test_a_call_that_fails_is_answered_by_what_went_wrong(
    write: Write, execution: Execution, shown: str, kind: OutcomeKind
) -> None:
    trajectory = write("<fn>q</fn>", {"q": execution})
    assert CODEC.decode(trajectory.completion_ids) == f"<fn>q</fn> = {shown}"
    assert trajectory.lines[0].outcome.kind is kind


def test_a_submission_without_a_value_submits_nothing(write: Write) -> None:
    trajectory = write("<fn>submit_final_answer(q)</fn>", {"q": Execution(status=ExecStatus.OK)})
    assert trajectory.submission is None
    assert trajectory.lines[0].outcome.kind is not OutcomeKind.SUBMITTED


def test_every_token_is_asked_for_alone_and_has_a_seed_of_its_own(write: Write) -> None:
    typist = Typist("<fn>5</fn>ab")
    write(typist)
    assert [max_tokens for max_tokens, _ in typist.asked] == [1] * 13
    assert len({seed for _, seed in typist.asked}) == 13


def test_what_it_makes_passes_the_audit(write: Write) -> None:
    witness, counts = Witness(), Counts()
    trajectory = write(witness.watch(Typist("a <fn>2 + 3</fn> b <fn>5</fn> c")))
    counts.take(trajectory, CODEC)
    counts.take_witnessed(trajectory, witness)
    assert (counts.sampled, counts.drifted, counts.mask_disagreements) == (32, 0, 0)
    assert counts.observations == 2


# Budgets


@pytest.mark.parametrize("max_tokens", range(2, 30))
def test_a_completion_never_exceeds_max_tokens(write: Write, max_tokens: int) -> None:
    trajectory = write("<fn>5</fn><fn>5</fn> and on and on", max_tokens=max_tokens)
    assert len(trajectory.completion_ids) <= max_tokens
    assert trajectory.stop_reason is StopReason.MAX_TOKENS


def test_an_answer_that_leaves_no_room_for_a_token_ends_it(write: Write) -> None:
    """10 sampled and 4 injected fill 14 tokens exactly; with 15 one more is sampled."""
    assert CODEC.decode(write("<fn>5</fn>ab", max_tokens=14).completion_ids) == "<fn>5</fn>"
    assert CODEC.decode(write("<fn>5</fn>ab", max_tokens=15).completion_ids) == "<fn>5</fn> = 5a"


def test_the_context_bounds_it_as_well(write: Write) -> None:
    trajectory = write("abcdef", context_tokens=7)
    assert len(trajectory.prompt_ids) + len(trajectory.completion_ids) == 7


@pytest.mark.parametrize("context_tokens", [1, 3])
def test_a_prompt_that_fills_the_context_is_a_config_error(
    write: Write, context_tokens: int
) -> None:
    message = rf"problem p has 3 tokens, the model's context holds {context_tokens}"
    with pytest.raises(ConfigError, match=message):
        write("a", context_tokens=context_tokens)
