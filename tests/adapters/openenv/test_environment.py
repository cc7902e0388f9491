"""Laws of the environment, over the real client's WebSocket: it is `Env.episode`, line by line."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("openenv")

import repl_rl as rr
from openenv_kit import Served, holds, serving
from repl_rl.integrations.openenv import LineAction

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    # Of the packages that openenv and its server stand on.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ERRORS = ["undefined", "1 +* 2", "1/0", "undefined_too", "int('x')"]
"""-0.1 -0.3 -0.1 -0.1 -0.1: more than the cap of 0.4."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("sampling.max_lines=12", "grading.deadline_s=20.0") as server:
        yield server


@pytest.fixture(autouse=True)
def freed(served: Served) -> Iterator[None]:
    """A session is over for its client before the server has given its kernel back."""
    yield
    assert served.all_kernels_are_freed()


def play(served: Served, lines: Sequence[str], *, index: int = 0, seed: int = 3) -> list[Any]:
    """Results of the reset and of the steps."""
    with served.session() as client:
        results = [client.reset(split="train", index=index, seed=seed)]
        for line in lines:
            results.append(client.step({"line": line}))
        return results


def solution(served: Served, index: int = 0) -> list[str]:
    """Lines that solve the problem: those of its own demonstration, or its answer."""
    meta = served.problems.get("train", index).meta
    if "solution" in meta:
        return meta["solution"].split("\n")
    return [f"submit_final_answer({meta['answer']})"]


def answerable(served: Served) -> int:
    """The first problem whose answer is a number."""
    return next(
        index
        for index in range(20)
        if served.problems.get("train", index).meta["family"] == "modular"
    )


def total(results: Sequence[Any]) -> float:
    return math.fsum(result.reward for result in results[1:])


def test_over_the_wire_it_is_the_same_episode(served: Served) -> None:
    lines = ["x = 1", "x", "def f():", "    return 7", "", "f()", "# so", "undefined"]
    lines += solution(served, index := answerable(served))
    prompt, steps, scored = served.direct(lines, index=index, seed=3)
    first, *rest = play(served, lines, index=index)
    assert (first.observation["text"], first.reward, first.done) == (prompt, None, False)
    assert [one.observation["text"] for one in rest] == [step.observation for step in steps]
    assert [one.metadata["outcome"] for one in rest] == [step.outcome.kind for step in steps]
    assert [one.done for one in rest] == [False] * (len(lines) - 1) + [True]
    last = rest[-1].metadata
    assert last["stop"] == "submitted"
    assert last["submission"] == scored.trajectory.submission
    assert last["verdict"]["kind"] == scored.verdict.kind == "proved"  # type: ignore[union-attr]
    assert last["line_rewards"] == list(scored.reward.line_rewards)
    assert last["outcome_reward"] == 1.0


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["x = 1"], 1.0),  # and the answer
        (ERRORS, 1.0 - 0.4),  # and the answer
        # A guess is right once in ten times, so a wrong answer costs 1/9.
        (["undefined", "submit_final_answer(-12345)"], -0.1 - 1 / 9),
        ([*ERRORS, "submit_final_answer(-12345)"], -0.4 - 1 / 9),
        (["x = 1"] + [f"x + {i}" for i in range(11)], -0.6),  # 12 lines and no submission
        ([*ERRORS, *(f"{i}" for i in range(7))], -1.0),
    ],
)
def test_the_rewards_of_steps_sum_to_the_trajectorys(
    served: Served, lines: list[str], expected: float
) -> None:
    index = answerable(served)
    is_open = len(lines) < 12 and "submit" not in lines[-1]
    lines = [*lines, *(solution(served, index) if is_open else [])]
    results = play(served, lines, index=index)
    _, steps, scored = served.direct(lines, index=index, seed=3)
    assert results[-1].done
    assert total(results) == pytest.approx(scored.reward.total, abs=1e-12)
    assert total(results) == pytest.approx(expected, abs=1e-12)
    assert [one.reward for one in results[1:-1]] == [step.reward for step in steps[:-1]]


def test_the_last_step_carries_what_is_known_only_at_the_end() -> None:
    """A potential is paid as it grows, and taken back."""
    settings = ['task.families=["composite"]', "task.tiers=[3]", "reward.potential=0.4"]
    settings.append("grpo.credit=potential")
    with serving(*settings, "grading.deadline_s=20.0") as served:
        lines = ["1 + 1", "3 + 4", *solution(served)]
        results = play(served, lines)
        assert [round(one.reward, 12) for one in results[1:3]] == [0.1, 0.1]
        _, _, scored = served.direct(lines, index=0, seed=3)
        assert scored.reward.total == pytest.approx(1.0)
        assert total(results) == pytest.approx(scored.reward.total, abs=1e-12)


