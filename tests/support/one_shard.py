"""Findings of one rank about a model that is sharded over all of them, for test_shards.py.

    python one_shard.py MODEL ADAPTED SCORED OUTPUT [cuda]

MODEL and ADAPTED are folders, SCORED is a pickle of a step's trajectories in order. Leaves
`RANK.pt` in OUTPUT. On a GPU it trains MODEL, and no more.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch.distributed
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

from cpu_shards import AS_AN_ACCELERATE_CONFIG, shard_on_cpu
from repl_rl.config.sections import SamplingConfig
from repl_rl.credit.advantages import load_credit
from repl_rl.engines.base import AdaptedWeights, BusyEngine, SampledLine, Weights
from repl_rl.models.loading import LoadedModel, load_model, logprobs
from repl_rl.models.precision import Precision
from repl_rl.models.weights import gathered, inner_model, is_adapted, named_weights, whole_state
from repl_rl.records import Scored
from repl_rl.training.runtime import Runtime
from repl_rl.update.ranks import Ranks, launched
from repl_rl.update.trainer import WeightSample, make_trainer
from trainer_kit import Catch, byte_tokenizer, config_of

PROBE = [49, 43, 49, 10, 62]
CPU = torch.device("cpu")


def sharded(folder: str) -> LoadedModel:
    """A model whose layers are sharded one by one; if it is whole, the first behind a wrapper."""
    loaded = load_model(folder, device=CPU, precision=Precision())
    layers = inner_model(loaded.model).model.layers
    if not is_adapted(loaded.model):
        layers[0] = checkpoint_wrapper(layers[0])
    for layer in layers:
        fully_shard(layer)
    fully_shard(loaded.model)
    return loaded


class Own:
    """An engine that has the weights that it was given last, and samples the likeliest tokens."""

    label = ""

    def __init__(self, folder: str) -> None:
        self.loaded = load_model(folder, device=CPU, precision=Precision())
        self.given: dict[str, torch.Tensor] = {}
        self.adopted: list[str] = []
        self.num_sampled = 0

    async def sync(self, weights: Weights, *, version: int) -> None:
        self.label, self.given = f"of {version}", dict(weights)
        missing = self.loaded.model.load_state_dict(self.given, strict=False).missing_keys
        assert not missing

    async def adopt(self, label: str, *, version: int) -> None:
        self.adopted.append(label)

    async def sleep(self) -> None: ...

    async def aclose(self) -> None: ...

    async def line(self, ids: Sequence[int], *, max_tokens: int, seed: int) -> SampledLine:
        self.num_sampled += 1
        found = (100 + seed % 50, 10)
        scores = logprobs(self.loaded, [*ids, *found], len(ids), temperature=1.0)
        # The first probe is off by too much, so that there is a second.
        off = 0.0013 * (self.num_sampled == 1)
        end: Any = "newline"
        return SampledLine(
            ids=found, logprobs=tuple(one + off for one in scores), end=end, policy_version=0
        )


class TakesAdapter(Own):
    """One that reads the adapter alone, and adds it to weights of its own."""

    def __init__(self, folder: str, saved: Path) -> None:
        self.folder, self.saved = folder, saved
        super().__init__(folder)

    async def sync(self, weights: Weights, *, version: int) -> None:
        assert isinstance(weights, AdaptedWeights)
        self.label = str(self.saved)
        assert weights.why_whole() is None
        self.saved.mkdir()
        weights.save_adapter(self.saved)
        self.loaded = load_model(str(self.saved), device=CPU, precision=Precision())


class Alone(Own):
    """One that other ranks do not share."""

    adopt = None  # type: ignore[assignment]


def synced(loaded: LoadedModel, engine: Own, ranks: Ranks) -> dict[str, Any]:
    """Return what `Runtime.sync` gives an engine, and the forwards of this rank."""
    num_forwards = 0

    def count(*_: object) -> None:
        nonlocal num_forwards
        num_forwards += 1

    handle = loaded.model.register_forward_hook(count)
    runtime: Any = SimpleNamespace(
        engine=BusyEngine(engine), ranks=ranks, loaded=loaded, _probe=PROBE,
        plan=SimpleNamespace(sampling=SamplingConfig()), _run=asyncio.run, workers=None,
        _manner=SimpleNamespace(engine=engine, walks_weights=True),
    )  # fmt: skip
    runtime._score = lambda ids, start: Runtime._score(runtime, ids, start)
    gap = Runtime.sync(runtime, 3)
    handle.remove()
    return {
        "gap": gap,
        "walks": runtime._manner.walks_weights,
        "given": engine.given,
        "adopted": engine.adopted,
        "sampled": engine.num_sampled,
        "forwards": num_forwards,
    }


def updated(
    folder: str,
    everyone: list[Scored],
    output: Path,
    ranks: Ranks,
    *,
    resumes: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
) -> dict[str, Any]:
    """Weights and logs of two steps of the trainer under accelerate's FSDP2, and its forwards."""
    size = len(everyone) // ranks.world
    own = everyone[ranks.rank * size : (ranks.rank + 1) * size]
    num_forwards = 0

    def count(*_: object) -> None:
        nonlocal num_forwards
        num_forwards += 1

    # The first rank alone reads the weights, where there is no reference that all would read.
    is_read_by_all = "adapted" not in output.name
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = str(not is_read_by_all).lower()
    catch = Catch()
    config = config_of(
        1, steps=2, problems_per_step=3, group_size=4, micro_batch_size=3, warmup_steps=0,
        learning_rate=1e-3, importance="line", kl_beta=0.01, gradient_checkpointing=True,
    )  # fmt: skip
    config = replace(config, sampling=replace(config.sampling, device=device))
    model = load_model(folder, device=CPU, precision=Precision()).model
    trainer = make_trainer(
        model=model,
        tokenizer=byte_tokenizer(),
        collect=lambda _numbers, _version: own,
        settings=config,
        credit=load_credit(config.grpo),
        precision=Precision(),
        folder=output,
        callbacks=[catch],
    )
    trainer.args.save_steps = 1
    model.register_forward_hook(count)
    trainer.train(resume_from_checkpoint=str(output / "checkpoint-1") if resumes else None)
    assert trainer.model is model
    weights = dict(gathered(named_weights(model), is_kept=True))
    return {"weights": weights, "rows": catch.rows, "forwards": num_forwards}


