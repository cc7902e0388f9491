"""Laws of `have(name, value)` in a session: each lemma once, in silence; nothing else claims."""

from __future__ import annotations

import asyncio

import pytest

from repl_rl.rollout.session import Session
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import HAVE_STUB, PYTHON, TranscriptFormat
from repl_rl.types import Lemma, LineOutcome
from repl_sandbox.fake import FakeKernel
from repl_sandbox.types import ExecStatus, Execution

LEMMAS = (Lemma(name="a"), Lemma(name="b", uses=("a",)))
ANSWERS = {
    "x": Execution(status=ExecStatus.OK, value="[2]", wall_ms=3.0, cpu_ms=2.0),
    "y": Execution(status=ExecStatus.ERROR, output="NameError: y\n", error_type="NameError"),
    "slow": Execution(status=ExecStatus.TIMEOUT, output="KeyboardInterrupt\n"),
    "bent": Execution(status=ExecStatus.OK, output="2\n"),
    "def f():": Execution(status=ExecStatus.INCOMPLETE),
}


def refuse(source: str) -> Execution:
    """A kernel in which `have` is the stub, which always raises."""
    if source in ANSWERS:
        return ANSWERS[source]
    if "have(" in source:
        return Execution(status=ExecStatus.ERROR, output="E\n", error_type="RuntimeError")
    return Execution(status=ExecStatus.OK, value=source)


def run(
    *lines: str, lemmas: tuple[Lemma, ...] = LEMMAS, fmt: TranscriptFormat = PYTHON
) -> tuple[Session, list[LineOutcome], FakeKernel]:
    kernel = FakeKernel(refuse)
    session = Session(kernel, fmt, lemmas=lemmas)

    async def all_of_them() -> list[LineOutcome]:
        return [await session.run(line) for line in lines]

    return session, asyncio.run(all_of_them()), kernel


def kinds(*lines: str, lemmas: tuple[Lemma, ...] = LEMMAS) -> list[str]:
    return [str(outcome.kind) for outcome in run(*lines, lemmas=lemmas)[1]]


def test_a_claim_hands_over_its_value_and_shows_nothing() -> None:
    session, (outcome,), kernel = run('have("a", x)')
    assert session.claims == {"a": "[2]"}
    assert (str(outcome.kind), outcome.observation) == ("claimed", "")
    assert (outcome.wall_ms, outcome.cpu_ms) == (3.0, 2.0)
    assert kernel.sources == ["x"]


def test_a_claim_ends_nothing() -> None:
    session, _, _ = run('have("a", x)', 'have("b", x)')
    assert session.submission is None
    assert list(session.claims) == ["a", "b"]


def test_the_first_claim_of_a_name_counts_and_the_second_runs_the_stub() -> None:
    session, (_, again), kernel = run('have("a", 1)', 'have("a", 2)')
    assert session.claims == {"a": "1"}
    assert (str(again.kind), again.observation) == ("runtime_error", "E\n")
    assert kernel.sources == ["1", 'have("a", 2)']


@pytest.mark.parametrize("value", ["y", "slow", "bent"])
def test_a_value_that_was_not_handed_over_claims_nothing_and_leaves_the_name_free(
    value: str,
) -> None:
    session, (failed, then), _ = run(f'have("a", {value})', 'have("a", 3)')
    expected = {"y": "name_error", "slow": "timeout", "bent": "runtime_error"}
    assert (str(failed.kind), str(then.kind)) == (expected[value], "claimed")
    assert session.claims == {"a": "3"}


@pytest.mark.parametrize("line", ['have("c", 1)', 'have("", 1)', "have(a, 1)", "have()"])
def test_a_name_that_is_no_lemma_runs_the_stub(line: str) -> None:
    session, (outcome,), kernel = run(line)
    assert (session.claims, str(outcome.kind)) == ({}, "runtime_error")
    assert kernel.sources == [line]


def test_a_line_that_does_not_compile_claims_nothing() -> None:
    assert kinds('have("a", (yield))', 'have("a", 1') == ["syntax_error", "incomplete"]


def test_inside_an_open_statement_a_claim_is_a_line_of_it() -> None:
    session, outcomes, _ = run("def f():", '    have("a", 1)', 'have("a", 1)')
    assert session.claims == {}
    assert [str(outcome.kind) for outcome in outcomes][:2] == ["incomplete", "incomplete"]


def test_without_lemmas_the_kernel_runs_a_claim_as_it_stands() -> None:
    session, _, kernel = run('have("a", 1)', lemmas=())
    assert (session.claims, kernel.sources) == ({}, ['have("a", 1)'])


def test_a_claim_is_a_statement_with_a_number() -> None:
    session, (outcome,), _ = run('have("a", x)', fmt=IPYTHON)
    session.advance(outcome.kind)
    assert session.show("", outcome.kind).endswith(":")
    assert session.number == 2


def test_the_stub_raises_and_says_how_a_claim_is_written() -> None:
    namespace: dict[str, object] = {}
    exec(HAVE_STUB, namespace)
    with pytest.raises(RuntimeError, match=r"write have\('name', value\) alone on a line, once"):
        exec("have('a', 1)", namespace)
