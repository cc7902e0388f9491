"""Trajectories with claims run again, branch and are shown, and a foreign file claims nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from nbclient import NotebookClient

from fixture_types import MakeScene, MakeScored, MakeTrajectory, Store
from repl_rl.config import SamplingConfig
from repl_rl.credit.ledger import ledgers
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.replay.annotated import Annotated, read
from repl_rl.replay.branch import as_trajectory
from repl_rl.replay.execute import Rerun, rerun
from repl_rl.replay.live import Live
from repl_rl.replay.notebook import to_notebook
from repl_rl.replay.page import details_of
from repl_rl.rollout.builder import check_trajectory
from repl_rl.rollout.kernels import kernel_for
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.format import PYTHON, SUBMIT_STUB, Prompt, problem_sources
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.types import (
    Attempt,
    Claim,
    JudgedLemma,
    Lemma,
    OutcomeKind,
    Problem,
    Scored,
    Verdict,
    VerdictKind,
)
from repl_sandbox.fake import FakeKernels
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Execution, KernelSource

PROBLEM = Problem(
    id="p",
    statement="Find c",
    setup=("n = 85",),
    lemmas=(Lemma(name="a"), Lemma(name="b", uses=("a",))),
)
LINES = (
    " n\n",
    ' have("a", n + 1)\n',
    " _\n",
    ' have("a", 3)\n',
    ' have("b", undefined)\n',
    ' have("b", object())\n',
    " submit_final_answer(n)\n",
)
KINDS = [
    "ok_output",
    "claimed",
    "ok_output",
    "runtime_error",
    "name_error",
    "claimed",
    "submitted",
]


def saying(value: str) -> Execution:
    return Execution(status=ExecStatus.OK, value=value)


FAKES = {"x": saying("[1]"), "y": saying("2"), "z": saying("3")}
THREE = (' have("a", x)\n', ' have("b", y)\n', " submit_final_answer(z)\n")


async def recorded(lines: Sequence[str], kernels: KernelSource, make_scored: MakeScored) -> Scored:
    codec = ByteCodec()
    sampler = LineSampler(
        ScriptedEngine(codec, script(*lines)), codec, PYTHON, SamplingConfig(), context_tokens=10**5
    )
    attempt = Attempt(problem=PROBLEM, group_index=0, sibling_index=0, seed=7)
    async with aclosing(await kernel_for(PROBLEM, kernels, seed=7)) as kernel:
        trajectory = await sampler.sample(attempt, Prompt.plain(">>>"), kernel)
    return replace(make_scored(trajectory, 1.0), problem=PROBLEM)


@pytest.mark.kernel
def test_claims_run_again_with_the_same_values_and_bindings(
    replay_loop: asyncio.Runner,
    real_kernels: KernelPool,
    make_scored: MakeScored,
    stored: Store,
    a_scene: MakeScene,
) -> None:
    async def run() -> tuple[Scored, Rerun]:
        scored = await recorded(LINES, real_kernels, make_scored)
        (place,) = stored(scored)
        return scored, await rerun(place, a_scene(), real_kernels)

    scored, found = replay_loop.run(run())
    assert [str(line.outcome.kind) for line in scored.trajectory.lines] == KINDS
    assert [(claim.line, claim.name) for claim in scored.trajectory.claims] == [(1, "a"), (5, "b")]
    assert scored.trajectory.claims[0].value == "86"
    assert (found.mismatches, found.num_lines) == ((), 7)


@pytest.mark.kernel
@pytest.mark.usefixtures("quiet_home")
def test_a_notebook_shows_claims_and_runs_again_as_it_was_recorded(
    replay_loop: asyncio.Runner, real_kernels: KernelPool, make_scored: MakeScored
) -> None:
    lines = [line.replace("object()", "_") for line in LINES]  # addresses differ
    scored = replay_loop.run(recorded(lines, real_kernels, make_scored))
    notebook: Any = notebook_of(scored)
    again: Any = notebook_of(scored)
    NotebookClient(again, timeout=60).execute()
    shown = [cell.get("outputs") for cell in notebook.cells]
    assert [cell.get("outputs") for cell in again.cells] == shown
    assert [out[0]["text"] for out in shown if out][:3] == ["85\n", "86\n", "85\n"]


def annotated(scored: Scored) -> Annotated:
    advantages_T = [0.5 * is_sampled for is_sampled in scored.trajectory.loss_mask]
    [ledger] = ledgers([scored], [advantages_T])
    return Annotated(id="step-000000:1", ledger=ledger, siblings=("step-000000:1",))


def notebook_of(scored: Scored) -> object:
    setup = ("from sympy import *", SUBMIT_STUB, *problem_sources(PROBLEM))
    return to_notebook(annotated(scored), setup=setup)


# Fakes

Beside = Callable[..., Any]


@pytest.fixture
def beside(make_scored: MakeScored, a_scene: MakeScene) -> Beside:
    """`beside(act, answers)`: what `act(live)` returns beside the record of THREE."""

    def run(act: Callable[[Live], Any], answers: Any = FAKES) -> Any:
        async def inside() -> Any:
            scored = await recorded(THREE, FakeKernels(FAKES), make_scored)
            async with Live(scored, a_scene(), FakeKernels(answers)) as live:
                return await act(live)

        return asyncio.run(inside())

    return run


async def to_the_end(live: Live) -> None:
    await live.run_to(lambda _: False)


CLAIMS = (Claim(line=0, name="a", value="[1]"), Claim(line=1, name="b", value="2"))


def test_a_claim_of_another_value_is_a_difference_that_shows_both(
    make_scored: MakeScored, stored: Store, a_scene: MakeScene
) -> None:
    async def run() -> Rerun:
        (place,) = stored(await recorded(THREE, FakeKernels(FAKES), make_scored))
        return await rerun(place, a_scene(), FakeKernels({**FAKES, "y": saying("5")}))

    found = asyncio.run(run()).divergence
    assert found is not None
    assert (found.line.index, found.difference.recorded, found.difference.live) == (1, "2\n", "5\n")


def test_lines_that_ran_again_hold_what_they_claimed(beside: Beside) -> None:
    async def act(live: Live) -> object:
        await to_the_end(live)
        return live.claims, [line.value for line in live.lines]

    assert beside(act) == (CLAIMS, ["[1]", "2", "3"])


def test_going_back_takes_claims_back(beside: Beside) -> None:
    async def act(live: Live) -> object:
        await to_the_end(live)
        await live.back(1)
        before = live.claims
        await to_the_end(live)
        return before, live.claims

    assert beside(act) == (CLAIMS[:1], CLAIMS)


def test_a_branch_holds_the_claims_of_its_lines(beside: Beside) -> None:
    async def act(live: Live) -> object:
        await live.next()
        await live.edit("# hm")
        await live.edit('have("a", y)')
        await live.edit('have("b", z)')
        return as_trajectory(live)

    trajectory = beside(act)
    check_trajectory(trajectory, maker="a branch")
    assert [str(line.outcome.kind) for line in trajectory.lines] == [
        "claimed",
        "comment",
        "ok_silent",  # the fake has no stub, and the name is taken
        "claimed",
    ]
    assert trajectory.claims == (CLAIMS[0], Claim(line=3, name="b", value="3"))


def test_a_page_lists_every_lemma_with_its_claim_and_what_became_of_it(
    make_scored: MakeScored,
) -> None:
    scored = asyncio.run(recorded(THREE[:1], FakeKernels(FAKES), make_scored))
    lemmas = (JudgedLemma(name="a", line=0, kind=VerdictKind.WRONG), JudgedLemma(name="b"))
    judged = replace(scored, verdict=Verdict(kind=VerdictKind.WRONG, lemmas=lemmas))
    assert details_of(annotated(judged))["lemmas"] == [
        {"name": "a", "word": "wrong", "line": 1, "value": "[1]"},
        {"name": "b", "word": "", "line": None, "value": None},
    ]


# Files from elsewhere


def spoiled(**fields: Any) -> Callable[[Scored], Scored]:
    return lambda scored: replace(scored, trajectory=replace(scored.trajectory, **fields))


def judging(*lemmas: JudgedLemma) -> Callable[[Scored], Scored]:
    return lambda scored: replace(scored, verdict=Verdict(kind=VerdictKind.WRONG, lemmas=lemmas))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoiled(claims=()), "claims that disagree with its lines"),
        (spoiled(claims=CLAIMS[:1]), "claims that disagree with its lines"),
        (spoiled(claims=(*CLAIMS, CLAIMS[1])), "claims that disagree with its lines"),
        (spoiled(claims=(CLAIMS[0], replace(CLAIMS[1], line=99))), "claims that disagree"),
        (spoiled(claims=(CLAIMS[0], replace(CLAIMS[1], line=-1))), "claims that disagree"),
        (spoiled(claims=(CLAIMS[0], replace(CLAIMS[1], name="z"))), "claims that are not of its"),
        (spoiled(claims=(CLAIMS[0], replace(CLAIMS[1], name="a"))), "claims that are not of its"),
        (judging(JudgedLemma(name="a", line=99)), "a verdict on lemmas that its lines did not"),
        (judging(JudgedLemma(name="a", line=1)), "a verdict on lemmas that its lines did not"),
        (judging(JudgedLemma(name="a", line=-1)), "a verdict on lemmas that its lines did not"),
        (judging(JudgedLemma(name="z")), "a verdict on lemmas that its lines did not claim"),
        (judging(*[JudgedLemma(name="a")] * 9), "a verdict on lemmas that its lines did not"),
    ],
)
def test_claims_that_do_not_fit_their_trajectory_are_refused(
    spoil: Callable[[Scored], Scored], message: str, make_scored: MakeScored, stored: Store
) -> None:
    (place,) = stored(spoil(asyncio.run(recorded(THREE, FakeKernels(FAKES), make_scored))))
    with pytest.raises(ConfigError, match=f"is a trajectory with {message}"):
        read(place)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ('"chance":1e9', "has the chance 1000000000.0; expected 0 to 0.9"),
        ('"chance":-1', "has the chance -1.0; expected 0 to 0.9"),
        (
            '"lemmas":[' + ",".join(f'{{"name":"{i}"}}' for i in range(5000)) + "]",
            "has 5,000 lemmas; expected at most 64",
        ),
        ('"lemmas":[{"name":"a"},{"name":"a"}]', "has two lemmas of one name"),
    ],
)
def test_a_problem_that_makes_no_sense_is_a_short_error_of_its_file(
    problem: str,
    message: str,
    make_trajectory: MakeTrajectory,
    make_scored: MakeScored,
    stored: Store,
) -> None:
    scored = make_scored(make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)]), 1.0)
    (place,) = stored(scored)
    text = place.path.read_text()
    key = problem.partition(":")[0]
    old = {'"chance"': '"chance":0.0', '"lemmas"': '"lemmas":[]'}[key]
    assert old in text
    at = text.index('"problem":{')
    place.path.write_text(text[:at] + text[at:].replace(old, problem, 1))
    with pytest.raises(ConfigError) as refused:
        place.read()
    assert message in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "setup", [tuple(f"x = {i}" for i in range(5000)), ("x = '" + "a" * 10**6 + "'",)]
)
def test_bindings_without_end_are_refused_before_a_kernel_runs_them(
    setup: tuple[str, ...], make_scored: MakeScored, a_scene: MakeScene
) -> None:
    async def run() -> None:
        scored = await recorded(THREE, FakeKernels(FAKES), make_scored)
        kernels = FakeKernels(FAKES)
        hostile = replace(scored, problem=replace(PROBLEM, setup=setup))
        with pytest.raises(ConfigError, match="the problem of this trajectory has kernels run"):
            await Live(hostile, a_scene(), kernels).start()
        assert kernels.kernels[0].sources == []

    asyncio.run(run())
