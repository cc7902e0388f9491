"""Words of TRL and of the field that are no settings here: what to use, or why there is none.

Does not read the config: a test checks that the settings it names exist.
"""

from __future__ import annotations

from collections.abc import Mapping

_ONE_UPDATE = (
    "each step updates the policy that has just sampled, once, so the ratio of policies is 1 and "
    "nothing is clipped (ARCHITECTURE.md, The update)"
)
_WHOLE = (
    "lines are sampled from the whole distribution at sampling.temperature, so that their "
    "log-probabilities are the policy's own"
)
_ONE_PROCESS = "training runs in one process on one device; more servers for sampling do work"
_FOLDER = "a run's numbers are in metrics.jsonl in its folder, a row a step; there is no tracker"
_ADAMW = "the optimiser is AdamW with grpo.learning_rate and grpo.weight_decay"
_BATCH = (
    "a step has grpo.problems_per_step times grpo.group_size trajectories, in micro-batches of "
    "grpo.micro_batch_size"
)
_DTYPE = "`repl-rl config dtype` says which types of numbers there are"

_SAYINGS: Mapping[str, tuple[str, ...]] = {
    "use grpo.kl_beta": ("beta", "kl_coef", "init_kl_coef"),
    "use grpo.group_size": ("num_generations",),
    "use grpo.learning_rate": ("lr",),
    "use grpo.steps": ("max_steps", "num_train_epochs", "total_episodes"),
    "use grpo.epsilon_low and grpo.epsilon_high": ("epsilon", "cliprange", "clip_range"),
    "use grpo.scale": ("scale_rewards",),
    "use grpo.warmup_steps": ("warmup_ratio",),
    "use grpo.importance": ("vllm_importance_sampling_correction",),
    "use grpo.importance_cap": ("vllm_importance_sampling_cap",),
    "use sampling.max_tokens, which counts what is injected as well": (
        *("max_completion_length", "max_new_tokens", "response_length"),
    ),
    "use sampling.engine, 'vllm' in this process or 'vllm-server' with sampling.servers": (
        *("use_vllm", "vllm_mode", "vllm_server_base_url", "vllm_server_host"),
    ),
    "use reward.function": ("reward_funcs", "reward_func", "reward_fn", "reward_weights"),
    "use report.checkpoint_every": ("save_steps", "save_strategy"),
    "use report.keep_checkpoints": ("save_total_limit",),
    "use model, or --model PATH": ("model_name_or_path", "model_name"),
    "use task, or --task NAME": ("dataset_name", "train_dataset", "dataset"),
    "use --output DIR": ("output_dir",),
    _BATCH: (
        *("per_device_train_batch_size", "gradient_accumulation_steps", "generation_batch_size"),
        *("batch_size", "train_batch_size", "per_device_eval_batch_size"),
    ),
    _ONE_UPDATE: ("num_iterations", "steps_per_generation", "delta", "num_ppo_epochs"),
    _WHOLE: ("top_k", "top_p", "min_p", "repetition_penalty"),
    "use lora.rank": ("use_peft", "peft_config", "lora_r", "lora_rank", "r"),
    "use lora.alpha": ("lora_alpha",),
    "use lora.targets": ("target_modules", "lora_target_modules"),
    "an adapter drops nothing out, so that the policy that samples is the one that is trained": (
        "lora_dropout",
    ),
    _ONE_PROCESS: ("deepspeed", "fsdp", "fsdp_config", "ddp_backend", "num_gpus"),
    _FOLDER: ("report_to", "run_name", "wandb", "wandb_project", "logging_steps", "logging_dir"),
    _ADAMW: ("optim", "optimizer", "adam_beta1", "adam_beta2"),
    _DTYPE: ("bf16", "fp16", "torch_dtype", "precision"),
    "the learning rate is constant after grpo.warmup_steps": ("lr_scheduler_type", "lr_scheduler"),
    "the reference of grpo.kl_beta is the policy that the run started from, to its end": (
        *("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"),
    ),
    "held-out problems are measured before and after training; `repl-rl eval` takes a checkpoint": (
        *("eval_steps", "eval_strategy", "eval_on_start"),
    ),
    "no run is resumed; `repl-rl train --config RUN/config.toml --model RUN/checkpoints/...` goes "
    "on from the weights of a checkpoint": ("resume_from_checkpoint", "resume"),
    "nothing is sent away; `hf upload OWNER/NAME RUN/checkpoints/final` does it": (
        *("push_to_hub", "hub_model_id"),
    ),
    "a trajectory that meets a limit is trained like any other; it earns reward.no_submission": (
        "mask_truncated_completions",
    ),
    "every sampled token is trained, and there is no bonus for entropy": (
        *("top_entropy_quantile", "entropy_coef", "entropy_coeff"),
    ),
    "prompts are never cut; one that does not fit the model's context is refused": (
        "max_prompt_length",
    ),
    "returns are not discounted": ("gamma", "lam", "gae_lambda"),
    "the ratio is a token's, not a sequence's (ARCHITECTURE.md, The update)": (
        "importance_sampling_level",
    ),
}

SAYINGS: Mapping[str, str] = {word: saying for saying, words in _SAYINGS.items() for word in words}
"""By word, without a section before it."""
