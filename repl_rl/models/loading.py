"""Models read from a folder or the hub, to sample from and to train.

    name -> read_files -> ModelFiles -> load_weights -> LoadedModel -> logprobs of a trajectory

Also finds the ids that end a sequence, the device, the context and the memory that rows need. Says
in one line what is wrong when a model cannot be loaded. Knows transformers. Does not know tasks,
kernels or training.
"""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from repl_rl.base.disk import written_aside
from repl_rl.base.plugins import resolve_model
from repl_rl.config.sections import USUAL_MICRO_BATCH, LoraConfig, RunOn
from repl_rl.errors import ConfigError
from repl_rl.models.gguf import model_folder
from repl_rl.models.policy import Policy
from repl_rl.models.precision import Precision, autocast, keys_in
from repl_rl.models.weights import save_merged
from repl_rl.runs.folder import UPDATES
from repl_rl.transcript.chat import ChatTemplate, after_answers
from repl_rl.transcript.tokens import TokenizerCodec, control_tokens, forbidden_ids

_CALL = "<|call|>"
"""Ends a turn of a model of channels that calls a tool. No template shows it in an answer."""


def end_ids(generation: Any, config: Any, tokenizer: Any) -> list[int]:
    """All ids that end a sequence, in order: no file of a model need name them all.

    Any: a GenerationConfig, a PreTrainedConfig and a tokenizer of any model.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    named = [one.eos_token_id for one in (generation, config, text, tokenizer)]
    ends = {i for ids in named for i in (ids if isinstance(ids, list) else [ids])}
    return sorted({*ends, *_turn_ends(tokenizer)} - {None})


def _turn_ends(tokenizer: Any) -> Iterator[int]:
    """The control token that a chat template writes behind an answer, wherever that stands."""
    if not isinstance(tokenizer.chat_template, str):
        return
    controls = control_tokens(tokenizer)
    for text in after_answers(partial(tokenizer.apply_chat_template, tokenize=False)):
        first = tokenizer.encode(text.lstrip(), add_special_tokens=False)[:1]
        yield from (i for i in first if i in controls)
    if "<|channel|>" in tokenizer.chat_template:
        yield from (i for i, token in controls.items() if str(token) == _CALL)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Keep freed memory in this process from here on; without effect where libc is not glibc."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)


if TYPE_CHECKING:
    from repl_rl.models.lora import Adapter


@dataclass(frozen=True, kw_only=True)  # without slots: `vars` are its fields
class ModelFiles:
    """Facts about a model before its weights are read."""

    name: str
    """Name as it was given."""
    source: str
    """Folder, or `owner/name`, that it is loaded from."""
    base: str
    """Folder, or `owner/name`, of the whole weights: not `source` where that holds an adapter."""
    config: Any  # PreTrainedConfig
    tokenizer: Any  # PreTrainedTokenizerBase
    codec: TokenizerCodec
    context_tokens: int
    forbidden_ids: frozenset[int] = frozenset()
    """Ids that the policy never samples: neither engine nor trainer gives them a probability."""
    adapter: Adapter | None = None
    """Adapter that `source` holds beside the weights in `base`, or that is to be trained."""

    @property
    def vocabulary(self) -> int:
        """Number of ids that the model embeds."""
        return int(outline(self.config).get_input_embeddings().num_embeddings)

    @property
    def chat_template(self) -> ChatTemplate | None:
        """None where its tokenizer has none."""
        if self.tokenizer.chat_template is None:
            return None
        return partial(self.tokenizer.apply_chat_template, tokenize=False)


@dataclass(frozen=True, kw_only=True)
class LoadedModel(ModelFiles):
    """A model with its weights; its config is the model's own."""

    model: Any  # PreTrainedModel, or an Adapted one
    precision: Precision
    recomputes: bool = False
    """True where an update makes activations again: see `grpo.gradient_checkpointing`."""
    micro_batch_size: int = USUAL_MICRO_BATCH
    """Trajectories per forward and backward at most: see `grpo.micro_batch_size`."""
    spare_bytes: int = 0
    """Bytes of the device that an update does without; 0 where nobody has made an estimate."""

    def save(
        self,
        folder: Path,
        *,
        is_merged: bool = False,
        state: dict[str, torch.Tensor] | None = None,
        num_updates: int | None = None,
    ) -> None:
        """Write model and tokenizer, whole or not at all; what was there is replaced.

        `is_merged`: an adapter is added to its base, else it is saved alone. `state`: its weights,
        where it is sharded. `num_updates` is kept beside them. Raises StorageError where the disk
        refuses.
        """
        with written_aside(folder) as aside:
            if is_merged:
                save_merged(self.model, aside)
            else:
                self.model.save_pretrained(aside, state_dict=state)
            self.tokenizer.save_pretrained(aside)
            if num_updates is not None:
                (aside / UPDATES).write_text(f"{num_updates}\n")