def main(
    model: str,
    adapted: str,
    scored: str,
    output: str,
    device: Any = "cpu",  # or "cuda", as text
) -> None:
    ranks, folder = launched(), Path(output)
    everyone: list[Scored] = pickle.loads(Path(scored).read_bytes())
    if device == "cuda":
        os.environ |= AS_AN_ACCELERATE_CONFIG
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
        found = {"updated model": updated(model, everyone, folder / "run", ranks, device=device)}
    else:
        torch.set_num_threads(1)
        shard_on_cpu()
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        torch.distributed.init_process_group("gloo")
        found = all_of(model, adapted, everyone, folder, ranks)
    torch.save(found, folder / f"{ranks.rank}.pt")
    torch.distributed.destroy_process_group()


def all_of(
    model: str, adapted: str, everyone: list[Scored], folder: Path, ranks: Ranks
) -> dict[str, Any]:
    """Whatever test_shards.py looks at."""
    found: dict[str, Any] = {}
    for name, path in (("model", model), ("adapted", adapted)):
        loaded = sharded(path)
        sample = WeightSample(loaded.model.parameters(), size=10**6, seed=0)
        score = logprobs(loaded, [*PROBE, *PROBE], len(PROBE), temperature=1.0)
        state = whole_state(loaded.model, is_kept=ranks.is_first)
        if ranks.is_first:
            loaded.save(folder / f"{name}-saved", state=state)
        found[name] = {
            "weights": dict(named_weights(loaded.model)),
            "kept": len(gathered(named_weights(loaded.model), is_kept=ranks.is_first)),
            "score": score,
            "sampled": sample.values().numel(),
            "sum": sample.values().double().sum().item(),
        }
    found["shared"] = synced(sharded(model), Own(model), ranks)
    found["alone"] = synced(sharded(model), Alone(model), ranks)
    found["added"] = synced(sharded(adapted), Own(model), ranks)
    found["by itself"] = synced(sharded(adapted), TakesAdapter(adapted, folder / "alone"), ranks)
    for name, path in (("model", model), ("adapted", adapted)):
        for resumes in (False, True):
            key = f"{'resumed' if resumes else 'updated'} {name}"
            found[key] = updated(path, everyone, folder / f"run-{name}", ranks, resumes=resumes)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
