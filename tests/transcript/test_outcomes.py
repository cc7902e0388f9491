"""Laws of naming what became of a line."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from repl_rl.records import OutcomeKind, StopReason, Tone
from repl_rl.transcript.outcomes import (
    comment_kind,
    executed_kind,
    statement_key,
    submitted_expression,
)
from repl_sandbox.statements import Syntax
from repl_sandbox.types import ExecStatus, Execution


def kind_of(
    source: str,
    execution: Execution,
    history: Iterable[tuple[str, str]] = (),
    *,
    syntax: Syntax = Syntax.WHOLE,
) -> OutcomeKind:
    return executed_kind(source, execution, set(history), syntax=syntax)


def failed(error_type: str | None) -> Execution:
    return Execution(status=ExecStatus.ERROR, output="E\n", error_type=error_type)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (ExecStatus.TIMEOUT, OutcomeKind.TIMEOUT),
        (ExecStatus.KILLED, OutcomeKind.KILLED),
        (ExecStatus.DIED, OutcomeKind.DIED),
        (ExecStatus.OK, OutcomeKind.OK_SILENT),
    ],
)
def test_what_was_observed_from_outside_decides(status: ExecStatus, kind: OutcomeKind) -> None:
    assert kind_of("x", Execution(status=status)) is kind


@pytest.mark.parametrize(
    ("error_type", "kind"),
    [
        ("NameError", OutcomeKind.NAME_ERROR),
        ("UnboundLocalError", OutcomeKind.NAME_ERROR),
        ("MemoryError", OutcomeKind.MEMORY),
        ("OutputLimit", OutcomeKind.OUTPUT_LIMIT),
        ("ZeroDivisionError", OutcomeKind.RUNTIME_ERROR),
        ("MyError", OutcomeKind.RUNTIME_ERROR),
        (None, OutcomeKind.RUNTIME_ERROR),
    ],
)
def test_an_exception_is_named_by_its_class(error_type: str | None, kind: OutcomeKind) -> None:
    assert kind_of("x", failed(error_type)) is kind


SAID = [
    Execution(status=ExecStatus.OK),
    Execution(status=ExecStatus.OK, output="1\n"),
    Execution(status=ExecStatus.INCOMPLETE),
    *map(failed, ["SyntaxError", "TabError", "NameError", "MemoryError", None]),
]


@pytest.mark.parametrize("execution", SAID)
@pytest.mark.parametrize(
    ("syntax", "kind"),
    [(Syntax.BROKEN, OutcomeKind.SYNTAX_ERROR), (Syntax.OPEN, OutcomeKind.INCOMPLETE)],
)
def test_what_does_not_compile_is_so_whatever_the_kernel_says(
    syntax: Syntax, kind: OutcomeKind, execution: Execution
) -> None:
    assert kind_of("x", execution, [(statement_key("x"), "1\n")], syntax=syntax) is kind


@pytest.mark.parametrize(
    "execution",
    [Execution(status=ExecStatus.INCOMPLETE), *map(failed, ["SyntaxError", "TabError"])],
)
def test_what_compiles_is_neither_a_syntax_error_nor_open(execution: Execution) -> None:
    """The code that it ran raised that, or the kernel lies."""
    assert kind_of("x", execution) is OutcomeKind.RUNTIME_ERROR


@pytest.mark.parametrize(
    ("source", "error_type", "kind"),
    [
        ("exec('1+')", "SyntaxError", OutcomeKind.SYNTAX_ERROR),
        ("y = eval(text)", "IndentationError", OutcomeKind.SYNTAX_ERROR),
        ("code = compile('x = = 1', '', 'exec')", "SyntaxError", OutcomeKind.SYNTAX_ERROR),
        ("if x:\n    exec(s)\n", "TabError", OutcomeKind.SYNTAX_ERROR),
        ("exec('nothing')", "NameError", OutcomeKind.NAME_ERROR),
        ("exec('1/0')", "ZeroDivisionError", OutcomeKind.RUNTIME_ERROR),
        ("parse_expr('1+')", "SyntaxError", OutcomeKind.RUNTIME_ERROR),
        ("raise SyntaxError", "SyntaxError", OutcomeKind.RUNTIME_ERROR),
    ],
)
def test_a_text_that_is_run_costs_what_it_would_cost_as_a_line(
    source: str, error_type: str, kind: OutcomeKind
) -> None:
    assert kind_of(source, failed(error_type)) is kind


@pytest.mark.parametrize(
    ("execution", "kind"),
    [
        (Execution(status=ExecStatus.INCOMPLETE), OutcomeKind.INCOMPLETE),
        (failed("SyntaxError"), OutcomeKind.SYNTAX_ERROR),
        (failed("IndentationError"), OutcomeKind.SYNTAX_ERROR),
        (failed("RecursionError"), OutcomeKind.RUNTIME_ERROR),
        (failed("MemoryError"), OutcomeKind.MEMORY),
    ],
)
def test_where_nobody_else_knows_the_kernel_is_believed(
    execution: Execution, kind: OutcomeKind
) -> None:
    assert kind_of("x", execution, syntax=Syntax.UNKNOWN) is kind


def test_output_tells_a_silent_line_from_a_speaking_one() -> None:
    spoke = Execution(status=ExecStatus.OK, output="1\n")
    assert kind_of("x", spoke) is OutcomeKind.OK_OUTPUT


@pytest.mark.parametrize(
    ("source", "output", "kind"),
    [
        ("f(x)", "1\n", OutcomeKind.DUPLICATE),
        ("f(x) ", "1\n", OutcomeKind.DUPLICATE),
        ("f( x )  # again", "1\n", OutcomeKind.DUPLICATE),
        ("(f(x))", "1\n", OutcomeKind.DUPLICATE),
        ("f(x)", "2\n", OutcomeKind.OK_OUTPUT),
        ("f(y)", "1\n", OutcomeKind.OK_OUTPUT),
        ("f('x')", "1\n", OutcomeKind.OK_OUTPUT),
    ],
)
def test_a_duplicate_says_the_same_and_has_the_same_output(
    source: str, output: str, kind: OutcomeKind
) -> None:
    history = [(statement_key("f(x)"), "1\n")]
    assert kind_of(source, Execution(status=ExecStatus.OK, output=output), history) is kind


def test_a_source_that_is_too_long_to_parse_is_its_own_key() -> None:
    assert statement_key("x" * 2001) == "x" * 2001
    assert statement_key("x = = 1") == "x = = 1"


@pytest.mark.parametrize("source", [f"{'-' * 1900}1", f"1{'+1' * 980}", f"x{'.a' * 980}"])
def test_a_source_that_is_nested_deeply_has_a_key(source: str) -> None:
    assert statement_key(source) == statement_key(source)
    assert statement_key(source) != statement_key(source[1:])


def test_every_kind_comes_of_a_text_an_execution_or_the_loop() -> None:
    """The loop alone knows of a line without a newline, and of values that were handed over."""
    kind = OutcomeKind
    errors = ["NameError", "MemoryError", "OutputLimit", "KeyError"]
    executions = [Execution(status=status) for status in ExecStatus] + [*map(failed, errors)]
    executions.append(Execution(status=ExecStatus.OK, output="1\n"))
    found = {comment_kind(source) for source in ("", "# so", "# >>> x")}
    found |= {kind_of("x", execution) for execution in executions}
    found.add(kind_of("x", executions[-1], {(statement_key("x"), "1\n")}))
    found |= {kind_of("x", executions[0], syntax=syntax) for syntax in Syntax}
    found.add(kind_of("submit_final_answer()", failed("RuntimeError")))
    assert found == set(kind) - {kind.CUT, kind.SUBMITTED}


@pytest.mark.parametrize(
    "source",
    ["import math", "from sympy import *", "pass", "y = f(x)", "a, b = 1, 2", "a = b = []"],
)
def test_a_silent_line_that_can_change_nothing_again_is_a_duplicate(source: str) -> None:
    silent = Execution(status=ExecStatus.OK)
    assert kind_of(source, silent, {(statement_key(source), "")}) is OutcomeKind.DUPLICATE


@pytest.mark.parametrize(
    "source",
    [
        "i += 1",
        "x = x - f(x)/g(x)",
        "a, b = b, a % b",
        "a.append(1)",
        "a[i] = a[i] + 1",
        "del a[0]",
    ],
)
def test_a_step_taken_twice_is_no_duplicate(source: str) -> None:
    silent = Execution(status=ExecStatus.OK)
    assert kind_of(source, silent, {(statement_key(source), "")}) is OutcomeKind.OK_SILENT


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("", OutcomeKind.BLANK),
        ("  \n", OutcomeKind.BLANK),
        ("# so", OutcomeKind.COMMENT),
        ("# >>> solve(x)", OutcomeKind.FAKE_OUTPUT),
    ],
)
def test_a_thought_is_blank_a_comment_or_a_fake(source: str, kind: OutcomeKind) -> None:
    assert comment_kind(source) is kind


@pytest.mark.parametrize(
    ("source", "expression"),
    [
        ("submit_final_answer(1)", "1"),
        ("submit_final_answer(solve(x**2 - 4, x))", "solve(x**2 - 4, x)"),
        ("submit_final_answer('a, b')", "'a, b'"),
        ("submit_final_answer(\u00e9)", "\u00e9"),
        ("submit_final_answer()", None),
        ("submit_final_answer(1, 2)", "(1, 2)"),
        ("submit_final_answer(sol_x1, sol_x2, sol_x3)", "(sol_x1, sol_x2, sol_x3)"),
        ("submit_final_answer((1, 2), 3,)", "((1, 2), 3)"),
        ("submit_final_answer(y := 1, lambda: 2, 'a, b')", "((y := 1), lambda: 2, 'a, b')"),
        ("submit_final_answer(1, *a)", None),
        ("submit_final_answer(*a, 1)", None),
        ("submit_final_answer(1, a=2)", None),
        ("submit_final_answer(1, **a)", None),
        ("a = submit_final_answer(1, 2)", None),
        ("submit_final_answer(a=1)", None),
        ("submit_final_answer(*a)", None),
        ("y = submit_final_answer(1)", None),
        ("submit_final_answer(1) + 1", None),
        ("submit_final_answer(1)\nsubmit_final_answer(2)", None),
        ("def f(): submit_final_answer(1)", None),
        ("# submit_final_answer(1)", None),
        ("submit_final_answer(1", None),
        ("submit_final_answer", None),
        ("x", None),
        ("submit_final_answer(1)\0", None),
    ],
)
def test_a_submission_is_a_lone_call_with_plain_arguments(
    source: str, expression: str | None
) -> None:
    assert submitted_expression(source) == expression


@pytest.mark.parametrize(("num_chars", "is_submission"), [(2000, True), (2001, False)])
def test_a_submission_has_at_most_2000_characters(num_chars: int, is_submission: bool) -> None:
    frame = len("submit_final_answer()")
    source = f"submit_final_answer({'1' * (num_chars - frame)})"
    assert (submitted_expression(source) is not None) is is_submission


@pytest.mark.parametrize(
    "source",
    [
        "submit_final_answer(y := 2)",
        "submit_final_answer(1 +\n  2)",
        "submit_final_answer(1 + # one\n  2,\n\n3)",
        "submit_final_answer(i for i in a)",
    ],
)
def test_a_submitted_expression_can_be_evaluated_by_itself(source: str) -> None:
    expression = submitted_expression(source)
    assert expression is not None
    compile(expression, "<stdin>", "eval")


@pytest.mark.parametrize(
    "source",
    ["submit_final_answer()", "print(submit_final_answer(1))", "a = submit_final_answer(1, 2)"],
)
def test_a_call_that_fails_to_submit_is_a_bad_submit(source: str) -> None:
    assert kind_of(source, failed("RuntimeError")) is OutcomeKind.BAD_SUBMIT


def test_each_kind_has_one_entry_that_says_what_it_means() -> None:
    thoughts = {kind for kind in OutcomeKind if kind.traits.tone is Tone.THOUGHT}
    assert thoughts == {OutcomeKind.COMMENT, OutcomeKind.BLANK}
    assert not any(kind.traits.ran for kind in thoughts)


def test_errors_and_repetitions_cost_and_nothing_else_does() -> None:
    assert {kind for kind in OutcomeKind if kind.traits.reward < 0} == {
        kind for kind in OutcomeKind if kind.traits.is_error or kind is OutcomeKind.DUPLICATE
    }
    assert max(kind.traits.reward for kind in OutcomeKind) == 0


def test_the_class_of_an_exception_means_one_kind() -> None:
    names = [name for kind in OutcomeKind for name in kind.traits.error_types]
    assert len(names) == len(set(names))


def test_what_is_seen_from_outside_has_the_name_of_its_status() -> None:
    seen = {kind.value for kind in OutcomeKind if kind.traits.kernel}
    assert seen == {"timeout", "killed", "died"}
    assert seen < {status.value for status in ExecStatus}


def test_a_line_that_ends_its_kernel_ends_its_trajectory() -> None:
    assert {kind: kind.traits.ends for kind in OutcomeKind if kind.traits.kernel_is_gone} == {
        OutcomeKind.KILLED: StopReason.KERNEL_KILLED,
        OutcomeKind.DIED: StopReason.KERNEL_DIED,
    }
