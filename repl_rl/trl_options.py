"""Options of TRL that `[trl]` does not take: what to use in their place, or why there is none.

    name of a field of TRL's GRPOConfig -> a reason, or None where it is passed on

Knows names alone: which fields there are, TRL says.
"""

from __future__ import annotations

from collections.abc import Mapping

_WHOLE = (
    "lines are sampled from the whole distribution at sampling.temperature, so that their "
    "log-probabilities are the policy's own"
)
_BATCH = (
    "a step has grpo.problems_per_step times grpo.group_size trajectories, in micro-batches of "
    "grpo.micro_batch_size"
)
_ENGINE = "use sampling.engine, 'vllm' in this process or 'vllm-server' with sampling.servers"
_NOT_GENERATED = "TRL generates nothing here; the settings of sampling say how lines are sampled"
_NUMBERS = "a run's numbers are in metrics.jsonl in its folder, a row a step"
_MEASURED = "use eval.every, the steps between two measurements on held-out problems"
_CHECKPOINTS = "use report.checkpoint_every and report.keep_checkpoints"
_TRAJECTORIES = "all trajectories are in trajectories/ in the run's folder; see `repl-rl show`"
_HUB = "nothing is sent away; `hf upload OWNER/NAME RUN/checkpoints/final` does it"
_DTYPE = "`repl-rl config dtype` says which types of numbers there are"
_ORDER = "problems come in the order in which the task gives them, by number"
_ONE_REWARD = "there is one reward, reward.function; advantages are taken from it by grpo.credit"
_WHOLE_WEIGHTS = "each process holds all weights, as engines and checkpoints need them"
_MODEL = "the model is loaded before TRL gets it, with settings of its own"
_NO_LABELS = "the update has no labels"
_RESUME = "`repl-rl train --resume RUN` goes on with a run"
_SIGNALS = "a signal ends a run in order, with a checkpoint of its last step"
_SEED = "use seed"