def pick_device(
    requested: Literal["auto", "cpu", "cuda"], *, local_rank: int | None = None
) -> torch.device:
    """The device to run on; ConfigError for a GPU that is not there.

    Of several processes on this machine, `local_rank` is this one's number.
    """
    if requested == "cuda" and not torch.cuda.is_available():
        raise ConfigError("sampling.device = 'cuda', but torch sees no GPU; use 'auto' or 'cpu'")
    if requested == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank is None:
        return torch.device("cuda")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def about_device(device: torch.device, *, visible: str | None, nodes: Path = Path("/dev")) -> str:
    """`GPU 0 of 8`: which of the machine's GPUs torch may see, by CUDA_VISIBLE_DEVICES; `cpu`."""
    if device.type != "cuda":
        return device.type
    count = sum(re.fullmatch(r"nvidia\d+", node.name) is not None for node in nodes.iterdir())
    if count < 2:
        return "GPU"
    index = "0" if visible is None else visible
    if device.index is not None:  # one of those that torch may see
        index = str(device.index) if visible is None else visible.split(",")[device.index]
    return f"GPU {index} of {count}, chosen by CUDA_VISIBLE_DEVICES"


def silent(_text: str) -> None:
    """Say nothing: a `say` where nobody listens."""


def read_files(
    name: str, *, run_on: RunOn = "allow", say: Callable[[str], None] = silent
) -> ModelFiles:
    """Config and tokenizer of a causal language model, from a folder or the hub by `owner/name`.

    A folder may hold an adapter, whose file says which model it belongs to. A GGUF file is made a
    folder, which `say` hears of. `run_on` is as in `SamplingConfig`. Raises ConfigError if the
    model is not there, is another kind of model or cannot be sampled from.
    """
    source = model_folder(name, say=say)
    base = _base_of(source, say)
    if Path(base).is_dir() and not (Path(base) / "config.json").is_file():
        raise ConfigError(
            f"cannot load a model from {name!r}: there is no config.json in {base!r}; expected a "
            f"model's folder, a run, or a checkpoint of one"
        )
    with _refused(name):
        config = AutoConfig.from_pretrained(base)
        attention_windows(config)
        num_context = context_tokens(config)
        # An adapter may come without a tokenizer: it has its base's then.
        has_tokenizer = (Path(source) / "tokenizer_config.json").is_file()
        tokenizer: Any = AutoTokenizer.from_pretrained(source if has_tokenizer else base)
    try:
        generation = GenerationConfig.from_pretrained(base)
    except OSError:
        generation = GenerationConfig.from_model_config(config)
    codec = _codec(name, tokenizer, config, generation)
    adapter = None
    if base != source:
        from repl_rl.models.lora import stored_adapter

        adapter = stored_adapter(Path(source), partial(outline, config))
    return ModelFiles(
        name=name,
        source=source,
        base=base,
        config=config,
        tokenizer=tokenizer,
        codec=codec,
        context_tokens=num_context,
        forbidden_ids=forbidden_ids(codec, run_on),
        adapter=adapter,
    )


def _base_of(source: str, say: Callable[[str], None]) -> str:
    """The folder of the whole weights, or their name on the hub: of an adapter, its base."""
    if not (Path(source) / "adapter_config.json").is_file():
        return source
    from repl_rl.models.lora import base_of

    base = base_of(Path(source))
    try:
        resolve_model(base)
    except ConfigError:
        raise ConfigError(
            f"the adapter in {source!r} belongs to the model {base!r}, which is not there; put it "
            f"there, or name its place as base_model_name_or_path in adapter_config.json"
        ) from None
    return model_folder(base, say=say)


def to_train(files: ModelFiles, lora: LoraConfig) -> ModelFiles:
    """Add the adapter that `[lora]` asks for, if any; ConfigError where it cannot be trained."""
    if not lora.rank and files.adapter is None:
        return files
    from repl_rl.models.lora import trained_adapter

    make = partial(outline, files.config)
    adapter = trained_adapter(lora, files.adapter, make, name=files.name, base=files.base)
    return replace(files, adapter=adapter)


