"""The starter policy, in small: what it is made of, and that it is made whole or not at all."""

import asyncio
import contextlib
import hashlib
import importlib
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from repl_rl.config.sections import STARTER_PRESET, SandboxConfig
from repl_rl.progress import Note, ignore
from repl_rl.records import Attempt, Split, StopReason, Trajectory
from repl_rl.rollout.runner import kernel_pool
from repl_rl.rollout.sampler import ScriptSampler, fixed_script
from repl_rl.tasks.sympy_proofs import SympyProofs
from repl_rl.training.starter import (
    VERSION,
    Recipe,
    build,
    collect,
    common_lines,
    encode_example,
    made_elsewhere,
    pieces,
    starter_path,
    train_tokenizer,
)
from repl_rl.transcript.format import Prompt, setup_sources
from repl_rl.transcript.tokens import TokenizerCodec
from repl_rl.update.sft import MuonAdamW, batch_order
from repl_rl.update.token_tree import IGNORED
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import Kernel

pytestmark = pytest.mark.slow

SMALL = Recipe(
    num_demonstrations=12, steps=2, batch_size=4, hidden_size=32, intermediate_size=64, num_layers=2
)


@pytest.fixture(scope="module")
def demonstrations() -> list[Trajectory]:
    async def run() -> list[Trajectory]:
        task = SympyProofs()
        async with kernel_pool(SandboxConfig(standby=2), setup=setup_sources(task.prompt)) as pool:
            return await collect(task, pool, SMALL, max_in_flight=4, update=ignore)

    return asyncio.run(run())


@pytest.mark.kernel
def test_a_demonstration_is_the_prompt_then_lines_and_what_really_came_back(
    demonstrations: Sequence[Trajectory],
) -> None:
    for trajectory in demonstrations:
        parts = list(pieces(trajectory))
        assert parts[0] == (trajectory.prompt_text, False)
        num_sampled = [is_sampled for _, is_sampled in parts[1:]].count(True)
        gives_up = trajectory.stop_reason is StopReason.EOS
        assert num_sampled == len(trajectory.lines) + gives_up
        assert all(text.endswith((">>>", "...")) for text, sampled in parts if not sampled)


@pytest.mark.kernel
@pytest.mark.train
def test_demonstrations_come_in_the_form_that_is_asked_for() -> None:
    class Mute(ScriptSampler):
        async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
            made = ScriptSampler(
                lambda _: fixed_script(["# mute"]),
                self.encoding,
                self.limits,
                context_tokens=self.context_tokens,
            )
            return await made.sample(attempt, prompt, kernel)

    found = asyncio.run(
        collect(
            SympyProofs(),
            FakeKernels(),
            Recipe(num_demonstrations=2),
            max_in_flight=1,
            update=ignore,
            make_scripts=Mute,
        )
    )
    assert [line.source for one in found for line in one.lines] == [" # mute\n"] * 2


def test_the_starter_is_a_qwen3_with_a_small_tokenizer_of_single_digits(
    demonstrations: Sequence[Trajectory], tmp_path: Path
) -> None:
    build(demonstrations, SMALL, tmp_path / "starter", update=ignore)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "starter")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "starter")
    assert model.config.model_type == "qwen3"
    assert len(tokenizer) <= 2000
    assert len(tokenizer.encode("1234567")) == 7
    assert [entry.name for entry in tmp_path.iterdir()] == ["starter"]


