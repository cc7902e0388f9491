"""Defaults of certain policies: the starter, which is small and fast to learn, and adapters.

Knows names of settings. Does not know what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STARTER_PRESET: Mapping[str, Any] = {
    "sampling": {
        "max_lines": 10,
        "max_line_tokens": 72,
        "max_tokens": 224,
        "max_observation_tokens": 96,
        "max_in_flight": 96,
    },
    "sandbox": {"standby": 96, "max_output_chars": 512},
    "grpo": {
        "steps": 100,
        "problems_per_step": 12,
        "learning_rate": 5e-4,
        "micro_batch_size": 32,
        "gradient_checkpointing": False,
        "kl_beta": 0.001,
    },
}
"""What differs from the defaults when the policy is the starter: small, short, fast to learn."""

ADAPTER_PRESET: Mapping[str, Any] = {"grpo": {"learning_rate": 1e-5}}
"""What differs when an adapter of a named model is trained. Its best rate is about ten times that
of all weights, in reinforcement learning as well, and hardly depends on the rank (Schulman et al.
2025, "LoRA Without Regret")."""
