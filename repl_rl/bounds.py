"""What each number of a config may be.

Knows names of settings. Does not know what they do.
"""

from __future__ import annotations

from collections.abc import Mapping

LEAST: Mapping[str, float] = {
    "data.held_out": 0,
    "data.limit": 0,
    "sampling.temperature": 0,
    "sampling.max_in_flight": 1,
    "sampling.max_lines": 1,
    "sampling.max_tokens": 2,
    "sampling.max_line_tokens": 1,
    "sampling.max_think_tokens": 0,
    # Room for the words that mark a cut, at one token a character.
    "sampling.max_observation_tokens": 64,
    "sandbox.standby": 0,
    "sandbox.kernel_cpu_s": 1,
    "sandbox.memory_mib": 1,
    "sandbox.max_output_chars": 1,
    "reward.max_line_charge": 0,
    "reward.potential": 0,
    "grpo.steps": 0,
    "grpo.problems_per_step": 1,
    "grpo.rerolls": 0,
    "grpo.updates_per_rollout": 1,
    "grpo.passes": 1,
    "grpo.group_size": 2,
    "grpo.micro_batch_size": 1,
    "grpo.learning_rate": 0,
    "grpo.warmup_steps": 0,
    "grpo.kl_beta": 0,
    "grpo.line_credit_weight": 0,
    "grpo.importance_cap": 1,
    "lora.rank": 0,
    "warmstart.demonstrations": 0,
    "warmstart.transcripts_per_step": 1,
    "warmstart.problems_before": 0,
    "eval.problems": 0,
    "eval.every": 0,
    "grading.num_workers": 1,
    "report.sample_every": 1,
    "report.checkpoint_every": 1,
    "report.keep_checkpoints": 1,
}

LONGEST = 1 << 63

# No machine can give more than these, and its own error would not name the setting.
MOST: Mapping[str, float] = {
    "data.held_out": 1,
    "grpo.branch_probability": 1,
    "sandbox.standby": 1 << 16,
    "sandbox.kernel_cpu_s": 1 << 31,
    "sandbox.memory_mib": 1 << 24,
    "grading.num_workers": 1024,
}

ABOVE_ZERO = frozenset(
    {
        "sampling.time_limit_s",
        "sampling.engine_timeout_s",
        "sandbox.line_cpu_s",
        "sandbox.line_wall_s",
        "sandbox.grace_s",
        "grpo.branch_probability",
        "lora.alpha",
        "warmstart.epochs",
        "warmstart.learning_rate",
        "grading.deadline_s",
    }
)
