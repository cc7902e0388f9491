"""Through the real harness: its runner, its tasks' filters, its command line."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from repl_rl.config.resolve import resolve, to_toml
from repl_rl.errors import ConfigError
from repl_rl.training.runtime import Runtime
from shared_work import once, shared_folder
from tiny_model import save_tiny_model

harness = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402  # where it is installed
from lm_eval.api.registry import model_registry  # noqa: E402

from lm_eval_kit import MINE, evaluated, harnessed, keep_made, mine, task_of, tokens, write_rows  # noqa: E402
from repl_rl.lm_eval.model import ReplLM  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel, pytest.mark.timeout(300)]

PACKAGED = Path(harness.__file__).parent / "tasks"

PROBLEMS = {"6 * 7": 42, "6 + 7": 13, "12 * 12": 144, "5 + 0": 5, "3 * 9": 27, "1 + 1": 2}
"""`AnsweringKind` is right about those with a product and about 5 + 0: four of six."""

GIVEN: dict[str, Any] = {
    "task": "rows.jsonl",
    "sampling.device": "cpu",
    "sampling.max_lines": 3,
    "sampling.max_tokens": 160,
    "sampling.max_in_flight": 4,
    "sandbox.standby": 1,
    "eval.problems": len(PROBLEMS),
    "seed": 5,
}
ANSWERING = {"engine": "answering_kind:AnsweringKind"}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(shared_folder(tmp_path_factory) / "tiny-model", save_tiny_model)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the problems as rows that are all held out."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"What is {asked}?", "answer": answer, "split": "test"}
        for asked, answer in PROBLEMS.items()
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    return tmp_path


def test_the_trajectories_are_those_of_eval_token_for_token(
    place: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keep_made(monkeypatch)
    evaluation = evaluated(tiny_model, GIVEN)
    harnessed(ReplLM(str(tiny_model), **GIVEN), mine(place, evaluation, GIVEN))
    found = [one.trajectory for one in evaluation.scored]
    assert tokens(made) == tokens(found)
    assert len({one.completion_ids for one in made}) == 2 * len(PROBLEMS)


def test_the_solve_rate_is_that_of_eval(place: Path, tiny_model: Path) -> None:
    evaluation = evaluated(tiny_model, GIVEN | {"sampling.engine": "answering_kind:AnsweringKind"})
    model = ReplLM(str(tiny_model), **GIVEN, **ANSWERING)
    rates = harnessed(model, mine(place, evaluation, GIVEN))
    assert rates["exact_match,first"] == evaluation.report.rate == 4 / 6


@pytest.mark.parametrize(
    ("packaged", "row", "metrics"),
    [
        (
            "gsm8k/gsm8k.yaml",
            lambda question, answer: {"question": question, "answer": f"So. #### {answer}"},
            ["exact_match,strict-match", "exact_match,flexible-extract"],
        ),
        (
            "gsm8k/gsm8k-cot.yaml",
            lambda question, answer: {"question": question, "answer": f"So. #### {answer}"},
            ["exact_match,strict-match", "exact_match,flexible-extract"],
        ),
        (
            "gsm8k/gsm8k-cot-llama.yaml",
            lambda question, answer: {"question": question, "answer": f"So. #### {answer}"},
            ["exact_match,strict-match", "exact_match,flexible-extract"],
        ),
        (
            "aime/aime25.yaml",
            lambda question, answer: {"problem": question, "answer": str(answer)},
            ["exact_match,none"],
        ),
        (
            "hendrycks_math/hendrycks_math_algebra.yaml",
            lambda question, answer: {"problem": question, "solution": f"\\boxed{{{answer}}}"},
            ["exact_match,none"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_packaged_tasks_find_the_answers(
    place: Path,
    tiny_model: Path,
    packaged: str,
    row: Callable[[str, int], dict[str, Any]],
    metrics: Sequence[str],
) -> None:
    rows = [row(f"What is {asked}?", answer) for asked, answer in PROBLEMS.items()]
    task = task_of(place, f"include: {PACKAGED / packaged}\n", rows)
    rates = harnessed(ReplLM(str(tiny_model), **GIVEN, **ANSWERING), task)
    assert {name: rates[name] for name in metrics} == dict.fromkeys(metrics, 4 / 6)


def test_the_command_of_the_harness_takes_the_model(place: Path, tiny_model: Path) -> None:
    """In a process of its own, which leaves no other behind."""
    rows = [{"question": f"What is {asked}?", "answer": n} for asked, n in PROBLEMS.items()]
    task_of(place, MINE, rows)
    args = GIVEN | ANSWERING | {"pretrained": str(tiny_model)}
    ended = command(place, ",".join(f"{name}={value}" for name, value in args.items()))
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"\|mine *\|Yaml *\|first *\| *0\|exact_match\|. *\|0\.6667\|", ended.stdout)


def test_an_argument_that_is_wrong_is_one_row(place: Path, tiny_model: Path) -> None:
    task_of(place, MINE, [{"question": "What is 1 + 1?", "answer": 2}])
    ended = command(place, f"pretrained={tiny_model},max_line=3")
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert last == "repl-rl: unknown key 'max_line'; did you mean 'sampling.max_lines'?"
    assert "Traceback" not in ended.stderr


def command(place: Path, model_args: str) -> subprocess.CompletedProcess[str]:
    words = ["--model", "repl-rl", "--model_args", model_args, "--tasks", "task.yaml"]
    return subprocess.run(
        [sys.executable, "-m", "repl_rl.lm_eval", *words],
        cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_other_models_of_the_harness_are_still_there() -> None:
    assert {"hf", "vllm", "repl-rl"} <= set(model_registry.keys())


def test_what_a_repl_cannot_say_is_refused(tiny_model: Path) -> None:
    model = ReplLM(str(tiny_model))
    request = Instance("loglikelihood", {}, ("1 + 1 =", " 2"), 0)
    for method in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(
            ConfigError, match=r"does not score the likelihood of texts; expected tasks with output"
        ):
            method([request])
    with pytest.raises(ConfigError, match=r"^--apply_chat_template: .* give transcript=chat in"):
        model.chat_template(True)
    seen = Instance("generate_until", {}, ("What?", {}, {"visual": []}), 0, ("t", 3, 1))
    with pytest.raises(ConfigError, match=r"^t/3 has images or sounds; expected text alone$"):
        model.generate_until([seen])


def test_two_temperatures_are_refused(tiny_model: Path) -> None:
    model = ReplLM(str(tiny_model), temperature=1.0)
    request = Instance("generate_until", {}, ("What is 1 + 1?", {"do_sample": False}), 0)
    with pytest.raises(ConfigError, match=r"=1\.0 in --model_args, 0\.0 in a task; give --gen_kw"):
        model.generate_until([request])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"^pretrained=, answer=text; expected PATH and text or plain$"),
        ({"pretrained": "/no/such"}, r"/no/such"),
        (
            {"pretrained": ".", "answer": "latex"},
            r"^pretrained=\., answer=latex; .* text or plain$",
        ),
        (
            {"pretrained": ".", "sampling.max_lines": "many"},
            r"^sampling\.max_lines = '",
        ),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReplLM(**given)


def test_arguments_of_the_harness_become_settings(tiny_model: Path) -> None:
    model = ReplLM(str(tiny_model), device="cpu", batch_size=8, max_lines=7, seed=3)
    config = model._plan.config
    assert (config.sampling.device, config.sampling.max_in_flight) == ("cpu", 8)
    assert (config.sampling.max_lines, config.seed) == (7, 3)
    assert "such as 3, Rational(1, 2)" in model._prompt  # the prompt for rows of data
    usual = ReplLM(str(tiny_model), device="cuda:0", batch_size=1)._plan.config.sampling
    assert (usual.device, usual.max_in_flight) == ("auto", 64)


def test_a_notebook_may_ask_it_while_its_loop_runs(place: Path, tiny_model: Path) -> None:
    model = ReplLM(str(tiny_model), answer="plain", **GIVEN, **ANSWERING)
    requests = [
        Instance("generate_until", {}, (f"What is {one}?", {}), 0) for one in ("6 * 7", "5 + 0")
    ]

    async def cell() -> list[str]:
        return model.generate_until(requests)

    assert asyncio.run(cell()) == ["42", "5"]


def test_a_run_brings_its_settings_and_its_prompt(tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, tmp_path / "run" / "checkpoints" / "final")
    settings = resolve(flags={"model": "."}, overrides=["sampling.max_lines=9", "seed=4"])
    (tmp_path / "run" / "config.toml").write_text(to_toml(settings))
    model = ReplLM(str(tmp_path / "run"), seed=6)
    assert model._plan.config.model == str(tmp_path / "run" / "checkpoints" / "final")
    assert (model._plan.config.sampling.max_lines, model._plan.config.seed) == (9, 6)
    assert "x, n, k = symbols('x n k')" in model._prompt  # that of sympy-proofs


def test_processes_are_gone_when_a_rollout_fails(
    place: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(psutil.Process().children(recursive=True))

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("ours")

    model = ReplLM(str(tiny_model), **GIVEN)
    monkeypatch.setattr(Runtime, "run", fail)
    request = Instance("generate_until", {}, ("What is 1 + 1?", {}), 0, ("t", 0, 1))
    with pytest.raises(RuntimeError, match="ours"):
        model.generate_until([request])
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_value_is_compared_in_latex(place: Path, tiny_model: Path) -> None:
    """The gold answer of such data sets is a fraction in LaTeX, the submission is a value."""
    rows = [
        {"problem": "What is 1 * Rational(2, 4)?", "solution": "So \\boxed{\\frac{1}{2}}."},
        {"problem": "What is 2 * sqrt(8)?", "solution": "So \\boxed{4 \\sqrt{2}}."},
    ]
    task = task_of(
        place, f"include: {PACKAGED / 'hendrycks_math/hendrycks_math_algebra.yaml'}\n", rows
    )
    assert harnessed(ReplLM(str(tiny_model), **GIVEN, **ANSWERING), task)["exact_match,none"] == 1.0
