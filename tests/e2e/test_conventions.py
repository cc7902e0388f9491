"""Runs under other conventions than the plain REPL: another format, a loop of one's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repl_rl.records import Scored
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.transcript.format import span_mask
from run_metrics import read_metrics
from small_run import INLINE, set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Command = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

WRONG = """\
from dataclasses import replace
from repl_rl.rollout.sampler import LineSampler

class Shifted(LineSampler):
    async def sample(self, attempt, prompt, kernel):
        made = await super().sample(attempt, prompt, kernel)
        return replace(made, loss_mask=(False, *made.loss_mask[:-1]))
"""


def train(repl_rl: Command, model: Path, *more: str) -> Any:
    return repl_rl("train", "--model", str(model), "--output", "run", *small(), *set_words(*more))


def sampled(run: Path) -> list[Scored]:
    """All trajectories of a run of two steps, masks checked."""
    assert [row["step"] for row in read_metrics(run / "metrics.jsonl") if "loss" in row] == [1, 2]
    scored = [one for path in (run / "trajectories").iterdir() for one in read_trajectories(path)]
    assert len(scored) == 2 + 4 + 4 + 2
    for one in scored:
        assert span_mask(one.trajectory) == list(one.trajectory.loss_mask)
    return scored


def refused(ended: Any) -> str:
    """The one line that a refusal prints."""
    assert ended.code == 2, ended.stderr
    assert ended.left_behind == []
    (line,) = ended.stderr.splitlines()
    return str(line)


def test_an_engine_of_ones_own_is_trained(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / "plain_engine.py", tmp_path)
    ended = train(repl_rl, tiny_model, "sampling.engine=plain_engine:Plain")
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    assert "engine: plain: 4 trajectories at once" in ended.stdout
    assert len(sampled(tmp_path / "run")) == 2 + 2 * 4 + 2
    audited = repl_rl("audit", "run")
    assert audited.code == 0, audited.stdout


def test_a_loop_of_ones_own_is_trained(repl_rl: Command, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "inline_calls.py", tmp_path)
    ended = train(repl_rl, tiny_model, *INLINE)
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    prompts = {one.trajectory.prompt_text for one in sampled(tmp_path / "run")}
    assert all(text.endswith("Python in <fn>...</fn> is run at once.\n\n") for text in prompts)


def test_ipythons_transcript_is_trained(repl_rl: Command, tiny_model: Path, tmp_path: Path) -> None:
    ended = train(repl_rl, tiny_model, "transcript=ipython")
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    prompts = {one.trajectory.prompt_text for one in sampled(tmp_path / "run")}
    assert all("\nIn [1]: from sympy import *\n" in text for text in prompts)
    assert all(text.endswith("\nIn [6]:") for text in prompts)
    for shown in (ended.stdout, repl_rl("show", "run").stdout):
        assert "\nIn [6]:" in shown
        assert not any(row.startswith((">>>", "...")) for row in shown.splitlines())


@pytest.fixture
def chat_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model with a template: `<|end|>` after each turn."""
    path = tmp_path / "chat"
    shutil.copytree(tiny_model, path)
    (path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role + ': ' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    return path


def test_a_chats_transcript_is_trained(repl_rl: Command, chat_model: Path, tmp_path: Path) -> None:
    ended = train(repl_rl, chat_model, "transcript=chat")
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    for one in sampled(tmp_path / "run"):
        text = one.trajectory.prompt_text
        assert f"<|end|>user: {one.problem.statement}<|end|>assistant: Python 3." in text
        assert text.endswith("\n>>>")


def test_a_conversation_of_many_turns_is_trained_audited_shown_and_replayed(
    repl_rl: Command, chat_model: Path, tmp_path: Path
) -> None:
    ended = train(repl_rl, chat_model, "transcript=chat-turns", "sampling.max_lines=4")
    assert (ended.code, ended.left_behind) == (0, []), ended.stderr
    made = sampled(tmp_path / "run")
    for one in made:
        assert one.trajectory.prompt_text.endswith("\n>>><|end|>assistant: ")
    assert max(len(one.trajectory.lines) for one in made) > 1
    for command in (["audit", "run"], ["rollout", "--config", "run/config.toml", "--model", "run"]):
        looked = repl_rl(*command)
        assert looked.code == 0, looked.stdout + looked.stderr
    shown = repl_rl("show", "run").stdout
    assert ">>><|end|>assistant: " in shown
    again = repl_rl("replay", "run", "--execute")
    assert again.code == 0, again.stdout + again.stderr


def test_a_turn_with_no_end_is_refused_before_weights_are_read(
    repl_rl: Command, chat_model: Path, tmp_path: Path
) -> None:
    template = chat_model / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|end|>", "<|stop|>"))
    line = refused(train(repl_rl, chat_model, "transcript=chat-turns"))
    assert line.startswith(
        "repl-rl: the chat template ends a turn with '<', which ends no sequence"
    )
    assert not (tmp_path / "run").exists()


# What is refused


def test_a_chat_takes_a_template(repl_rl: Command, tiny_model: Path) -> None:
    line = refused(train(repl_rl, tiny_model, "transcript=chat"))
    assert line == (
        "repl-rl: transcript = 'chat' needs a model whose tokenizer has a chat template"
    )


def test_what_is_no_sampler_is_refused(repl_rl: Command, tiny_model: Path, tmp_path: Path) -> None:
    line = refused(train(repl_rl, tiny_model, "sampling.sampler=math:sin"))
    assert line.startswith("repl-rl: sampling.sampler = 'math:sin' is no sampler; expected a class")
    assert not (tmp_path / "run").exists()


def test_a_sampler_that_tells_a_wrong_mask_is_refused_by_its_name(
    repl_rl: Command, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    line = refused(train(repl_rl, tiny_model, "sampling.sampler=wrong:Shifted"))
    assert line.startswith("repl-rl: Shifted made a trajectory with a loss mask that disagrees ")