@pytest.mark.kernel
@pytest.mark.train
def test_a_starter_that_fails_half_way_leaves_nothing_behind(
    demonstrations: Sequence[Trajectory], tmp_path: Path
) -> None:
    def stop(done: int, note: Note = "", total: int = 0) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(demonstrations, SMALL, tmp_path / "starter", update=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_starter_is_cached_by_its_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPL_RL_CACHE", str(tmp_path))
    one, two = starter_path(SympyProofs(), Recipe()), starter_path(SympyProofs(), Recipe(steps=1))
    assert one != two
    assert one == starter_path(SympyProofs(), Recipe())
    assert one.parent == tmp_path / "starters"


def test_a_task_of_ones_own_is_another_starter_when_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "own_starter_task.py"
    path.write_text("class Own:\n    name, prompt = 'own', '# {{problem}}'\n")
    own: Any = importlib.import_module("own_starter_task")

    first = starter_path(own.Own(), SMALL)
    assert starter_path(own.Own(), SMALL) == first
    path.write_text(path.read_text() + "# another\n")
    assert starter_path(own.Own(), SMALL) != first


def test_what_scripts_write_is_of_the_version_that_starters_are_cached_by() -> None:
    """VERSION changes with the digest: starters in caches have seen the old lines."""
    task, rng, digest = SympyProofs(), random.Random(0), hashlib.blake2b(digest_size=8)
    for problem in itertools.islice(task.problems(Split.TRAIN, seed=0), 60):
        digest.update(f"{problem.statement}\n{next(task.demonstrate(problem, rng))}\n".encode())
    assert (VERSION, digest.hexdigest()) == (4, "c52d995856dce757")


@pytest.mark.kernel
@pytest.mark.train
def test_a_starter_says_what_else_it_was_made_with(
    demonstrations: Sequence[Trajectory], tmp_path: Path
) -> None:
    build(demonstrations, SMALL, tmp_path / "starter", update=ignore)
    assert made_elsewhere(tmp_path / "starter") is None
    recipe = tmp_path / "starter" / "recipe.json"
    made = json.loads(recipe.read_text())
    recipe.write_text(json.dumps(made | {"versions": made["versions"] | {"torch": "1.0"}}))
    assert made_elsewhere(tmp_path / "starter") == "with torch 1.0"
    recipe.unlink()
    assert made_elsewhere(tmp_path / "starter") == "by another version of repl-rl"


def test_an_expression_has_the_same_tokens_in_a_statement_and_in_code() -> None:
    tokenizer: Any = train_tokenizer(
        ["# Solve: 3*x**2 - 6*x = 0\n", " solve(3*x**2 - 6*x, x)\n"], 400
    )
    codec = TokenizerCodec(tokenizer, eos_ids=[0])
    expression = codec.encode("3*x**2 - 6*x")
    for text in ("# Solve: 3*x**2 - 6*x = 0\n", " solve(3*x**2 - 6*x, x)\n"):
        ids = codec.encode(text)
        at = ids.index(expression[0])
        assert ids[at : at + len(expression)] == expression


def test_every_scripted_line_is_one_that_a_starter_may_sample() -> None:
    """The longest ones have both sides of an identity and a bracket too many."""
    task = SympyProofs()
    lines = set()
    for number, problem in enumerate(itertools.islice(task.problems(Split.TRAIN, seed=5), 800)):
        script = task.demonstrate(problem, random.Random(number))
        if "truth" in problem.meta:
            lines.add("simplify({lhs} - ({rhs})))".format_map(problem.meta))
        with contextlib.suppress(StopIteration):
            lines.add(next(script))
            while True:
                lines.add(script.send("?"))
    sources = [f" {line}\n" for line in sorted(lines)]
    encode = train_tokenizer(sources, 1024).encode
    longest = max(len(encode(source)) for source in sources)
    assert longest <= STARTER_PRESET["sampling"]["max_line_tokens"]


def test_labels_stand_on_sampled_pieces_alone() -> None:
    tokenizer: Any = train_tokenizer(["x = 1\n>>>"], 300)
    codec = TokenizerCodec(tokenizer, eos_ids=[0])
    ids, labels = encode_example([(">>>", False), (" x\n", True), (">>>", False)], codec)
    assert codec.decode(ids) == ">>> x\n>>>"
    assert codec.decode([label for label in labels if label != IGNORED]) == " x\n"


def test_lines_that_prompts_share_are_found() -> None:
    assert common_lines([">>> import a\n>>> # 1\n>>>", ">>> import a\n>>> # 2\n>>>"]) == [
        ">>> import a"
    ]


def test_a_line_that_one_kind_of_problem_shares_is_common_and_a_repeated_problem_is_not() -> None:
    """One in a hundred of 300 prompts is 3: `few` stands in 3, `fewer` in 2, `again` in one."""
    prompts = [f">>> import a\n>>> # {number}\n>>>" for number in range(294)]
    prompts += [f">>> import a\n>>> # {name} few\n>>> # few\n>>>" for name in "abc"]
    prompts += [f">>> import a\n>>> # {name} fewer\n>>> # fewer\n>>>" for name in "ab"]
    prompts += [">>> import a\n>>> # again\n>>>"] * 10
    assert common_lines(prompts) == [">>> import a", ">>> # few"]


def test_batches_hold_like_lengths_and_every_example_once_an_epoch() -> None:
    examples = [([0] * n, [0] * n) for n in range(1, 65)]
    ordered = batch_order(examples, batch_size=4, count=64, seed=0)
    assert sorted(len(ids) for ids, _ in ordered) == list(range(1, 65))
    for start in range(0, 64, 4):
        lengths = [len(ids) for ids, _ in ordered[start : start + 4]]
        assert max(lengths) - min(lengths) == 3


def test_a_rate_set_on_the_outside_reaches_both_optimizers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.LayerNorm(4))
    optimizer = MuonAdamW(model, matrix_learning_rate=0.1, learning_rate=0.1)
    optimizer.load_state_dict(optimizer.state_dict())  # as accelerate does: the groups are copies
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    before = [parameter.clone() for parameter in model.parameters()]
    model(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