def test_a_policy_that_stops_without_an_answer_is_scored(served: Served) -> None:
    with served.session() as client:
        client.reset(index=0)
        first = client.step({"line": "undefined"})
        last = client.step({"line": "", "end": True})
    assert last.done
    assert last.metadata["stop"] == "eos"
    assert (first.reward, last.reward) == (-0.1, pytest.approx(-0.6))


class Undecided:
    async def grade(self, task_spec: str, problem: rr.Problem, submission: str) -> rr.Verdict:
        return rr.Verdict(kind=rr.VerdictKind.UNDECIDED, method="deadline")


def test_what_could_not_be_judged_has_no_reward(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer: Any = served.env.scorer
    monkeypatch.setattr(served.env, "scorer", dataclasses.replace(scorer, judge=Undecided()))
    *_, first, last = play(served, ["undefined", "submit_final_answer(1)"])
    assert (first.reward, first.done) == (-0.1, False)
    assert (last.reward, last.done) == (None, True)
    assert last.metadata["outcome_reward"] is None
    assert last.metadata["verdict"]["kind"] == "undecided"
    assert last.metadata["verdict"]["method"] == "deadline"


def test_sessions_share_no_state(served: Served) -> None:
    with served.session() as one, served.session() as other:
        one.reset(index=0, seed=1)
        other.reset(index=0, seed=1)
        one.step({"line": "x1 = 1"})
        assert other.step({"line": "x1"}).metadata["outcome"] == "name_error"
        assert one.step({"line": "x1"}).observation["text"] == "1\n>>>"
        assert served.num_kernels == 2


def test_the_same_seed_problem_and_lines_print_the_same(served: Served) -> None:
    lines = ["import random", "random.random()", "hash('x')", "list({'a', 'b', 'c'})"]
    texts = [[one.observation["text"] for one in play(served, lines, seed=9)] for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0][2] != play(served, lines, seed=10)[2].observation["text"]


def test_a_seed_alone_chooses_a_problem(served: Served) -> None:
    with served.session() as client:
        found = [client.reset(seed=seed).metadata["index"] for seed in (0, 7, 27)]
        assert found == [0, 7, 7]  # of 20 problems
        assert client.reset().metadata["index"] == 0


def test_a_line_that_is_too_long_is_cut_and_ends_the_episode(served: Served) -> None:
    *_, last = play(served, ["x = " + "1" * 1000])
    assert last.done
    assert last.metadata["outcome"] == "cut"
    assert last.metadata["stop"] == "max_line_tokens"


def test_a_line_that_was_read_as_a_number_is_a_line(served: Served) -> None:
    with served.session() as client:
        client.reset(index=0)
        assert client.step({"line": 5}).observation["text"] == "5\n>>>"


# What the other side does wrong


def refusal(client: Any, **action: Any) -> str:
    with pytest.raises(RuntimeError) as error:
        client.step(action)
    return str(error.value)


def test_a_step_without_an_episode_is_refused(served: Served) -> None:
    with served.session() as client:
        assert "expected a reset before the first step" in refusal(client, line="1")
        client.reset(index=0)
        client.step({"line": "submit_final_answer(1)"})
        assert "the episode has ended (submitted); expected a reset" in refusal(client, line="1")
        assert served.all_kernels_are_freed()  # with the episode, not with the session
        assert client.reset(index=1).observation["text"].endswith(">>>")


def test_what_is_no_line_is_refused_and_the_episode_goes_on(served: Served) -> None:
    with served.session() as client:
        client.reset(index=0)
        client.step({"line": "x = 1"})
        assert "'y = 2\\nz = 3' holds a newline; expected one line" in refusal(
            client, line="y = 2\nz = 3"
        )
        assert "'\\ud800' holds a surrogate without its other half; expected text" in refusal(
            client, line="\ud800"
        )
        assert "VALIDATION_ERROR" in refusal(client, code="1")
        assert "VALIDATION_ERROR" in refusal(client, line=None)
        assert client.step({"line": "x"}).observation["text"] == "1\n>>>"
        assert client.state()["step_count"] == 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"split": "test"}, "there is no split 'test'; expected one of train, held_out"),
        ({"index": 20}, "there is no problem 20 in the split 'train', which has 20"),
        ({"index": -1}, "index = -1; expected a whole number from 0 on"),
        ({"index": "1"}, "index = '1'; expected a whole number from 0 on"),
        ({"seed": "x"}, "reset of seed 'x', {}; expected a number"),
        ({"problem": 1}, "reset of seed None, {'problem': 1}; expected a number, split, index"),
    ],
)
def test_a_problem_that_there_is_not_is_refused(
    served: Served, asked: dict[str, Any], message: str
) -> None:
    with served.session() as client:
        with pytest.raises(RuntimeError) as error:
            client.reset(**asked)
        assert message in str(error.value)
        assert served.num_kernels == 0


