"""Words of TRL and of the field that are no settings here: what to use, or why there is none.

    a word -> a reason;  a field of TRL's GRPOConfig, under `[trl]` -> a reason, or it is passed on

Does not read the config: tests check that the settings and the fields of TRL named here exist.
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
_NUMBERS = "a run's numbers are in metrics.jsonl in its folder; report.trackers get them, too"
_MEASURED = "use eval.every, the steps between two measurements on held-out problems"
_CHECKPOINTS = "use report.checkpoint_every and report.keep_checkpoints"
_TRAJECTORIES = "all trajectories are in trajectories/ in the run's folder; see `repl-rl show`"
_HUB = "use report.hub, or `repl-rl push` for a run that has ended"
_ORDER = "problems come in the order in which the task gives them, by number"
_TOKENS_RATIO = (
    "ratios are per token: one per sequence would give each line its trajectory's mean advantage"
)

_WORDS: Mapping[str, str] = {
    "use grpo.kl_beta": "beta; kl_coef init_kl_coef",
    "use grpo.group_size": "num_generations",
    "use grpo.learning_rate": "learning_rate; lr",
    "use grpo.warmup_steps": "warmup_steps warmup_ratio",
    "use grpo.weight_decay": "weight_decay",
    "use grpo.max_grad_norm": "max_grad_norm",
    "use grpo.steps": "max_steps num_train_epochs; total_episodes",
    "use grpo.loss_type": "loss_type",
    "use grpo.epsilon_low and grpo.epsilon_high": "epsilon epsilon_high; cliprange clip_range",
    "use grpo.scale": "scale_rewards",
    "use grpo.gradient_checkpointing": "gradient_checkpointing",
    "use grpo.passes": "num_iterations; num_ppo_epochs ppo_epochs",
    "use grpo.updates_per_rollout": "steps_per_generation",
    "use sampling.temperature": "temperature",
    "use sampling.device": "use_cpu",
    "use sampling.max_tokens, which counts what is injected as well": (
        "max_completion_length; max_new_tokens response_length"
    ),
    "use --output DIR": "output_dir",
    "the gradient of the divergence is not the same without it (docs/design/update.md)": (
        "use_bias_correction_kl"
    ),
    "engines sample without dropout, so the update goes without": "disable_dropout",
    _TOKENS_RATIO: "importance_sampling_level",
    "noise in the update alone would train another policy than the one that sampled": (
        "neftune_noise_alpha"
    ),
    "it would change layers that an engine has already examined": (
        "use_liger_kernel liger_kernel_config"
    ),
    _BATCH: (
        "per_device_train_batch_size gradient_accumulation_steps generation_batch_size "
        "auto_find_batch_size per_device_eval_batch_size num_generations_eval; batch_size "
        "train_batch_size"
    ),
    "a run has one reward, reward.function; grpo.credit makes advantages of it": (
        "reward_weights multi_objective_aggregation"
    ),
    _WHOLE: "top_p top_k min_p repetition_penalty",
    "TRL generates nothing here; the settings of sampling say how lines are sampled": (
        "generation_kwargs chat_template_kwargs cache_implementation use_cache "
        "use_transformers_paged use_transformers_continuous_batching "
        "transformers_continuous_batching_config max_tool_calling_iterations "
        "ds3_gather_for_generation"
    ),
    "use grpo.importance": "vllm_importance_sampling_correction vllm_importance_sampling_mode",
    "use grpo.importance_cap": (
        "vllm_importance_sampling_cap vllm_importance_sampling_clip_max "
        "vllm_importance_sampling_clip_min"
    ),
    _ENGINE: "use_vllm; vllm_mode vllm_server_base_url vllm_server_host",
    _NUMBERS: (
        "report_to run_name project disable_tqdm log_on_each_node "
        "include_num_input_tokens_seen; wandb wandb_project logging_steps logging_dir"
    ),
    _MEASURED: (
        "do_eval do_predict do_train prediction_loss_only include_for_metrics "
        "batch_eval_metrics bf16_full_eval fp16_full_eval; eval_steps eval_strategy "
        "eval_on_start"
    ),
    _CHECKPOINTS: "load_best_model_at_end metric_for_best_model greater_is_better",
    _TRAJECTORIES: "log_completions log_unique_prompts num_completions_to_print",
    _HUB: "push_to_hub; hub_model_id",
    "`repl-rl config dtype` lists the number types": ("bf16 fp16 tf32; torch_dtype precision"),
    _ORDER: (
        "shuffle_dataset remove_unused_columns train_sampling_strategy length_column_name "
        "ignore_data_skip data_seed"
    ),
    "use seed": "seed",
    "the launcher sets it, in an accelerate config: see docs/scale.md": (
        "fsdp fsdp_config; fsdp_version num_processes"
    ),
    "a process holds the whole model, or a shard of it by FSDP2; start it with torchrun": (
        "deepspeed parallelism_config; ddp_backend num_gpus"
    ),
    "the model is loaded before TRL gets it, with its own settings": (
        "model_init_kwargs trust_remote_code"
    ),
    "the update has no labels": "label_smoothing_factor label_names average_tokens_across_devices",
    "`repl-rl train --resume RUN` resumes a run": (
        "resume_from_checkpoint restore_callback_states_from_checkpoint; resume"
    ),
    "a run that gets a signal already saves a checkpoint of its last step": "enable_jit_checkpoint",
    "a launcher sets it": "local_rank accelerator_config",
    "trajectories hold no pictures": "log_multimodal",
    "use reward.function": "; reward_funcs reward_func reward_fn reward_weights",
    "use report.checkpoint_every": "; save_steps save_strategy",
    "use report.keep_checkpoints": "; save_total_limit",
    "use model, or --model PATH": "; model_name_or_path model_name",
    "use task, or --task NAME": "; dataset_name train_dataset dataset",
    "use trl.lr_scheduler_type": "; lr_scheduler",
    "use trl.optim": "; optimizer",
    "use trl.entropy_coef": "; entropy_coeff",
    "use lora.rank": "; use_peft peft_config lora_r lora_rank r",
    "use lora.alpha": "; lora_alpha",
    "use lora.targets": "; target_modules lora_target_modules",
    "adapters have no dropout, so the policy that samples is the one that is trained": (
        "; lora_dropout"
    ),
    "prompts are never cut; one that does not fit the model's context is refused": (
        "; max_prompt_length"
    ),
    "returns are not discounted": "; gamma lam gae_lambda",
}
"""By what is said of them: fields of TRL, then behind `;` other words of the field."""

REFUSED: Mapping[str, str] = {
    name: reason for reason, words in _WORDS.items() for name in words.partition(";")[0].split()
}
"""By name of a field of TRL, of those that `[trl]` does not take."""

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
    **{word: f"use trl.{word}" for word in _PASSED_ON},
    **{
        word: reason
        for reason, words in _WORDS.items()
        for word in words.replace(";", "").split()
        if word not in _OWN
    },
}
"""By word, without a section before it."""

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
    """Return why `[trl]` does not take a field of TRL; None for one that is passed on."""
    families = (why for begin, why in _FAMILIES.items() if name.startswith(begin))
    return REFUSED.get(name) or next(families, None)


def idle(name: str, options: Mapping[str, object], *, loss: str, is_on_policy: bool) -> str | None:
    """Return why an option would have no effect in this run; None where it has one.

    `is_on_policy`: each rollout feeds one update, so that all ratios of policies are 1.
    """
    for switch, names in _NEEDS.items():
        if name in names and not options.get(switch):
            return f"expected trl.{switch} = true as well"
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
