"""Meaning of a source to the kernel: complete or not, ok or an error. See also test_fidelity."""

import re

import pytest

from kernel_uses import RunAll, WithKernel
from repl_sandbox.host.supervisor import SupervisedKernel
from repl_sandbox.types import ExecStatus, Execution

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("source", ["exit()", "import sys; sys.exit(1)", "raise SystemExit"])
def test_an_exit_is_an_error_and_the_kernel_stays(run_all: RunAll, source: str) -> None:
    first, second = run_all(source, "1 + 1")
    assert (first.status, first.error_type) == (ExecStatus.ERROR, "SystemExit")
    assert second.output == "2\n"


def test_output_that_a_line_holds_back_is_shown_with_that_line(run_all: RunAll) -> None:
    _, held, after = run_all(
        "import sys", "sys.stdout.reconfigure(write_through=False); print('a')", "print('b')"
    )
    assert (held.output, after.output) == ("a\n", "b\n")


INCOMPLETE = (
    "for i in range(3): print(i)",
    "if x:",
    "if x:\n    y = 1",
    "(1,",
    "'''a",
    "1 + \\",
    "@decorator",
    "def f():\n    # comment",
    "try:\n    pass\nexcept E: pass",
)


def test_an_unfinished_statement_is_incomplete(run_all: RunAll) -> None:
    statuses = {execution.status for execution in run_all(*INCOMPLETE)}
    assert statuses == {ExecStatus.INCOMPLETE}


def test_nothing_of_an_incomplete_source_runs_and_nothing_is_kept(run_all: RunAll) -> None:
    _, incomplete, after = run_all("n = 0", "n += 1\nprint(n)\nif n:", "n")
    assert (incomplete.status, incomplete.output) == (ExecStatus.INCOMPLETE, "")
    assert after.output == "0\n"


def test_an_incomplete_future_import_changes_nothing(run_all: RunAll) -> None:
    outputs = run_all(
        "from __future__ import annotations\nif 1:",
        "def f(a: missing): pass\n",
    )
    assert outputs[1].error_type == "NameError"


def test_statements_of_one_source_run_once_and_in_order_past_an_error(run_all: RunAll) -> None:
    (execution,) = run_all("a = 1\nprint(a)\n1/0\nb\nprint(a + 1)")
    assert execution.error_type == "ZeroDivisionError"
    assert re.findall(r"^(?:\d|\w+Error)", execution.output, re.M) == [
        "1",
        "ZeroDivisionError",
        "NameError",
        "2",
    ]


@pytest.mark.parametrize("source", ["(\n" * 70, "x = (" + "1 + " * 1200])
def test_a_source_over_the_cap_is_run_as_it_is(run_all: RunAll, source: str) -> None:
    (execution,) = run_all(source)
    assert (execution.status, execution.error_type) == (ExecStatus.ERROR, "SyntaxError")


def test_comments_and_blank_lines_are_silent(run_all: RunAll) -> None:
    for execution in run_all("", "# comment", "\n\n", "   # indented"):
        assert (execution.status, execution.output) == (ExecStatus.OK, "")


def test_sources_that_cannot_be_text_are_syntax_errors_or_value_errors(run_all: RunAll) -> None:
    for execution in run_all("x = '\0'", "x = '\ud800'", "(" * 3000 + ")" * 3000):
        assert execution.status is ExecStatus.ERROR


def test_evaluate_hands_over_the_repr(with_kernel: WithKernel) -> None:
    async def use(kernel: SupervisedKernel) -> tuple[Execution, Execution]:
        await kernel.run("x = 3")
        return await kernel.evaluate(" [x, 'a']"), await kernel.evaluate("x +")

    good, bad = with_kernel(use)
    assert (good.status, good.value, good.output) == (ExecStatus.OK, "[3, 'a']", "")
    assert (bad.status, bad.value, bad.error_type) == (ExecStatus.ERROR, None, "SyntaxError")


def test_evaluate_refuses_a_value_that_is_too_long(with_kernel: WithKernel) -> None:
    execution = with_kernel(lambda kernel: kernel.evaluate("'a' * 5000"))
    assert (execution.value, execution.error_type) == (None, "OutputLimit")


def test_a_value_is_rendered_as_output_is(with_kernel: WithKernel) -> None:
    """A repr is what a class of the policy says: it must fit into a file and on a screen."""

    async def use(kernel: SupervisedKernel) -> Execution:
        await kernel.run(
            "class A:\n    def __repr__(self): return chr(0xd800) + chr(27) + '[31mx'\n"
        )
        return await kernel.evaluate("A()")

    execution = with_kernel(use)
    assert (execution.status, execution.value) == (ExecStatus.OK, "\ufffdx")
