"""Words of TRL and of the field that are no settings here: what to use, or why there is none.

Does not read the config: a test checks that the settings it names exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from repl_rl.trl_options import REFUSED

_PROCESSES = "each process that a launcher starts holds the whole model; start it with torchrun"

_SAYINGS: Mapping[str, tuple[str, ...]] = {
    REFUSED["beta"]: ("kl_coef", "init_kl_coef"),
    REFUSED["learning_rate"]: ("lr",),
    REFUSED["max_steps"]: ("total_episodes",),
    REFUSED["epsilon"]: ("cliprange", "clip_range"),
    REFUSED["num_iterations"]: ("num_ppo_epochs", "ppo_epochs"),
    REFUSED["max_completion_length"]: ("max_new_tokens", "response_length"),
    REFUSED["use_vllm"]: ("vllm_mode", "vllm_server_base_url", "vllm_server_host"),
    REFUSED["disable_tqdm"]: ("wandb", "wandb_project", "logging_steps", "logging_dir"),
    REFUSED["do_eval"]: ("eval_steps", "eval_strategy", "eval_on_start"),
    REFUSED["bf16"]: ("torch_dtype", "precision"),
    REFUSED["push_to_hub"]: ("hub_model_id",),
    REFUSED["resume_from_checkpoint"]: ("resume",),
    REFUSED["auto_find_batch_size"]: ("batch_size", "train_batch_size"),
    "use reward.function": ("reward_funcs", "reward_func", "reward_fn", "reward_weights"),
    "use report.checkpoint_every": ("save_steps", "save_strategy"),
    "use report.keep_checkpoints": ("save_total_limit",),
    "use model, or --model PATH": ("model_name_or_path", "model_name"),
    "use task, or --task NAME": ("dataset_name", "train_dataset", "dataset"),
    "use trl.lr_scheduler_type": ("lr_scheduler",),
    "use trl.optim": ("optimizer",),
    "use trl.entropy_coef": ("entropy_coeff",),
    "use lora.rank": ("use_peft", "peft_config", "lora_r", "lora_rank", "r"),
    "use lora.alpha": ("lora_alpha",),
    "use lora.targets": ("target_modules", "lora_target_modules"),
    "an adapter drops nothing out, so that the policy that samples is the one that is trained": (
        "lora_dropout",
    ),
    _PROCESSES: ("deepspeed", "fsdp", "fsdp_config", "ddp_backend", "num_gpus"),
    "prompts are never cut; one that does not fit the model's context is refused": (
        "max_prompt_length",
    ),
    "returns are not discounted": ("gamma", "lam", "gae_lambda"),
}

_PASSED_ON = (
    *("lr_scheduler_type", "lr_scheduler_kwargs", "optim", "optim_args", "adam_beta1"),
    *("adam_beta2", "adam_epsilon", "sync_ref_model", "ref_model_mixup_alpha"),
    *("ref_model_sync_steps", "top_entropy_quantile", "entropy_coef", "use_adaptive_entropy"),
    *("mask_truncated_completions", "delta", "off_policy_mask_threshold", "torch_compile"),
    *("cast_lm_head_to_fp32", "router_aux_loss_coef", "gradient_checkpointing_kwargs"),
)

_OWN = {"learning_rate", "loss_type", "warmup_steps", "weight_decay", "max_grad_norm"} | {
    *("epsilon_high", "gradient_checkpointing", "temperature", "seed"),
}
"""Fields of TRL that are settings here by the same name."""

SAYINGS: Mapping[str, str] = {
    **{word: saying for word, saying in REFUSED.items() if word not in _OWN},
    **{word: f"use trl.{word}" for word in _PASSED_ON},
    **{word: saying for saying, words in _SAYINGS.items() for word in words},
}
"""By word, without a section before it."""
