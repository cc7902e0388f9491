"""Laws of a run's card: it says how the weights were made, and nothing of where."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from push_hub import checkpoint, ended_run
from repl_rl.config.resolve import resolve
from repl_rl.runs.folder import WarmRecord, write_record
from repl_rl.training.publish import card_files, has_card, write_card

HIDDEN = ("/home", "somebody", "/srv", "secret")


def card_of(run: Path, name: str = "final") -> str:
    return card_files(run, run / "checkpoints" / name)["README.md"].decode()


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0]


def test_a_card_says_how_whole_weights_were_trained_and_how_they_did(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run", "grpo.group_size=4", "seed=7")
    text = card_of(run)
    card = ModelCard(text)
    assert card.data.to_dict() == {  # type: ignore[no-untyped-call]
        "base_model": "owner/small",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["repl-rl", "trl", "grpo", "reinforcement-learning"],
    }
    assert section(text, "Training").splitlines() == [
        "|  |  |",
        "| -- | -- |",
        "| task | `sympy-proofs` |",
        "| transcript | `python` |",
        "| began as | `owner/small` |",
        "| steps | 40 |",
        "| problems per step | 8 |",
        "| trajectories of a problem | 4 |",
        "| reward | `shaped` |",
        "| credit | `line_local` |",
        "| loss | `dapo` |",
        "| learning rate | 1e-06 |",
    ]
    # Wilson's intervals of 96 and 150 of 200, worked out apart.
    assert section(text, "Held-out problems").splitlines()[:4] == [
        "|  | solved | 95 % interval | problems |",
        "| -- | -- | -- | -- |",
        "| before | 48.0 % | 41.2 % to 54.9 % | 200 |",
        "| after | 75.0 % | 68.6 % to 80.5 % | 200 |",
    ]
    assert "![Solve rate by step](curve.png)" in text
    assert 'AutoModelForCausalLM.from_pretrained("MODEL")' in text
    assert "| repl_rl | `0.1.0` |" in text
    assert "arxiv.org/abs/2402.03300" in text


def test_the_card_of_a_warm_start_says_what_was_shown(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run", "lora.rank=8")
    record = WarmRecord(transcripts=586, steps=40, learning_rate=1e-3)
    write_record(run, record)
    text = card_of(run)
    front = ModelCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    assert front["tags"] == ["repl-rl", "trl", "sft"]
    assert section(text, "Training").splitlines()[5:] == [
        "| steps | 40 |",
        "| transcripts | 586 |",
        "| transcripts of a step | 8 |",
        "| trained on | lines alone |",
        "| learning rate | 0.001 |",
        "| LoRA, merged | rank 8, alpha 32 |",
    ]
    assert "| after | 75.0 % |" in section(text, "Held-out problems")
    assert "GRPO" not in text


def test_its_settings_are_a_config_that_gives_the_same_run(tmp_path: Path) -> None:
    given = ["grpo.group_size=4", "trl.lr_scheduler_type=cosine", "reward.line.timeout=-0.05"]
    run = ended_run(tmp_path / "run", *given)
    (tmp_path / "settings.toml").write_text(
        section(card_of(run), "Settings").partition("```toml\n")[2].removesuffix("```")
    )
    flags = {"model": "owner/small"}
    assert resolve(files=[tmp_path / "settings.toml"], flags=flags) == resolve(
        overrides=["model=owner/small", "grpo.steps=40", *given]
    )


def test_the_card_of_an_adapter_names_peft_and_what_it_belongs_to(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run", "lora.rank=16", "report.hub=me/it")
    adapter = checkpoint(run / "checkpoints" / "checkpoint-20", base="owner/small")
    text = card_of(run, adapter.name)
    data = ModelCard(text).data
    assert (data.get("library_name"), data.get("base_model")) == ("peft", "owner/small")
    assert text.partition("---\n\n")[2].startswith("# `it`\n\nAn adapter (LoRA) that")
    rows = section(text, "Training").splitlines()
    assert "| adapter of | `owner/small` |" in rows
    assert "| steps | 20 |" in rows
    assert "| LoRA | rank 16, alpha 32 |" in rows
    assert "| after | not measured |  |  |" in text
    assert "from peft import AutoPeftModelForCausalLM\n" in text
    assert 'AutoPeftModelForCausalLM.from_pretrained("me/it")' in text


def test_the_card_of_the_best_weights_is_that_of_their_measurement(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        for step, rate in ((10, 0.6), (20, 0.8), (30, 0.8)):
            row = {"step": step, "eval_solve_rate": rate, "eval_total": 200}
            file.write(f"{json.dumps(row)}\n")
    text = card_of(run, "best")
    assert "| steps | 20 |" in text
    assert "| after | 80.0 % | 73.9 % to 85.0 % | 200 |" in text


@pytest.mark.parametrize("rate", ["1e-6", "1e-5", "2e-4"])
def test_the_settings_of_an_adapter_give_its_learning_rate(tmp_path: Path, rate: str) -> None:
    run = ended_run(tmp_path / "run", "lora.rank=16", f"grpo.learning_rate={rate}")
    (tmp_path / "settings.toml").write_text(
        section(card_of(run), "Settings").partition("```toml\n")[2].removesuffix("```")
    )
    again = resolve(files=[tmp_path / "settings.toml"], flags={"model": "owner/small"})
    assert again.grpo.learning_rate == float(rate)


@pytest.mark.parametrize("base", [None, "/home/somebody/my models/small one"])
def test_no_folder_of_this_machine_is_in_a_card(tmp_path: Path, base: str | None) -> None:
    model = "/home/somebody/my models/small one"
    run = ended_run(
        tmp_path / "run",
        'sampling.weights_dir="/srv/secret"',
        'sampling.servers=["http://secret:8000"]',
        "sandbox.warmup=[\"open('/home/somebody/x')\"]",
        'trl.dataset_num_proc="see file:/home/somebody/data.jsonl"',
        policy=model,
    )
    checkpoint(run / "checkpoints" / "mine", base=base)
    text = card_of(run, "mine")
    assert "`small one`" in text
    assert [one for one in (*HIDDEN, str(tmp_path)) if one in text] == []
    assert 'trl.dataset_num_proc = "see file:data.jsonl"' in text
    assert ModelCard(text).data.get("base_model") is None


def test_weights_of_another_run_are_named_by_that_run(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run", policy="/home/somebody/runs/first/checkpoints/final")
    assert "| began as | `final of first` |" in card_of(run)


def test_the_starter_is_named_by_its_task(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run")
    model = 'model = "owner/small"\npreset = "none"\n'
    text = (run / "config.toml").read_text().replace(model, 'preset = "starter"\n')
    (run / "config.toml").write_text(text)
    (run / "versions.json").write_text('{"policy": "/home/somebody/.cache/starter"}')
    card = card_of(run)
    assert "| began as | the starter policy of `sympy-proofs` |" in card
    assert "somebody" not in card


def test_names_stay_names(tmp_path: Path) -> None:
    """No name ends the front matter, a cell, a quotation or a block of code."""
    run = ended_run(tmp_path / "r`|un\n---\ntags: [x]", "task='a|b`\\n---\\n```:c'")
    text = card_of(run)
    assert ModelCard(text).data.get("tags") == ["repl-rl", "trl", "grpo", "reinforcement-learning"]
    assert text.count("\n---\n") == 1
    assert "\n# `r'\\|un\\n---\\ntags: [x]`\n" in text
    fenced = section(text, "Settings").partition("```toml\n")[2].partition("\n```")[0]
    assert tomllib.loads(fenced)["grpo"] == {"steps": 40}


def test_a_card_that_somebody_has_changed_is_known(tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run")
    final = run / "checkpoints" / "final"
    assert not has_card(final)
    (final / "README.md").write_text("---\ntags: [lora]\n---\nof peft")
    assert not has_card(final)
    write_card(run, final)
    assert (final / "curve.png").read_bytes() == b"a picture"
    (final / "README.md").write_text((final / "README.md").read_text() + "\nMine.\n")
    assert has_card(final)
