"""Laws of what counts as an imitation of the interpreter, and what as an honest comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from repl_rl.records import OutcomeKind
from repl_rl.transcript.outcomes import comment_kind, executed_kind, imitates_output
from repl_sandbox.statements import Syntax
from repl_sandbox.types import ExecStatus, Execution

CORPUS = Path(__file__).parents[1] / "corpus"


def kind_of(source: str, execution: Execution) -> OutcomeKind:
    return executed_kind(source, execution, set(), syntax=Syntax.WHOLE)


def failed(error_type: str) -> Execution:
    return Execution(status=ExecStatus.ERROR, output="E\n", error_type=error_type)


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
    assert comment_kind(source) is OutcomeKind.FAKE_OUTPUT


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
