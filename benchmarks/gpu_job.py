"""Machine, size and model that `benchmarks/gpu.py` measures a row on.

Knows how a model is loaded and an engine opened. Does not know the rows.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

VOCABULARY = 1024
"""Ids of the tiny model."""
LINE_TOKENS = 12
"""Mean length of a line of random weights: one id in so many ends in a newline."""
Cells = dict[str, Any]


def save_model(folder: Path) -> None:
    """Random weights, and a tokenizer whose every id is text: some of it ends a line."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    newline = "\u010a"
    more = (f"x{n}{'' if n % LINE_TOKENS else newline}" for n in range(VOCABULARY))
    names = [*[*letters, *more][: VOCABULARY - 1], "<|end|>"]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        head_dim=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


class Job:
    """Machine, size and model that a row is measured on."""

    def __init__(self, device: str, size: str, model: str | None) -> None:
        self.device, self.is_tiny = device, size == "tiny"
        self.is_cuda = device == "cuda"
        self._folder = tempfile.TemporaryDirectory(prefix="repl-rl-rows-")
        self.folder = Path(self._folder.name)
        if model is None:
            model = str(self.folder / "model")
            save_model(Path(model))
        self.model = model

    def take_shape(self) -> None:
        """Give it a model of random weights in the shape of Qwen3-0.6B."""
        from memory import SIZES, save_model

        small = SIZES["0.1B"] | {"num_hidden_layers": 2, "vocab_size": VOCABULARY}
        folder = self.folder / "shaped"
        save_model(folder, small if self.is_tiny else SIZES["0.6B"], self.device)
        self.model = str(folder)

    def pick(self, small: int, usual: int) -> int:
        return small if self.is_tiny else usual

    def note(self, **cells: Any) -> None:
        """Keep what is known so far, even if the row does not come to its end."""
        print("ROW " + json.dumps(cells), flush=True)

    def load(self, *, update: str = "bfloat16", sampling: str = "bfloat16", rank: int = 0) -> Any:
        """The model in float32, to be sampled and updated in these types."""
        import torch

        from repl_rl.config.sections import LoraConfig
        from repl_rl.models.loading import load_weights, read_files, to_train
        from repl_rl.models.precision import Precision

        files = to_train(read_files(self.model), LoraConfig(rank=rank))
        held = Precision(
            update=getattr(torch, update), sampling=getattr(torch, sampling), is_shared=True
        )
        return load_weights(files, device=torch.device(self.device), precision=held)

    def engine(self, loaded: Any, *, is_fixed: bool, num_rows: int, row_tokens: int) -> Any:
        from repl_rl.engines.hf.engine import HFEngine

        never: frozenset[int] = frozenset()
        started = time.perf_counter()
        make = functools.partial(
            HFEngine,
            loaded.model,
            newline_ids=never,
            eos_ids=never,
            num_rows=num_rows,
            row_tokens=row_tokens,
            dtype=loaded.precision.sampling,
            is_fixed=is_fixed,
        )
        engine = make()
        if is_fixed and engine._steps is None and self.is_cuda:
            import torch

            self.note(**{f"open {num_rows} graph by default": engine.about})
            torch.backends.cuda.enable_cudnn_sdp(False)
            engine = make()
        self.note(**{f"open {num_rows} {'graph' if is_fixed else 'plain'}": (
            f"{time.perf_counter() - started:.2f} s, {engine.about or 'as on a CPU'}"
        )})  # fmt: skip
        if is_fixed and engine._steps is None:
            raise RuntimeError(engine.about)
        return engine

    def sync(self) -> None:
        if self.is_cuda:
            import torch

            torch.cuda.synchronize()
