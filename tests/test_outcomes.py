"""Laws of naming what became of a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from repl_rl.imitations import imitates_output
from repl_rl.outcomes import (
    executed_kind,
    statement_key,
    submitted_expression,
    thought_kind,
)
from repl_rl.types import OutcomeKind
from sandbox.statements import Syntax
from sandbox.types import ExecStatus, Execution

CORPUS = Path(__file__).parent / "corpus"


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
    """The kernel says so of `exec("1+")`, or lies."""
    assert kind_of("x", execution) is OutcomeKind.RUNTIME_ERROR


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


def test_every_kind_comes_of_a_text_an_execution_or_the_loop() -> None:
    """The loop alone knows of a line without a newline, and of an answer that was handed over."""
    kind = OutcomeKind
    errors = ["NameError", "MemoryError", "OutputLimit", "KeyError"]
    executions = [Execution(status=status) for status in ExecStatus] + [*map(failed, errors)]
    executions.append(Execution(status=ExecStatus.OK, output="1\n"))
    found = {thought_kind(source) for source in ("", "# so", "# >>> x")}
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
    assert thought_kind(source) is kind


@pytest.mark.parametrize(
    "source",
    [
        ">>> x",
        "# >>> x",
        "#>>>",
        "  # >>> x",
        "x = 1\n>>> x",
        "... x = 1",
        "Out[3]: 4",
        "# Out [3]: 4",
        "Traceback (most recent call last):",
        "# Traceback (most recent call last):",
    ],
)
def test_imitations_of_the_interpreter_are_seen(source: str) -> None:
    assert imitates_output(source)


@pytest.mark.parametrize(
    "source",
    [
        "# x > 0, so x >> 1 is positive",
        "# shift by a >>> b is no Python",
        "# [-2, 2]",
        "# the roots are 2 and 3",
        "# wait...",
        "# ...",
        "...",
        "# Out of ideas",
        "# In [0, 1] it grows",
        "# Traceback says NameError: x is not defined",
        "x >>= 1",
        "print('>>>')",
        "a[...] = 1",
        "# ... and so on",
    ],
)
def test_honest_comments_and_code_are_no_imitations(source: str) -> None:
    assert not imitates_output(source)


DOCTEST = """def f(x):
    '''
    >>> f(1)
    '''
    return x
"""


def test_a_prompt_inside_a_statement_is_no_imitation() -> None:
    assert kind_of(DOCTEST, Execution(status=ExecStatus.OK)) is OutcomeKind.OK_SILENT
    assert kind_of(DOCTEST, failed("NameError")) is OutcomeKind.NAME_ERROR


def test_an_annotation_that_reads_like_an_error_is_a_fake_output() -> None:
    """`KeyError: 'x'` is valid Python, and does nothing."""
    found = kind_of("KeyError: 'x'", Execution(status=ExecStatus.OK))
    assert found is OutcomeKind.FAKE_OUTPUT


def listed(name: str) -> list[str]:
    return (CORPUS / name).read_text().split("\n")[:-1]


def test_few_honest_comments_are_taken_for_fakes() -> None:
    """6 of 382 (1.6 %): values alone behind words that a person writes before a conclusion too."""
    honest = listed("honest_comments.txt")
    assert len(honest) == len(set(honest)) == 382
    assert [line for line in honest if imitates_output(line)] == [
        "# = 4",
        "# Result: 12",
        "# gives 0",
        "# yields [1, 1, 2, 3, 5]",
        "# => -1",
        "# -> 0",
    ]


def test_fakes_are_seen() -> None:
    fakes = listed("fakes.txt")
    assert len(fakes) == 82
    assert [line for line in fakes if not imitates_output(line)] == []


@pytest.mark.parametrize(
    "source",
    [
        *(f"# ok{end}>>> 4" for end in ("\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")),
        "# \u200b>>> 4",
        "# >\u200d>\ufe0f>\u0336 4",
        '# \u2060File "<stdin>", line 1',
        "# \uff1e\uff1e\uff1e 4",
        "# \ufe65\ufe65\ufe65 4",
        "# \u276f\u276f\u276f 4",
        "# > > > 4",
        "#\u00a0O\u00adut[1]: 4",
    ],
)
def test_an_imitation_is_one_in_whatever_characters(source: str) -> None:
    assert thought_kind(source) is OutcomeKind.FAKE_OUTPUT


@pytest.mark.parametrize(
    "claim", ["result:", "=", "gives", "it gives:", "evaluates to", "python says:", "the REPL says"]
)
def test_a_literal_behind_a_claim_is_an_imitation_and_anything_else_is_not(claim: str) -> None:
    assert imitates_output(f"# {claim} 4")
    assert imitates_output(f"# {claim} [-2, 2]")
    assert not imitates_output(f"# {claim} x = 2")
    assert not imitates_output(f"# {claim} the roots")


@pytest.mark.parametrize(
    ("source", "is_fake"),
    [
        ("'>>> 4'", True),
        ("'Out[1]: 4'", True),
        ('"""\n# Output: 4\n"""', True),
        ("solve  # -> 4", True),
        ("x.y  # Output: 4", True),
        ("\u00e9  # -> 4", True),
        ("'two'  # -> 4", True),
        ("'two'", False),
        ("x  # the root", False),
        ("f(x)  # -> 4", False),
        ("y = '>>> 4'", False),
    ],
)
def test_code_that_does_nothing_may_carry_an_imitation(source: str, is_fake: bool) -> None:
    found = kind_of(source, Execution(status=ExecStatus.OK, output="4\n"))
    assert found is (OutcomeKind.FAKE_OUTPUT if is_fake else OutcomeKind.OK_OUTPUT)


@pytest.mark.parametrize(
    "source",
    ["# Output: [2, x]", "# Output:", "# => 4", "# Out: 7", "# NameError: name 'y' is not defined"],
)
def test_a_value_behind_a_label_is_an_imitation(source: str) -> None:
    assert imitates_output(source)


@pytest.mark.parametrize(
    "source", ["x = f(2)  # => 4", "f(2)  # Output: 4", "x: list[int] = []", "output: list[int]"]
)
def test_a_note_behind_code_is_no_imitation(source: str) -> None:
    """The interpreter answers such a line at once, whatever it claims."""
    assert not imitates_output(source)


def test_an_imitation_that_fails_is_a_fake_output() -> None:
    assert kind_of(">>> x", failed("SyntaxError")) is OutcomeKind.FAKE_OUTPUT


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
