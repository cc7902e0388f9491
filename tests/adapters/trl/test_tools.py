"""A session as a tool of chat models, in the loop of TRL's own trainer."""

from __future__ import annotations

import json
import time
import weakref
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig, GRPOTrainer

import repl_rl as rr
from own_processes import children
from repl_rl.grading.grader import Grader
from repl_rl.rollout.episode import Session
from repl_rl.trl import ReplSpec
from repl_sandbox.types import SandboxError
from trainer_kit import byte_tokenizer, random_qwen

pytestmark = [pytest.mark.slow, pytest.mark.kernel, pytest.mark.train]


@pytest.fixture
def task(tmp_path: Path) -> str:
    """A file of three sums, one of which is held out."""
    rows = [
        {"problem": "What is 1 + 1?", "answer": "2", "split": "train"},
        {"problem": "What is 2 + 1?", "answer": "3", "split": "train"},
        {"problem": "What is 1 + 3?", "answer": "4", "split": "held_out"},
    ]
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def a_spec(task: str) -> ReplSpec:
    return ReplSpec(task, overrides=["sandbox.standby=1"])


def test_lines_run_in_a_session_of_their_own(task: str) -> None:
    spec = a_spec(task)
    one, other = spec.environment_factory(), spec.environment_factory()
    one.reset(**spec.chat_dataset[0])
    other.reset(**spec.chat_dataset[1])
    assert one.run_line("y = 20") == ""
    assert one.run_line("y + 1") == "21\n"
    assert other.run_line("y").endswith("NameError: name 'y' is not defined\n")
    # A block is open until a blank line closes it.
    assert one.run_line("def f(a):\n    return a + 1") == "..."
    assert one.run_line("") == ""
    assert one.run_line("f(y)\nf(0)\n") == "21\n1\n"
    # What is sent in one piece may end in that line: then the last newline ends it.
    assert one.run_line("def g(a):\n    return a + 2\n\n") == ""
    assert one.run_line("g(y)") == "22\n"
    one.get_reward()
    other.get_reward()


def test_the_reward_is_that_of_the_whole(task: str) -> None:
    spec = a_spec(task)
    session = spec.environment_factory()
    [row] = [row for row in spec.chat_dataset if row["prompt"][0]["content"].endswith("1 + 1?")]
    session.reset(**row)
    session.run_line("1/0")
    session.run_line("submit_final_answer(2)")
    assert session.get_reward() == pytest.approx(1.0 - 0.1)  # solved, after one error
    session.reset(**row)
    assert session.get_reward() == pytest.approx(-0.6)  # nothing submitted


def test_a_session_that_has_ended_takes_no_line(task: str) -> None:
    spec = a_spec(task)
    session = spec.environment_factory()
    with pytest.raises(rr.ConfigError, match="run_line before reset"):
        session.run_line("1")
    session.reset(**spec.chat_dataset[0])
    session.run_line("submit_final_answer(2)")
    with pytest.raises(rr.ConfigError, match=r"has ended \(submitted\)"):
        session.run_line("1")
    session.get_reward()
    with pytest.raises(rr.ConfigError, match="or twice"):
        session.get_reward()
    with pytest.raises(rr.ConfigError, match=r"spec\.chat_dataset"):
        session.reset(prompt="What is 1 + 1?")


def test_lines_behind_the_last_are_named_and_lose_no_output(task: str) -> None:
    session = a_spec(task).environment_factory()
    session.reset(number=0)
    shown = session.run_line("6 * 7\nsubmit_final_answer(2)\n8 * 8")
    assert shown == "42\nthe session has ended (submitted); nothing more is run\n"
    session.get_reward()