_REFUSED: Mapping[str, tuple[str, ...]] = {
    "use grpo.kl_beta": ("beta",),
    "use grpo.group_size": ("num_generations",),
    "use grpo.learning_rate": ("learning_rate",),
    "use grpo.warmup_steps": ("warmup_steps", "warmup_ratio"),
    "use grpo.weight_decay": ("weight_decay",),
    "use grpo.max_grad_norm": ("max_grad_norm",),
    "use grpo.steps": ("max_steps", "num_train_epochs"),
    "use grpo.loss_type": ("loss_type",),
    "use grpo.epsilon_low and grpo.epsilon_high": ("epsilon", "epsilon_high"),
    "use grpo.scale": ("scale_rewards",),
    "use grpo.gradient_checkpointing": ("gradient_checkpointing",),
    "use grpo.passes": ("num_iterations",),
    "use grpo.updates_per_rollout": ("steps_per_generation",),
    "use sampling.temperature": ("temperature",),
    "use sampling.device": ("use_cpu",),
    "use sampling.max_tokens, which counts what is injected as well": ("max_completion_length",),
    "use --output DIR": ("output_dir",),
    "the gradient of the divergence is not the same without it (ARCHITECTURE.md, The update)": (
        "use_bias_correction_kl",
    ),
    "engines sample without dropout, so the update goes without": ("disable_dropout",),
    "the ratio is a token's: a sequence's would give each line its trajectory's mean advantage": (
        "importance_sampling_level",
    ),
    "noise in the update alone would update another policy than the one that has sampled": (
        "neftune_noise_alpha",
    ),
    "it changes the layers of a model that an engine has examined before": (
        *("use_liger_kernel", "liger_kernel_config"),
    ),
    _BATCH: (
        *("per_device_train_batch_size", "gradient_accumulation_steps", "generation_batch_size"),
        *("auto_find_batch_size", "per_device_eval_batch_size", "num_generations_eval"),
    ),
    _ONE_REWARD: ("reward_weights", "multi_objective_aggregation"),
    _WHOLE: ("top_p", "top_k", "min_p", "repetition_penalty"),
    _NOT_GENERATED: (
        *("generation_kwargs", "chat_template_kwargs", "cache_implementation", "use_cache"),
        *("use_transformers_paged", "use_transformers_continuous_batching"),
        *("transformers_continuous_batching_config", "max_tool_calling_iterations"),
        "ds3_gather_for_generation",
    ),
    "use grpo.importance": ("vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    "use grpo.importance_cap": (
        *("vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max"),
        "vllm_importance_sampling_clip_min",
    ),
    _ENGINE: ("use_vllm",),
    _NUMBERS: (
        *("report_to", "run_name", "project", "disable_tqdm", "log_on_each_node"),
        "include_num_input_tokens_seen",
    ),
    _MEASURED: (
        *("do_eval", "do_predict", "do_train", "prediction_loss_only", "include_for_metrics"),
        *("batch_eval_metrics", "bf16_full_eval", "fp16_full_eval"),
    ),
    _CHECKPOINTS: (*("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),),
    _TRAJECTORIES: ("log_completions", "log_unique_prompts", "num_completions_to_print"),
    _HUB: ("push_to_hub",),
    _DTYPE: ("bf16", "fp16", "tf32"),
    _ORDER: (
        *("shuffle_dataset", "remove_unused_columns", "train_sampling_strategy"),
        *("length_column_name", "ignore_data_skip", "data_seed"),
    ),
    _SEED: ("seed",),
    _WHOLE_WEIGHTS: ("deepspeed", "fsdp", "fsdp_config", "parallelism_config"),
    _MODEL: ("model_init_kwargs", "trust_remote_code"),
    _NO_LABELS: ("label_smoothing_factor", "label_names", "average_tokens_across_devices"),
    _RESUME: ("resume_from_checkpoint", "restore_callback_states_from_checkpoint"),
    _SIGNALS: ("enable_jit_checkpoint",),
    "a launcher says it": ("local_rank", "accelerator_config"),
    "there are no pictures": ("log_multimodal",),
}

REFUSED: Mapping[str, str] = {name: why for why, names in _REFUSED.items() for name in names}
"""By name of a field."""

_FAMILIES: Mapping[str, str] = {
    "vllm_": _ENGINE,
    "eval_": _MEASURED,
    "save_": _CHECKPOINTS,
    "hub_": _HUB,
    "log_completions_": _TRAJECTORIES,
    "logging_": _NUMBERS,
    "trackio_": _NUMBERS,
    "dataloader_": _ORDER,
}
"""By what names of fields begin with."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "sync_ref_model": ("ref_model_mixup_alpha", "ref_model_sync_steps"),
    "use_adaptive_entropy": (
        *("entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"),
    ),
}
"""Options without an effect, by the option that gives them one."""

_OF_LOSSES: Mapping[str, str] = {"sapo_": "sapo", "vespo_": "vespo"}


def refusal(name: str) -> str | None:
    """Why `[trl]` does not take a field of TRL; None for one that is passed on."""
    families = (why for begin, why in _FAMILIES.items() if name.startswith(begin))
    return REFUSED.get(name) or next(families, None)


def idle(name: str, options: Mapping[str, object], *, loss: str, is_on_policy: bool) -> str | None:
    """Why an option would have no effect in this run; None where it has one.

    `is_on_policy`: each rollout feeds one update, so that all ratios of policies are 1.
    """
    for switch, names in _NEEDS.items():
        if name in names and not options.get(switch):
            return f"expected trl.{switch} = true beside it"
    for begin, own in _OF_LOSSES.items():
        if name.startswith(begin) and loss != own:
            return f"expected grpo.loss_type = '{own}'"
    if is_on_policy and name.startswith(("delta", *_OF_LOSSES)):
        return (
            "expected grpo.passes or grpo.updates_per_rollout above 1, without which ratios are 1"
        )
    if name == "delta" and loss in ("cispo", "sapo", "vespo"):
        return f"grpo.loss_type = '{loss}' does not read it"
    return None