def load_weights(
    files: ModelFiles,
    *,
    device: torch.device,
    precision: Precision,
    recomputes: bool = False,
    micro_batch_size: int = USUAL_MICRO_BATCH,
    spare_bytes: int = 0,
    is_to_be_sharded: bool = False,
) -> LoadedModel:
    """The model itself; ConfigError if its weights are not there, or are another model's.

    One that is to be sharded stays in the memory of the host, as the device may not hold it.
    """
    if device.type == "cpu":
        keep_freed_memory()
    with _refused(files.name):
        model: Any = AutoModelForCausalLM.from_pretrained(files.base, dtype=precision.weights)
    # Ids may have gaps, and the id itself is embedded: the largest one counts.
    known = files.tokenizer.get_vocab().values()
    num_ids = max(len(files.tokenizer), 1 + max(known, default=0))
    if num_ids > model.get_input_embeddings().num_embeddings:
        raise ConfigError(
            f"the tokenizer of {files.name!r} has {num_ids} entries, its model embeds "
            f"{model.get_input_embeddings().num_embeddings}; they do not belong together"
        )
    facts = {**vars(files), "config": model.config}
    model = model if is_to_be_sharded else model.to(device)
    if files.adapter is not None:
        from repl_rl.models.lora import attach

        with _refused(files.name):
            model = attach(model, files.adapter)
    return LoadedModel(
        **facts,
        model=model,
        precision=precision,
        recomputes=recomputes,
        micro_batch_size=micro_batch_size,
        spare_bytes=spare_bytes,
    )


def adopted(
    model: Any, tokenizer: Any, *, precision: Precision, run_on: RunOn = "allow"
) -> LoadedModel:
    """A model that somebody else has loaded; ConfigError if it cannot be sampled from."""
    name = model.config.name_or_path or type(model).__name__
    codec = _codec(name, tokenizer, model.config, model.generation_config)
    return LoadedModel(
        name=name,
        source=name,
        base=name,
        config=model.config,
        model=model,
        tokenizer=tokenizer,
        codec=codec,
        context_tokens=context_tokens(model.config),
        precision=precision,
        forbidden_ids=forbidden_ids(codec, run_on),
    )


def load_model(
    name: str,
    *,
    device: torch.device,
    precision: Precision,
    run_on: RunOn = "allow",
    say: Callable[[str], None] = silent,
) -> LoadedModel:
    """Load a model: see `read_files` and `load_weights`."""
    files = read_files(name, run_on=run_on, say=say)
    return load_weights(files, device=device, precision=precision)


@contextlib.contextmanager
def _refused(name: str) -> Iterator[None]:
    """Turn what transformers cannot read into a ConfigError of one line."""
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"cannot load a model from {name!r}: {reason}") from None
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        if (found := why_no_pickle(error)) is None:
            raise
        raise ConfigError(f"cannot load a model from {name!r}: {found}") from None


def why_no_pickle(error: Exception) -> str | None:
    """Say what torch found in a pickle of weights; None for an error that is not of its reader."""
    if isinstance(error, RuntimeError) and not str(error).startswith("PytorchStreamReader"):
        return None
    if isinstance(error, pickle.UnpicklingError):
        return "a pickle in it has more than weights, which may be code and is not loaded"
    return "a pickle of weights in it is cut off"


def _codec(name: str, tokenizer: Any, config: Any, generation: Any) -> TokenizerCodec:
    """Sets the tokenizer up as it must be, too."""
    # Else it takes spaces out of decoded text, or warns that it does not.
    tokenizer.clean_up_tokenization_spaces = False
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    try:
        return TokenizerCodec(tokenizer, eos_ids=end_ids(generation, config, tokenizer))
    except ConfigError as error:
        raise ConfigError(
            f"cannot use {name!r}: {error}; give a model whose tokenizer keeps newlines"
        ) from None


def num_parameters(config: Any) -> int:  # Any: a config of any model
    """Parameters of a model of this config, counted without memory; shared ones count once."""
    return sum(parameter.numel() for parameter in outline(config).parameters())


def num_embeddings(config: Any) -> int:
    """Number of parameters in tables of embeddings, tied to the head or not."""
    tables = [one for one in outline(config).modules() if isinstance(one, torch.nn.Embedding)]
    return sum(table.weight.numel() for table in tables)


def outline(config: Any) -> Any:  # PreTrainedConfig -> PreTrainedModel
    """A model of this config without memory, for its layers and their sizes."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def usable_context(loaded: ModelFiles, *, row_tokens: int) -> int:
    """Tokens that every layer attends to; ConfigError if `row_tokens`, a full trajectory, is more.

    Beyond its window a layer no longer sees the problem that the trajectory solves.
    """
    config = loaded.config.get_text_config()
    window: int | None = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    if window is None or "sliding_attention" not in kinds:
        return loaded.context_tokens
    used = min(row_tokens, loaded.context_tokens)
    if window < used:
        raise ConfigError(
            f"this model attends to the last {window} tokens, but a trajectory with its prompt may "
            f"have {used}; lower sampling.max_tokens or give a model without a sliding window"
        )
    return min(window, loaded.context_tokens)


def cache_bytes(loaded: ModelFiles, *, num_tokens: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values of `num_tokens`, in `dtype`."""
    config = loaded.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head_dim * dtype.itemsize * num_tokens)


