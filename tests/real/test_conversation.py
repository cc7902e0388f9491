"""A conversation and a thought of a pretrained model, beside what its own chat template writes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from chat_families import QWEN
from repl_rl.base.disk import read_text
from repl_rl.models.loading import read_files
from repl_rl.records import Scored
from repl_rl.runs.trajectory_file import read_trajectories
from repl_rl.transcript.conventions import load_format
from repl_rl.transcript.encoding import Encoding
from small_run import set_words

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Call = Callable[..., tuple[int, str, str]]
TURNS = ("transcript=chat-turns", "sampling.device=cpu", "sandbox.standby=1")
SHORT = ("sampling.max_lines=3", "sampling.max_line_tokens=16", "sampling.max_tokens=100")
END = "<|im_end|>"
CLOSE, REOPEN = f"{END}\n<|im_start|>user\n", f"{END}\n<|im_start|>assistant\n"
"""What this model's template writes behind an answer, and before the next one."""


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def rolled_out(call: Call, model: Path, *settings: str) -> Scored:
    """One rollout, all of whose checks passed."""
    words = ("rollout", "--model", str(model), "--output", "kept.jsonl")
    code, out, err = call(*words, *set_words(*settings))
    assert (code, "!!" in out) == (0, False), out + err
    (gap,) = re.findall(r"^ok  gap +largest (\S+) nats", out, re.M)
    assert float(gap) < 1e-4
    (kept,) = read_trajectories(Path("kept.jsonl"))
    return kept


def conversation(scored: Scored, tokenizer: Any) -> list[dict[str, str]]:
    """The messages of a trajectory: each line as it was sampled, each output with its prompt."""
    made = scored.trajectory
    session = made.prompt_text.partition(f"{scored.problem.statement}\n\n")[2].partition(END)[0]
    assert session.endswith(">>>")
    messages = [
        {"role": "system", "content": read_text("chat.txt").strip()},
        {"role": "user", "content": f"{scored.problem.statement}\n\n{session}"},
    ]
    for line in made.lines:
        said = tokenizer.decode(made.completion_ids[line.start : line.stop])
        messages.append({"role": "assistant", "content": said.removesuffix(END)})
        prompt = "..." if line.outcome.kind == "incomplete" else ">>>"
        messages.append({"role": "user", "content": line.outcome.observation + prompt})
    return messages


def check_is_the_templates(scored: Scored, tokenizer: Any) -> None:
    """Check that the sampled and injected text begins what the template makes of the messages."""
    made, messages = scored.trajectory, conversation(scored, tokenizer)
    whole = tokenizer.decode(made.prompt_ids + made.completion_ids)
    rendered = tokenizer.apply_chat_template(messages[:2], add_generation_prompt=True)["input_ids"]
    assert list(made.prompt_ids) == rendered
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.startswith(whole)
    last = messages[-1]["content"]
    missing = text.removeprefix(whole)
    assert missing in (f"{CLOSE}{last}{REOPEN}", f"{CLOSE}{last}{REOPEN}".removeprefix(END))


def test_a_line_of_a_conversation_ends_at_the_models_own_stops(gguf: Path, folder: Path) -> None:
    files = read_files(str(gguf))
    fmt = load_format("chat-turns", files.chat_template)
    assert (fmt.closing, fmt.reopening) == (CLOSE, REOPEN)
    encoding = Encoding(fmt, files.codec)
    assert encoding.turn_end == files.tokenizer.convert_tokens_to_ids(END) == 2
    assert encoding.line_ends == encoding.stop_ids == files.codec.newline_ids | {2}


def test_a_conversation_is_what_the_models_template_renders(
    call: Call, gguf: Path, tokenizer: Any
) -> None:
    scored = rolled_out(call, gguf, *TURNS, *SHORT)
    check_is_the_templates(scored, tokenizer)


def test_a_warm_start_in_conversations_leaves_a_model_of_conversations(
    call: Call, gguf: Path, folder: Path, tokenizer: Any
) -> None:
    """Shown lines end in the end of a turn, which the model is trained on."""
    lines = ">>> a = {n}\n>>> a + 2\n>>> submit_final_answer(_)\n"
    shown = [f"=== {n}\nstatement: {n} + 2?\n\n{lines.format(n=n)}" for n in range(8)]
    Path("sums.repl").write_text("\n".join(shown))
    few = ("warmstart.problems_before=0", "eval.problems=1", "warmstart.epochs=2", *SHORT)
    given = ("warmstart", "--model", str(gguf), "--from", "sums.repl", "--output", "warm", "--json")
    code, out, err = call(*given, *set_words(*TURNS, *few))
    assert code == 0, out + err
    facts = json.loads(out)
    assert (facts["transcripts"], facts["steps"], facts["after"]["total"]) == (8, 2, 1)

    lessons = list(read_trajectories(Path("warm/trajectories/lessons.jsonl")))
    assert len(lessons) == 8
    for scored in lessons:
        made = scored.trajectory
        assert [made.completion_ids[line.stop - 1] for line in made.lines] == [2, 2, 2]
        assert all(made.loss_mask[line.stop - 1] for line in made.lines)
        check_is_the_templates(scored, tokenizer)
    check_is_the_templates(rolled_out(call, Path("warm"), *SHORT), tokenizer)


@pytest.mark.parametrize("template", ["its own", "one with a switch"])
def test_a_thought_stands_in_the_turn_before_the_first_line(
    call: Call, folder: Path, tmp_path: Path, tokenizer: Any, template: str
) -> None:
    """The vocabulary has no token for either mark, so each is made of several."""
    model = folder
    if template != "its own":
        model = tmp_path / "thinker"
        shutil.copytree(folder, model)
        tokenizer.chat_template, own = QWEN, tokenizer.chat_template
        tokenizer.save_pretrained(model)
        tokenizer.chat_template = own
    thinks = ("transcript=chat", "sampling.max_think_tokens=16", "sampling.device=cpu")
    made = rolled_out(call, model, *thinks, *SHORT, "sampling.max_tokens=200").trajectory

    assert made.prompt_text.endswith(f"{END}\n<|im_start|>assistant\n<think>\n")
    assert made.thought is not None
    thought = made.thought
    assert 0 < thought.stop <= 16
    assert all(made.loss_mask[: thought.stop])
    first = made.lines[0].start
    assert not any(made.loss_mask[thought.stop : first])
    between = tokenizer.decode(made.completion_ids[:first])
    assert re.fullmatch(r"(?s).*</think>\n\nPython \S+ on linux\n.*\n>>>", between)
    assert between == thought.source + thought.shown


def test_a_conversation_has_no_place_for_a_thought(call: Call, gguf: Path) -> None:
    thinks = ("sampling.max_think_tokens=16", "transcript=chat-turns")
    code, out, err = call("rollout", "--model", str(gguf), *set_words(*thinks))
    assert code == 2, out + err
    assert "sampling.max_think_tokens needs transcript 'chat'" in err
    assert "not 'chat-turns'" in err
