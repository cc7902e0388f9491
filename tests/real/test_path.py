"""A pretrained model by the commands of a person: one rollout, and a run of GRPO of each kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from small_run import set_words, small

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel]

Call = Callable[..., tuple[int, str, str]]
SHORT = ("sampling.max_lines=3", "sampling.max_line_tokens=16", "sampling.max_tokens=100")


@pytest.mark.parametrize("transcript", ["python", "chat"])
def test_a_rollout_passes_all_its_checks(
    call: Call, gguf: Path, folder: Path, transcript: str
) -> None:
    form = (f"transcript={transcript}", "sampling.device=cpu", *SHORT)
    code, out, err = call("rollout", "--model", str(gguf), *set_words(*form))
    assert (code, "!!" in out) == (0, False), out + err
    (gap,) = re.findall(r"^ok  gap +largest (\S+) nats", out, re.M)
    assert float(gap) < 1e-4
    for check in ("mask", "shift by one", "sampled ids", "observations"):
        assert re.search(rf"^ok  {check} ", out, re.M), out


@pytest.mark.parametrize("rank", [0, 8], ids=["whole", "lora"])
def test_a_run_ends_with_weights_that_transformers_loads(
    call: Call, gguf: Path, folder: Path, tmp_path: Path, rank: int
) -> None:
    steps = small(
        grpo__steps=1, grpo__problems_per_step=2, sampling__max_in_flight=8, eval__problems=1
    )
    rate = 1e-3 if rank else 1e-5
    learns = (f"lora.rank={rank}", f"grpo.learning_rate={rate}", "grpo.warmup_steps=0", *SHORT)
    given = ("train", "--model", str(gguf), "--output", "run")
    code, out, err = call(*given, *steps, *set_words(*learns))
    assert code == 0, out + err

    final = tmp_path / "run" / "checkpoints" / "final"
    assert (final / "adapter_model.safetensors").exists() is bool(rank)
    trained: Any = AutoModelForCausalLM.from_pretrained(final)
    before: Any = AutoModelForCausalLM.from_pretrained(folder)
    ids = AutoTokenizer.from_pretrained(final)(">>> 1 + 1\n2\n>>>", return_tensors="pt").input_ids
    with torch.no_grad():
        gap = (trained(ids).logits - before(ids).logits).abs().max()
    assert 0 < gap < 5


def test_a_warm_start_leaves_a_model_that_every_command_takes(
    call: Call, gguf: Path, folder: Path, tmp_path: Path
) -> None:
    """Shown transcripts of a person's own: an adapter learns, and is merged out of place."""
    shown = [
        f"=== {n} and two\nstatement: {n} + 2?\n\n>>> submit_final_answer({n} + 2)\n"
        for n in range(8)
    ]
    (tmp_path / "sums.repl").write_text("\n".join(shown))
    few = ("warmstart.problems_before=0", "eval.problems=1", "sandbox.standby=1", *SHORT)
    given = ("warmstart", "--model", str(gguf), "--from", "sums.repl", "--output", "warm", "--json")
    code, out, err = call(*given, *set_words(*few, "sampling.device=cpu"))
    assert code == 0, out + err
    facts = json.loads(out)
    assert (facts["transcripts"], facts["steps"], facts["after"]["total"]) == (8, 1, 1)

    checkpoints = tmp_path / "warm" / "checkpoints"
    assert (checkpoints / "adapter" / "adapter_model.safetensors").exists()
    trained: Any = AutoModelForCausalLM.from_pretrained(checkpoints / "final")
    before: Any = AutoModelForCausalLM.from_pretrained(folder)
    moved = [
        name
        for name, weight in trained.named_parameters()
        if not torch.equal(weight, before.get_parameter(name))
    ]
    assert moved
    assert all("_proj" in name for name in moved)
    code, out, err = call("rollout", "--model", "warm", *set_words(*SHORT))
    assert (code, "!!" in out) == (0, False), out + err

    learns = ("lora.rank=8", "grpo.warmup_steps=0", *SHORT)
    steps = small(grpo__steps=1, grpo__problems_per_step=2, sampling__max_in_flight=8)
    words = (*steps, *set_words(*learns, "eval.problems=1"))
    code, out, err = call("train", "--model", "warm", "--output", "run", "--merge", *words)
    assert code == 0, out + err
    merged: Any = AutoModelForCausalLM.from_pretrained("run/checkpoints/merged")
    assert merged.config.vocab_size == before.config.vocab_size
    code, out, err = call("eval", "run", "--json", "--output", "measured")
    assert (code, json.loads(out)["total"]) == (0, 1), out + err
    code, out, err = call("ask", "3 + 2?", "--model", "run", *set_words(*SHORT))
    assert code in (0, 1), out + err  # 1: it has submitted nothing
    assert out.count(">>> # 3 + 2?") == 1
