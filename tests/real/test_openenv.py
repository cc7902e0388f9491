"""A pretrained model in TRL's stock trainer, which runs its lines in sessions of OpenEnv."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from openenv_kit import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.train,
    pytest.mark.kernel,
    pytest.mark.skipif(importlib.util.find_spec("openenv") is None, reason="takes openenv"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are using 'environment_factory':UserWarning"),
]
NUM_SHOWN = 4


def test_the_stock_trainer_samples_it_on_problems_of_ones_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four calls are shown to it. It makes some of its own, and some of those solve a problem."""
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    import openenv_client
    from openenv_kit import serving

    sessions: list[Session] = []

    class Session(openenv_client.ReplSession):
        def __init__(self) -> None:
            super().__init__()
            self.paid: list[tuple[bool, float | None]] = []
            sessions.append(self)

        def get_reward(self) -> float | None:
            has_answered, reward = self._is_over, super().get_reward()
            self.paid.append((has_answered, reward))
            return reward

    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"problem": f"What is {one} + {other}?", "answer": str(one + other)}) + "\n"
            for one in (2, 3, 4)
            for other in (5, 6, 7, 8)
        )
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text()
    with serving(task=str(rows)) as served:
        monkeypatch.setattr(openenv_client, "URL", served.url)
        places = range(1, 1 + NUM_SHOWN)
        messages = [one for at in places for one in shown(served, at)]
        # The trainer adds what the session says of its problem.
        messages.append({"role": "user", "content": ""})
        asked = [{"prompt": messages, "split": "train", "index": 0}]
        trainer = GRPOTrainer(
            model=str(folder),
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(asked),
            environment_factory=Session,  # type: ignore[arg-type]  # it names columns
            args=GRPOConfig(
                output_dir=str(tmp_path / "out"),
                use_cpu=True,
                bf16=False,
                max_steps=1,
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=64,
                temperature=0.7,
                max_tool_calling_iterations=1,
                report_to="none",
                logging_steps=1,
                save_strategy="no",
                gradient_checkpointing=False,
            ),
        )
        trainer.train()
    paid = [one for session in sessions for one in session.paid]
    assert len(paid) == 4
    assert any(has_answered and reward == 1 for has_answered, reward in paid), paid


def shown(served: Served, index: int) -> list[dict[str, Any]]:
    """A problem of the file that is solved by one call, as it looks in a session."""
    question = served.problems.get("train", index).statement
    line = f"submit_final_answer({question.removeprefix('What is ').removesuffix('?')})"
    prompt, (step,), _ = served.direct([line], index=index, seed=0)
    call = {"name": "run_line", "arguments": {"line": line}}
    return [
        {"role": "user", "content": prompt},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "name": "run_line", "content": step.observation},
        {"role": "assistant", "content": "Done."},
    ]
