"""Measure a sync with a vLLM server: `python benchmarks/sync.py [--server URL --model PATH]`.

Prints bytes, seconds and the seconds in which the server samples nothing, by the way that weights
take: whole by a file, or an adapter by itself. The server must be fresh, serve this model and take
adapters (docs/engines.md). Without one, bytes are computed for the shapes of Qwen3-8B and
Qwen3-32B, and seconds at the rates that are printed with them.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from repl_rl.config.sections import LoraConfig
from repl_rl.engines.vllm.replica import Replica
from repl_rl.engines.vllm.server import VLLMServerEngine
from repl_rl.models.loading import LoadedModel, load_weights, read_files, to_train
from repl_rl.models.precision import Precision
from repl_rl.models.weights import leaving_weights, named_weights

ROW = "{:22}{:>5}  {:34}{:>10}{:>8}{:>8}"
DISK, NETWORK = 1e9, 8e9
"""Bytes a second to write and to read a shared disk, and between two GPUs of two machines."""


class Shape(NamedTuple):
    """As much of a model as says how large it and its adapter are."""

    name: str
    num_weights: float
    layers: int
    hidden: int
    mlp: int
    heads: int
    """Columns of all query heads."""
    keys: int
    """Columns of all keys."""


SHAPES = (
    Shape("Qwen3-8B", 8.19e9, 36, 4096, 12288, 4096, 1024),
    Shape("Qwen3-32B", 32.76e9, 64, 5120, 25600, 8192, 1024),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server")
    parser.add_argument("--model")
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--tries", type=int, default=5)
    args = parser.parse_args()
    print(ROW.format("model", "rank", "way", "MiB", "s", "still"))
    if args.server is not None:
        for rank in args.ranks:
            asyncio.run(measured(args, rank, is_whole=False))
        asyncio.run(measured(args, args.ranks[0], is_whole=True))
    for shape in SHAPES:
        computed(shape, args.ranks)


def say(model: str, rank: object, way: str, num_bytes: float, seconds: float, still: float) -> None:
    """Print a row."""
    mib = f"{num_bytes / 2**20:,.0f}"
    print(ROW.format(model, rank, way, mib, f"{seconds:.2f}", f"{still:.2f}"), flush=True)


async def measured(args: argparse.Namespace, rank: int, *, is_whole: bool) -> None:
    """The best of several syncs; other work only ever slows."""
    files = to_train(read_files(args.model), LoraConfig(rank=rank))
    loaded = load_weights(files, device=torch.device("cpu"), precision=Precision())
    still: list[float] = []
    watch_pauses(still)
    engine = opened(loaded, args.server)
    seconds = []
    try:
        await engine.open()
        for version in range(args.tries):
            weights = named_weights(loaded.model) if is_whole else leaving_weights(loaded.model)
            begun = time.perf_counter()
            await engine.sync(weights, version=version)
            seconds.append(time.perf_counter() - begun)
    finally:
        await engine.aclose()
    assert is_whole or "alone" in engine.about, engine.about
    name = Path(args.model).stem[:20]
    size = num_bytes(named_weights(loaded.model)) if is_whole else adapter_bytes(loaded.model)
    way = "whole, a file" if is_whole else "adapter, a folder"
    say(name, "" if is_whole else rank, way, size, min(seconds), min(still, default=0.0))


def opened(loaded: LoadedModel, url: str) -> VLLMServerEngine:
    """An engine that is asked for no line."""
    return VLLMServerEngine(
        [url],
        newline_ids=loaded.codec.newline_ids,
        eos_ids=loaded.codec.eos_ids,
        vocabulary=loaded.model.get_input_embeddings().num_embeddings,
        row_tokens=64,
    )


def watch_pauses(still: list[float]) -> None:
    """Have `still` get the seconds of each whole load, in which a server samples nothing."""
    update: Any = getattr(Replica.update, "unwatched", Replica.update)

    async def watched(self: Replica, *args: Any, **kwargs: Any) -> None:
        begun = time.perf_counter()
        await update(self, *args, **kwargs)
        still.append(time.perf_counter() - begun)

    watched.unwatched = update  # type: ignore[attr-defined]
    Replica.update = watched  # type: ignore[method-assign]


def num_bytes(weights: Iterable[tuple[str, torch.Tensor]]) -> int:
    return sum(one.nbytes for _, one in weights)


def adapter_bytes(model: Any) -> int:
    """Bytes of the files that leave."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return sum(one.stat().st_size for one in Path(folder).iterdir())


def computed(shape: Shape, ranks: list[int]) -> None:
    """Rows of a model in bfloat16 and of its adapter in float32, on all linear layers."""
    whole = 2 * shape.num_weights
    say(shape.name, "", "whole, a file at 1 GB/s", whole, 2 * whole / DISK, whole / DISK)
    say(shape.name, "", "whole, memory at 8 GB/s", whole, whole / NETWORK, whole / NETWORK)
    hidden, mlp, heads, keys = shape.hidden, shape.mlp, shape.heads, shape.keys
    sides = 2 * (hidden + heads) + 2 * (hidden + keys) + 3 * (hidden + mlp)
    for rank in ranks:
        size = 4 * shape.layers * rank * sides
        say(shape.name, rank, "adapter, a folder at 1 GB/s", size, 2 * size / DISK, 0.0)


if __name__ == "__main__":
    main()
