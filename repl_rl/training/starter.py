"""Make a task's starter policy: a small model trained on scripted transcripts that were executed.

    scripts -> kernels -> demonstrations, in bytes
    demonstrations -> tokenizer of its own -> Qwen3 of about a million weights -> a folder

Cached by a hash of the recipe, which has a version. The starter copies expressions
faithfully and fails by choice (a wrong tool, a guess, giving up): reinforcement can mend that.
Does not know the run that begins with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import itertools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from repl_rl.base import disk as cache
from repl_rl.base.concurrency import derive_seed, run_all
from repl_rl.base.disk import written_aside
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import LoraConfig, SamplingConfig, SandboxConfig
from repl_rl.models.loading import outline
from repl_rl.progress import Update
from repl_rl.records import Attempt, Problem, Split, StopReason, Trajectory
from repl_rl.rollout.runner import kernel_for
from repl_rl.rollout.sampler import ScriptSampler
from repl_rl.runs.folder import installed_versions
from repl_rl.tasks.base import Script, Task, TieredTask, demonstrable, make_prompt
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import PYTHON, spans
from repl_rl.transcript.tokens import ByteCodec, TokenizerCodec
from repl_rl.update.sft import Example, MuonAdamW, Reported, fit
from repl_rl.update.token_tree import IGNORED
from repl_sandbox.types import KernelSource

_UNLIMITED = SamplingConfig(
    max_lines=64, max_line_tokens=4096, max_tokens=65536, max_observation_tokens=16384
)
"""Bytes stand for tokens here: only the kernel's own cap in characters cuts an output."""


END_OF_TEXT = "<|endoftext|>"
COMMON_SHARE = 0.01
"""Share of all prompts: a line that so many have in common is one token."""
VERSION = 4
"""Version of how starters are made. Raise it where cached starters should be made anew."""
_RECIPE = "recipe.json"

_PIECES = (
    r">>>|\.\.\.| [-+*/%=<>!]+ |[,:] |\*\*| ?[A-Za-z_]{2,}|[A-Za-z_]|[0-9]|\n|[^\S\n]"
    r"|[^\sA-Za-z_0-9]"
)
"""Words, single letters and digits, operators with their spaces. No piece reaches across a border
of an expression, so it has the same tokens in a statement and in the line that copies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything the starter depends on. Its hash names the cached folder."""

    num_demonstrations: int = 6000
    steps: int = 1000
    batch_size: int = 32
    matrix_learning_rate: float = 0.03
    learning_rate: float = 3e-3
    vocab_size: int = 1024
    hidden_size: int = 144
    intermediate_size: int = 432
    num_layers: int = 4
    num_heads: int = 4
    context_tokens: int = 1024
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Made:
    """The file beside a starter's weights."""

    recipe: Recipe
    versions: dict[str, str]


def starter_path(task: Task, recipe: Recipe) -> Path:
    """Return the folder in which the starter of this recipe is, or will be, cached."""
    return cache.cache_folder("starters") / f"{task.name}-{recipe_hash(task, recipe)}"


def recipe_hash(task: Task, recipe: Recipe) -> str:
    """16 hex digits of the settings that a starter is made from; for the rest see `VERSION`.

    A task of somebody's own has no version: the file of its class stands for it.
    """
    settings = [VERSION, dataclasses.asdict(recipe), dataclasses.asdict(starter_sandbox())]
    choice = dataclasses.asdict(task.choice) if isinstance(task, TieredTask) else None
    digest = hashlib.blake2b(msgspec.json.encode([*settings, task.prompt, choice]), digest_size=8)
    if not type(task).__module__.startswith("repl_rl."):
        digest.update(Path(inspect.getfile(type(task))).read_bytes())
    return digest.hexdigest()


def made_elsewhere(starter: Path) -> str | None:
    """Name what a cached starter was made with, where that differs from what is here; else None."""
    try:
        made = msgspec.json.decode((starter / _RECIPE).read_bytes(), type=_Made).versions
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return "by another version of repl-rl"
    now = installed_versions(starter_sandbox().preload)
    del now["platform"]  # names the kernel, too; nothing depends on it
    other = [f"{name} {made[name]}" for name in now if made.get(name, now[name]) != now[name]]
    return f"with {', '.join(other)}" if other else None


def starter_sandbox() -> SandboxConfig:
    """The kernels of demonstrations, whatever a run sets for its own."""
    return resolve().sandbox