def test_our_own_failure_is_no_reward(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL shows a tool's exception to the model, and goes on."""
    session = a_spec(task).environment_factory()
    session.reset(number=0)
    failure = SandboxError("no memory for a kernel")

    async def fail(*_: Any) -> Any:
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(Session, "run", fail)
        with pytest.raises(SandboxError):
            session.run_line("1")
    with pytest.raises(rr.ConfigError, match=r"has ended \(cancelled\)"):
        session.run_line("1")
    with pytest.raises(SandboxError) as caught:
        session.get_reward()
    assert caught.value is failure
    session.reset(number=0)
    assert session.run_line("1 + 1") == "2\n"
    assert session.get_reward() == pytest.approx(-0.6)


def test_what_nobody_could_grade_has_no_reward(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL leaves it out; 0 would be more than silence gets."""

    async def undecided(*_: Any) -> rr.Verdict:
        return rr.Verdict(kind=rr.VerdictKind.UNDECIDED)

    session = a_spec(task).environment_factory()
    session.reset(number=0)
    session.run_line("submit_final_answer(2)")
    monkeypatch.setattr(Grader, "grade", undecided)
    assert session.get_reward() is None


def test_what_is_no_text_is_the_mistake_of_the_model(task: str) -> None:
    session = a_spec(task).environment_factory()
    session.reset(number=0)
    wrong: Any = 5
    with pytest.raises(rr.ConfigError, match="run_line needs a string, not 5"):
        session.run_line(wrong)
    assert session.run_line("1 + 1") == "2\n"
    assert session.get_reward() == pytest.approx(-0.6)


def test_a_session_that_begins_again_gives_its_kernel_back_and_all_end_with_the_spec(
    task: str,
) -> None:
    before = children()
    spec = a_spec(task)
    session = spec.environment_factory()
    session.reset(**spec.chat_dataset[0])
    session.run_line("y = 1")
    num_held = len(children())
    for _ in range(5):
        session.reset(**spec.chat_dataset[0])
    assert session.run_line("y").endswith("NameError: name 'y' is not defined\n")
    assert len(children()) <= num_held + 1
    del spec, session
    assert children() <= before


def test_a_block_ends_all_sessions_and_another_use_begins_anew(task: str) -> None:
    before = children()
    with a_spec(task) as spec:
        session = spec.environment_factory()
        session.reset(number=0)
    assert children() <= before
    with pytest.raises(rr.ConfigError, match="run_line before reset"):
        session.run_line("1")
    session.reset(number=0)
    assert session.run_line("1 + 1") == "2\n"
    spec.close()
    assert children() <= before


def test_tools_that_are_collected_on_their_own_thread_end_without_waiting_for_it(
    task: str,
) -> None:
    before = children()
    spec = a_spec(task)
    session = spec.environment_factory()
    session.reset(**spec.chat_dataset[0])
    tools = spec._tools
    loop = tools._loop
    assert loop is not None
    ended = weakref.finalize(tools, lambda: None)
    held = [tools]
    del spec, session, tools
    loop.call_soon_threadsafe(held.clear)
    deadline = time.monotonic() + 20
    while (ended.alive or not loop.is_closed()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert loop.is_closed()
    assert children() <= before


def test_a_stock_trainer_calls_the_tool_and_gets_the_reward(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # its warning that seams may move
    tokenizer = byte_tokenizer("<|im_end|>")
    tokenizer.chat_template = (files("trl") / "chat_templates" / "qwen3.jinja").read_text()
    spec = a_spec(task)
    seen: list[str] = []

    class Scripted(GRPOTrainer):
        """Writes a call of the tool in its first turn, and ends in the second."""

        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
            texts = [tokenizer.decode(ids) for ids in prompt_ids]
            seen.extend(texts)
            written = [
                "Done.<|im_end|>"
                if "<tool_response>" in text
                else '<tool_call>\n{"name": "run_line", "arguments": '
                '{"line": "submit_final_answer(2)"}}\n</tool_call><|im_end|>'
                for text in texts
            ]
            ids = [tokenizer.encode(text) for text in written]
            return ids, None

    trainer = Scripted(
        model=random_qwen(context_tokens=8192),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=1,
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=1024,
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
        ),
        train_dataset=spec.chat_dataset,
        environment_factory=spec.environment_factory,
    )
    trainer.train()
    assert "run_line" in seen[0]
    # Each of two problems twice: 2 solves one of them, and submitting 2 for 3 is wrong.
    assert trainer.state.log_history[0]["reward"] == pytest.approx(0.5)
