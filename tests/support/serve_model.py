"""A vLLM server in a few lines that has a model, and takes new weights from files.

    python serve_model.py MODEL HOST FILE

Writes its address to FILE when it listens, and serves until it is ended. Lines are sampled by
`examples/plain_engine.py`, one whole forward a token: what else is in flight changes none of them.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from fake_vllm import NO_TOKEN, Answer, FakeServer, reply

sys.path.append(str(Path(__file__).parents[2] / "examples"))


@dataclass
class ModelServer(FakeServer):
    """Server of one model."""

    model: Any = None

    async def _answer(self, path: str, body: Any) -> Answer:
        if path == "/collective_rpc" and body["method"] == "load_policy":
            weights = load_file(body["kwargs"]["path"])
            missing, unknown = self.model.load_state_dict(weights, strict=False)
            error = f"other weights: {missing} {unknown}" if missing or unknown else None
            return 200, {"results": [{"error": error}]}
        return await super()._answer(path, body)

    async def _line(self, body: Any) -> Answer:
        from plain_engine import PlainEngine

        params = body["sampling_params"]
        if allowed := params.get("allowed_token_ids"):
            is_known = allowed[0] < self.model.config.vocab_size
            return reply([*allowed], logprob=0.0) if is_known else NO_TOKEN
        await self._resumed.wait()
        ends = frozenset(params["stop_token_ids"])
        engine = PlainEngine(self.model, newline_ids=ends, eos_ids=frozenset())
        line = await engine.line(
            body["token_ids"], max_tokens=params["max_tokens"], seed=params["seed"]
        )
        return reply(line.ids, logprobs=line.logprobs)


async def main(model: str, host: str, file: str) -> None:
    torch.set_num_threads(1)
    loaded = AutoModelForCausalLM.from_pretrained(model)
    size = loaded.config.max_position_embeddings
    async with ModelServer(host=host, model=loaded, context_tokens=size) as server:
        write_whole(Path(file), server.url)
        await asyncio.Event().wait()


def write_whole(file: Path, text: str) -> None:
    aside = file.with_name(f"{file.name}.part")
    aside.write_text(text)
    aside.rename(file)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