async def collect(
    task: Task,
    kernels: KernelSource,
    recipe: Recipe,
    *,
    max_in_flight: int,
    update: Update,
    make_scripts: type[ScriptSampler] = ScriptSampler,
) -> list[Trajectory]:
    """Run the recipe's scripts on different training problems; tokens in them are bytes.

    `make_scripts` is as `script_sampler` gives it. Raises ConfigError if the task has none to show.
    """
    shown, seed, done = demonstrable(task), recipe.seed, itertools.count(1)
    problems = task.problems(Split.TRAIN, seed=derive_seed(seed, "demo"))

    def write(attempt: Attempt) -> Script:
        rng = random.Random(derive_seed(seed, "script", attempt.group_index))
        return shown.demonstrate(attempt.problem, rng)

    sampler = make_scripts(write, Encoding(PYTHON, ByteCodec()), _UNLIMITED, context_tokens=1 << 20)

    async def run(numbered: tuple[int, Problem]) -> Trajectory:
        index, problem = numbered
        attempt = Attempt(
            problem=problem, group_index=index, sibling_index=0, seed=derive_seed(seed, index)
        )
        kernel = await kernel_for(problem, kernels, seed=attempt.seed)
        async with contextlib.aclosing(kernel):
            trajectory = await sampler.sample(attempt, make_prompt(task, problem, PYTHON), kernel)
        update(next(done))
        return trajectory

    numbered = enumerate(itertools.islice(problems, recipe.num_demonstrations))
    return await run_all(run, numbered, at_once=max_in_flight)


def check_cache(folder: Path) -> None:
    """ConfigError unless a starter can be written to `folder`; asked before minutes are spent."""
    cache.check(folder, "the starter")


def build(
    demonstrations: Sequence[Trajectory], recipe: Recipe, folder: Path, *, update: Update
) -> None:
    """Train tokenizer and model on demonstrations; `folder` appears whole or not at all.

    What was in `folder` is replaced.
    """
    check_cache(folder)
    scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    try:
        texts = [list(pieces(trajectory)) for trajectory in demonstrations]
        tokenizer: Any = train_tokenizer(
            ("".join(piece for piece, _ in one) for one in texts), recipe.vocab_size
        )
        tokenizer.add_tokens(common_lines([t.prompt_text for t in demonstrations]))
        codec = TokenizerCodec(tokenizer, eos_ids=[tokenizer.eos_token_id])
        torch.manual_seed(recipe.seed)
        model = make_model(recipe, tokenizer)
        fit(
            model,
            tokenizer,
            [encode_example(one, codec) for one in texts],
            steps=recipe.steps,
            batch_size=recipe.batch_size,
            optimizer=MuonAdamW(
                model,
                matrix_learning_rate=recipe.matrix_learning_rate,
                learning_rate=recipe.learning_rate,
            ),
            is_mixed=model.device.type == "cuda",
            seed=recipe.seed,
            scratch=scratch,
            callbacks=[Reported(update, rate="the learning rate of its recipe")],
        )
        with written_aside(folder) as whole:
            model.save_pretrained(whole)
            tokenizer.save_pretrained(whole)
            made = _Made(recipe=recipe, versions=installed_versions(starter_sandbox().preload))
            (whole / _RECIPE).write_bytes(msgspec.json.encode(made))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def pieces(trajectory: Trajectory) -> Iterable[tuple[str, bool]]:
    """(text, is_sampled) in order, prompt first: the borders at which tokens may not merge."""
    yield trajectory.prompt_text, False
    text = bytes(trajectory.completion_ids)
    for span in spans(trajectory):
        if span.is_sampled:
            yield trajectory.lines[span.line_index].source, True
        else:
            yield text[span.start : span.stop].decode(errors="replace"), False
    if trajectory.stop_reason is StopReason.EOS:
        yield END_OF_TEXT, True


def common_lines(prompts: Sequence[str]) -> list[str]:
    """Lines that many prompts share (banner, imports, the form of an answer of one kind).

    A token each halves what a step costs. A prompt that comes back counts once: what is to be
    copied out of a statement must stay in pieces.
    """
    different = dict.fromkeys(prompts)
    counts = Counter(line for one in different for line in dict.fromkeys(one.split("\n")))
    enough = max(2, COMMON_SHARE * len(different))
    return [
        line
        for line, count in counts.items()
        if count >= enough and line not in ("", PYTHON.primary)
    ]


def encode_example(parts: Iterable[tuple[str, bool]], codec: TokenizerCodec) -> Example:
    """(input_ids, labels): each piece encoded alone, as the loop does; labels on sampled ones."""
    ids: list[int] = []
    labels: list[int] = []
    for text, is_sampled in parts:
        if text == END_OF_TEXT:
            new = sorted(codec.eos_ids)
        else:
            # The first piece is the prompt.
            new = codec.encode(text, is_trusted=not ids, is_first=not ids)
        ids.extend(new)
        labels.extend(new if is_sampled else [IGNORED] * len(new))
    return ids, labels


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE that keeps digits single and expressions whole; any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )


def make_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 of the recipe's size with fresh weights."""
    return Qwen3ForCausalLM(
        _model_config(
            recipe,
            vocab_size=len(tokenizer),
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def check_adapter(lora: LoraConfig, recipe: Recipe) -> None:
    """ConfigError for an adapter on layers that a starter of this recipe will not have."""
    if lora.rank:
        from repl_rl.models.lora import new_adapter

        config = _model_config(recipe, vocab_size=recipe.vocab_size)
        new_adapter(lora, partial(outline, config), base="starter")


def _model_config(recipe: Recipe, **vocabulary: Any) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        # As many as query heads: shared ones would be copied apart at every step on a CPU.
        num_key_value_heads=recipe.num_heads,
        head_dim=recipe.hidden_size // recipe.num_heads,
        max_position_embeddings=recipe.context_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        **vocabulary,
    )