def rows_that_fit(loaded: LoadedModel, *, most: int, row_tokens: int) -> int:
    """Number of full trajectories that `check_memory` has room for, up to `most`; at least 1."""
    needed = _needed_bytes(loaded, num_rows=1, row_tokens=row_tokens)
    return max(1, min(most, free_bytes(loaded.model.device) // max(1, needed)))


def check_memory(loaded: LoadedModel, *, num_rows: int, row_tokens: int) -> None:
    """ConfigError if keys and values of `num_rows` full trajectories do not fit in free memory.

    `row_tokens` counts prompt and completion. Half as much again must be free: rows double when
    they grow, and an allocator may not be able to reuse the old halves.
    """
    needed = _needed_bytes(loaded, num_rows=num_rows, row_tokens=row_tokens)
    free = free_bytes(loaded.model.device)
    if needed > free:
        raise ConfigError(
            f"{num_rows} trajectories of {min(row_tokens, loaded.context_tokens)} tokens with "
            f"their prompts need {needed / 2**30:.1f} GiB for keys and values, "
            f"{free / 2**30:.1f} GiB are free; lower sampling.max_in_flight or sampling.max_tokens"
        )


def _needed_bytes(loaded: LoadedModel, *, num_rows: int, row_tokens: int) -> int:
    dtype = keys_in(loaded.precision.sampling, loaded.model.device.type)
    num_tokens = num_rows * min(row_tokens, loaded.context_tokens)
    return cache_bytes(loaded, num_tokens=num_tokens, dtype=dtype) * 3 // 2


def free_bytes(device: torch.device) -> int:
    """Bytes that a device, or the machine, has left."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return int(psutil.virtual_memory().available)


@torch.no_grad()
def logprobs(
    loaded: LoadedModel,
    ids: Sequence[int],
    start: int,
    *,
    temperature: float,
    is_sampled: Sequence[bool] | None = None,
) -> list[float]:
    """Log-probabilities of `ids[start:]`, nats, by one forward of the trainer's model.

    Tokens that were not sampled, where `is_sampled` says so, may be such as no policy samples:
    nothing is forbidden there.
    """
    model = loaded.model
    was_training = model.training
    model.eval()
    try:
        with autocast(model.device, loaded.precision.update):
            output = model(torch.tensor([list(ids)], device=model.device))
    finally:
        model.train(was_training)
    logits, device = output.logits[0, start - 1 : -1], model.device  # (T, V)
    policy = Policy(temperature=temperature, forbidden_ids=loaded.forbidden_ids, device=device)
    scores = policy.logprobs(logits)
    if is_sampled is not None and loaded.forbidden_ids:
        free = Policy(temperature=temperature, forbidden_ids=frozenset(), device=device)
        by_policy = torch.tensor(is_sampled, device=device)[:, None]
        scores = scores.where(by_policy, free.logprobs(logits))
    tokens = torch.tensor(ids[start:], device=scores.device)[:, None]
    values: list[float] = scores.gather(-1, tokens)[:, 0].tolist()
    return values


def attention_windows(config: Any) -> dict[str, int | None]:  # Any: a config of any model
    """Kind of layer -> how many tokens it looks back on, its own included; None: all of them.

    Raises ConfigError if some layers are of another kind: they hold no key for every token, or
    hide keys by a rule of their own.
    """
    text = config.get_text_config()
    window: int | None = getattr(text, "sliding_window", None)
    kinds: list[str] = (
        getattr(text, "layer_types", None)
        # GPT-Neo's name for them: its local layers hide keys by a mask of their own.
        or getattr(text, "attention_layers", None)
        or ["sliding_attention" if hasattr(text, "num_attention_heads") else "no attention"]
    )
    windows = {"full_attention": None, "sliding_attention": window}
    if others := sorted(set(kinds) - set(windows)):
        raise ConfigError(
            f"a {text.model_type} model has layers of {', '.join(others)}, the engine 'hf' serves "
            f"those of full and sliding attention; give a model that has no others"
        )
    return {kind: windows[kind] for kind in kinds}


def context_tokens(config: Any) -> int:  # Any: a config of any model
    """Tokens that a sequence may have; ConfigError if the config does not say.

    With `longrope` that is the original length: past it a forward of the whole sequence rotates all
    keys by other angles than those in a cache.
    """
    text = config.get_text_config()
    limit: int | None = getattr(text, "max_position_embeddings", None)
    if limit is None:
        raise ConfigError(
            f"the config of this {text.model_type} model has no max_position_embeddings; give a "
            f"model whose config says how many tokens it holds"
        )
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return min(limit, int(rope["original_max_position_embeddings"]))
    return limit


def sees_all(config: Any) -> bool:  # Any: a config of any model
    """Say whether by its config no layer hides keys or holds anything else."""
    try:
        windows = attention_windows(config)
    except ConfigError:
        return False
    text = config.get_text_config()
    return set(windows.values()) == {None} and not getattr(text, "attention_chunk_size", None)