def test_a_refused_reset_leaves_the_episode_as_it_was(served: Served) -> None:
    with served.session() as client:
        client.reset(index=0)
        client.step({"line": "x = 1"})
        for asked in ({"index": 20}, {"split": "test"}, {"seed": "x"}):
            with pytest.raises(RuntimeError, match="expected"):
                client.reset(**asked)
        assert client.step({"line": "x"}).observation["text"] == "1\n>>>"


def test_a_client_that_goes_away_gives_its_kernel_back(served: Served) -> None:
    with served.session() as client:
        client.reset(index=0)
        client.step({"line": "x = 1"})
        assert served.num_kernels == 1
        client._loop.call_soon_threadsafe(client._async._ws.transport.abort)
    assert served.all_kernels_are_freed()


def test_a_session_without_lines_gives_its_kernel_back_and_may_begin_again(served: Served) -> None:
    """A line of this session takes longer than it may be idle."""
    environment = served.environment(idle_s=2.0)
    environment.reset(index=0)
    assert environment.step(LineAction(line="import time; time.sleep(2.5); 2")).text == "2\n>>>"
    assert served.num_kernels == 1
    assert served.all_kernels_are_freed()
    with pytest.raises(rr.ConfigError, match=r"it had no line for 2 s; expected a reset"):
        environment.step(LineAction(line="1"))
    assert environment.reset(index=0).text.endswith(">>>")
    environment.close()
    assert served.num_kernels == 0


def test_a_thread_waits_no_longer_than_a_deadline(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = served.environment()
    environment.reset(index=0)
    monkeypatch.setattr("repl_rl.integrations.openenv._WAIT_S", 0.2)
    with pytest.raises(TimeoutError):
        environment.step(LineAction(line="sum(range(10**12))"))
    assert served.all_kernels_are_freed()


def test_one_session_too_many_is_refused(served: Served) -> None:
    with served.session() as one, served.session() as two, served.session() as three:
        for client in (one, two, three):
            client.reset(index=0)
        with served.session() as four, served.session() as five:
            four.reset(index=0)
            with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
                five.reset(index=0)


def test_two_steps_at_once_are_refused(served: Served) -> None:
    environment = served.environment()

    async def both() -> list[Any]:
        await environment.reset_async(index=0)
        line = LineAction(line="sum(range(10**6))")
        steps = (environment.step_async(line) for _ in range(2))
        return await asyncio.gather(*steps, return_exceptions=True)

    first, second = served.run(both())
    assert first.text == "499999500000\n>>>"
    assert isinstance(second, rr.ConfigError)
    assert "one at a time in a session" in str(second)
    environment.close()
    assert served.num_kernels == 0


def test_a_step_that_is_called_off_gives_the_kernel_back(served: Served) -> None:
    environment = served.environment()

    async def call_off() -> None:
        await environment.reset_async(index=0)
        step = asyncio.create_task(environment.step_async(LineAction(line="sum(range(10**12))")))
        await asyncio.sleep(0.2)
        step.cancel()
        await asyncio.wait([step])
        assert step.cancelled()

    served.run(call_off())
    assert served.num_kernels == 0
    with pytest.raises(rr.ConfigError, match="expected a reset"):
        environment.step(LineAction(line="1"))


def test_other_threads_may_use_it_and_the_event_loop_is_told_how(served: Served) -> None:
    environment = served.environment()
    assert environment.reset(index=0).text.endswith(">>>")
    assert environment.step(LineAction(line="6 * 7")).text == "42\n>>>"

    async def inside() -> None:
        with pytest.raises(rr.ConfigError, match="expected reset_async, step_async"):
            environment.step(LineAction(line="1"))
        environment.close()

    served.run(inside())
    assert holds(lambda: served.num_kernels == 0)
