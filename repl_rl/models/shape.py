"""Facts of a model that its config tells: how far its layers look back, how long its rows may be.

Knows `transformers`' configs. Does not know weights, nor torch.
"""

from __future__ import annotations

from typing import Any

from repl_rl.errors import ConfigError


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
