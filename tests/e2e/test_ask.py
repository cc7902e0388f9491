"""A problem of a person's own, put to a model from outside: what it sees, runs and answers."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repl_rl.config.resolve import resolve, to_toml
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import make_origin, trust
from scripted_kind import ScriptedKind
from small_run import small, small_settings

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
Call = Callable[..., tuple[int, str, str]]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUESTION = "What is 6 * 7?"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`written(*lines)` is what the model writes; returns what it saw before each line."""

    def write(*lines: str) -> list[str]:
        seen: list[str] = []
        monkeypatch.setattr(ScriptedKind, "lines", lines)
        monkeypatch.setattr(ScriptedKind, "seen", seen)
        return seen

    return write


def given(model: Path, *more: str) -> Sequence[str]:
    engine = ("--engine", "scripted_kind:ScriptedKind")
    return ("--model", str(model), *engine, *small(sampling__max_line_tokens=60), *more)


def test_a_problem_of_ones_own_is_solved_line_by_line(
    call: Call, tiny_model: Path, written: Callable[..., list[str]]
) -> None:
    seen = written(" y = 6*7\n", " y + 1\n", " submit_final_answer(y)\n")
    code, out, _ = call("ask", QUESTION, *given(tiny_model))
    assert code == 0
    shown = out[out.index("Python 3.") :]
    assert shown.split("\n")[4:] == [
        *(">>> # Work in steps; the last line is submit_final_answer(...).", f">>> # {QUESTION}"),
        *(">>> y = 6*7", ">>> y + 1", "43", ">>> submit_final_answer(y)", ""),
        *("stopped      submitted", "submission   42", ""),
    ]
    # The model has seen what the prompt of training would be, and what its lines printed.
    assert seen[0].endswith(f">>> # {QUESTION}\n>>>")
    assert seen[2] == "43\n>>>"


def test_without_an_answer_it_is_exit_code_1(
    call: Call, tiny_model: Path, written: Callable[..., list[str]]
) -> None:
    written(" 1/0\n")
    code, out, err = call("ask", QUESTION, *given(tiny_model))
    assert (code, err) == (1, "")
    assert ">>> 1/0   <- runtime_error\n" in out
    assert "ZeroDivisionError: division by zero\n" in out
    assert out.endswith("\n\nstopped      eos\n")


def test_a_program_gets_one_object(
    call: Call, tiny_model: Path, written: Callable[..., list[str]]
) -> None:
    written(" 2+2\n", " submit_final_answer(x)\n")
    setup = ("--setup", "x = Rational(1, 3)", "--setup", "y = x")
    code, out, err = call("ask", QUESTION, "--json", *given(tiny_model, *setup))
    assert code == 0
    assert json.loads(out) == {
        "question": QUESTION,
        "setup": ["x = Rational(1, 3)", "y = x"],
        "model": str(tiny_model),
        "task": "sympy-proofs",
        "seed": 0,
        "lines": [
            {"source": "2+2", "outcome": "ok_output", "observation": "4\n"},
            {"source": "submit_final_answer(x)", "outcome": "submitted", "observation": ""},
        ],
        "stop_reason": "submitted",
        "submission": "1/3",
    }
    assert ">>> x = Rational(1, 3)\n>>> y = x\n" in err


def test_a_run_brings_its_task_and_its_settings(
    call: Call, tiny_model: Path, tmp_path: Path, written: Callable[..., list[str]]
) -> None:
    """No row of its data and no grader is needed for a problem of one's own."""
    run = tmp_path / "run"
    shutil.copytree(tiny_model, run / "checkpoints" / "final")
    shutil.copy(EXAMPLES / "multiplication.py", tmp_path)
    task = ["task.name=multiplication:Multiplication", *small_settings(sampling__max_lines=1)]
    settings = resolve(flags={"model": "."}, overrides=task)
    (run / "config.toml").write_text(to_toml(settings))
    trust(make_origin(settings, setup=(), tokenizer=None, isolation=""))  # as if it was run here
    seen = written(" submit_final_answer(42)\n")
    engine = ("--engine", "scripted_kind:ScriptedKind", "--set", "sampling.max_line_tokens=60")
    code, out, err = call("ask", QUESTION, "--model", "run", *engine)
    assert code == 0, err
    assert f"\n>>> # Answer with submit_final_answer(...).\n>>> # {QUESTION}\n" in seen[0]
    assert "submission   42\n" in out


def test_a_question_of_several_lines_comes_from_stdin(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tiny_model: Path,
    written: Callable[..., list[str]],
) -> None:
    typed = "A train leaves.\n\nWhen \u03c0 is 3, is\tit late?\n".encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(typed)))
    seen = written(" submit_final_answer(1)\n")
    assert call("ask", "-", *given(tiny_model))[0] == 0
    assert ">>> # A train leaves.\n>>> # \n>>> # When \u03c0 is 3, is it late?\n>>>" in seen[0]


@pytest.mark.parametrize(
    ("question", "more", "told"),
    [
        (
            "  ",
            (),
            "QUESTION: an empty text; expected a problem in words, or - to read it from stdin",
        ),
        (
            "?" * 40_000,
            (),
            "QUESTION: 40,000 characters; expected at most 32,768; expected a problem",
        ),
        (QUESTION, ("--setup", "x = 1\ny = 2"), "--setup 'x = 1\\ny = 2'; expected one line"),
        (QUESTION, ("--setup", " "), "--setup ' '; expected one line of Python"),
        (QUESTION, ("--setup", "x = symbls('x')"), "fails at \"x = symbls('x')\": NameError: "),
        (
            QUESTION,
            ("--temperature", "-1"),
            "sampling.temperature = -1.0; expected float, at least 0",
        ),
        (QUESTION, ("--task", "multiplicaton"), "unknown task 'multiplicaton'"),
        (QUESTION, ("--model", "no/such/model"), "no/such/model"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_cannot_be_asked_is_told_in_a_line_before_anything_slow(
    call: Call, tiny_model: Path, question: str, more: tuple[str, ...], told: str
) -> None:
    code, out, err = call("ask", question, "--model", str(tiny_model), *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_question_may_stand_without_quotes(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(question: str, _setup: object) -> None:
        raise ConfigError(f"asked: {question}")

    monkeypatch.setattr("repl_rl.commands.ask.problem_of", refuse)
    assert call("ask", "What", "is", "2+2?") == (2, "", "repl-rl: asked: What is 2+2?\n")


def test_stdin_that_is_no_text_is_told_in_a_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff\xfe")))
    code, _, err = call("ask", "-", "--model", str(tiny_model))
    assert (code, err) == (
        2,
        "repl-rl: QUESTION: stdin is not UTF-8: byte 1 of it; expected a problem\n",
    )


def test_the_same_seed_gives_the_same_lines_and_nothing_is_left_behind(
    repl_rl: Command, tiny_model: Path
) -> None:
    asked = ("ask", QUESTION, "--model", str(tiny_model), "--json", *small(), "--seed")
    first, again, other = (repl_rl(*asked, seed) for seed in ("1", "1", "2"))
    assert (first.code, first.left_behind) == (1, [])
    lines = [json.loads(ended.stdout)["lines"] for ended in (first, again, other)]
    assert lines[0] == lines[1] != lines[2]
    likeliest = [repl_rl(*asked, seed, "--temperature", "0").stdout for seed in ("1", "2")]
    assert json.loads(likeliest[0])["lines"] == json.loads(likeliest[1])["lines"]
