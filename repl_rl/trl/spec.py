"""A task as TRL's trainers take one: data, rollouts, rewards, and a trainer with credit on lines.

    ReplSpec -> train_dataset, rollout_func, reward_funcs, trainer_class -> somebody's script

Carried exactly: token ids, the mask of injected tokens, log-probabilities. With `trainer_class`
advantages are those of `[grpo]`, line by line. A stock GRPOTrainer has credit for the outcome
alone: line rewards are lost. A trajectory that nobody could grade is in no baseline of a stock
trainer, and has no advantage.

Knows TRL's seams. Does not know the update.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from datasets import Dataset
from transformers import TrainerCallback

from repl_rl.config.resolve import resolve
from repl_rl.credit.advantages import load_credit
from repl_rl.engines.models import LoadedModel, adopted
from repl_rl.engines.precision import precision
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.runs.folder import RunFolder, check_output, rollouts_name
from repl_rl.seeds import derive_seed
from repl_rl.tasks.base import make_prompt
from repl_rl.tasks.numbered import NumberedProblems
from repl_rl.training.forbidden import check_trainable, forbidding_bias
from repl_rl.training.grpo import LineGRPOTrainer, outcome_reward
from repl_rl.training.ranks import launched, refuse_shards
from repl_rl.training.runtime import Runtime, open_runtime
from repl_rl.training.trainer import by_name, said_by, weighs_lines
from repl_rl.training.trl_rows import rollout_rows
from repl_rl.transcript.format import PYTHON
from repl_rl.trl.tools import Tools
from repl_rl.types import Attempt, Scored, Split

_OURS = (
    *("task.", "data.", "sampling.", "sandbox.", "reward."),
    *("grpo.credit", "grpo.baseline", "grpo.line_credit_weight", "grpo.importance"),
)
_SAID_BY_TRL = ("sampling.temperature", "sampling.max_tokens")


class ReplSpec:
    """What a GRPOTrainer takes, for one task.

        with ReplSpec("sympy-proofs") as spec:
            trainer = spec.trainer_class(
                model="PATH",
                args=GRPOConfig(num_generations=8, max_completion_length=256),
                train_dataset=spec.train_dataset,
                rollout_func=spec.rollout_func,
                reward_funcs=spec.reward_funcs,
            )
            trainer.train()

    `num_problems` are drawn, and those that read the same are one. `overrides` are settings as
    `--set` takes them; temperature, length, siblings and scale are those of TRL's arguments.
    `output` is a folder for the trajectories of one training, which `repl-rl show` and
    `repl-rl replay` read. Kernels start with the first rollout, and end with a training that ends
    by itself, or with the block.

    Raises ConfigError for unknown names and for settings that cannot work here.
    """

    def __init__(
        self,
        task: str = "sympy-proofs",
        *,
        transcript: str = PYTHON.name,
        num_problems: int = 1000,
        seed: int = 0,
        overrides: Sequence[str] = (),
        output: str | Path | None = None,
    ) -> None:
        for text in overrides:
            if not text.startswith(_OURS) or text.startswith(_SAID_BY_TRL):
                raise ConfigError(f"{text!r} is no setting of a ReplSpec; is it GRPOConfig's?")
        names = {"task": task, "transcript": transcript, "preset": "none", "seed": seed}
        config = resolve(flags=names, overrides=overrides)
        if load_credit(config.grpo).grows:
            raise ConfigError(
                f"grpo.credit = {config.grpo.credit!r} grows groups that only `repl-rl train` "
                f"rolls out; expected outcome, line_local, return_to_go or potential"
            )
        self._plan = make_plan(config, to_train=True)
        self._output = None if output is None else Path(output)
        if self._output is not None:
            if (self._output / "config.toml").exists():
                raise ConfigError(
                    f"{str(output)!r} already holds a run; give another output, also to a training "
                    f"that goes on from a checkpoint"
                )
            check_output(self._output)
        found = self._plan.task
        drawn = NumberedProblems(found, seed=seed, most=num_problems).all(Split.TRAIN)
        self._by_prompt = {make_prompt(found, one, PYTHON).text: one for one in drawn}
        self._tools = Tools(task, list(self._by_prompt.values()), found.prompt, overrides)
        self._held = contextlib.ExitStack()
        weakref.finalize(self, self._held.close)
        self._runtime: Runtime | None = None
        self._folder: RunFolder | None = None
        self._at = (-1, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def train_dataset(self) -> Dataset:
        """A row for each problem. Its `prompt` is what the format `python` shows; a rollout begins
        as the transcript of this spec does."""
        return Dataset.from_dict({"prompt": list(self._by_prompt)})

    @cached_property
    def chat_dataset(self) -> Dataset:
        """The same problems as messages: the `train_dataset` of `environment_factory`."""
        return Dataset.from_list(self._tools.rows())

    @property
    def environment_factory(self) -> Any:
        """For chat models that call tools: see `ReplTools`. It goes with `chat_dataset`."""
        return self._tools.open

    @property
    def reward_funcs(self) -> list[Any]:
        """The outcome's reward. With `trainer_class` it is logged, and the update has its own."""
        return [outcome_reward]

    @cached_property
    def trainer_class(self) -> Any:  # a GRPOTrainer: TRL has no types
        """A GRPOTrainer whose advantages are those of `[grpo]`, one a token."""
        spec = self

        class ReplTrainer(LineGRPOTrainer):
            def __init__(self, *args: Any, **named: Any) -> None:
                given = by_name(*args, **named)
                own = {"rollout_func": spec.rollout_func, "reward_funcs": spec.reward_funcs}
                if any(given.pop(name, None) not in (None, one) for name, one in own.items()):
                    raise ConfigError("trainer_class takes its spec's rollout_func, reward_funcs")
                super().__init__(
                    roll_out=lambda prompts, _: spec.roll_out(prompts, self),
                    line_config=spec._plan.config.grpo,
                    credit=spec._plan.credit,
                    ranks=launched(),
                    **given,
                )
                plan = spec._plan_of(self)
                loaded = _loaded(plan, self)
                self._line_config, self._credit = plan.config.grpo, plan.credit
                self._weighs_lines = weighs_lines(plan.config.grpo, loaded.precision)
                self._bias = forbidding_bias(loaded.forbidden_ids, self._head(self.model))

        return ReplTrainer

    def rollout_func(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Ids, masks, log-probabilities and rewards as TRL takes them, one row a prompt."""
        return rollout_rows(self.roll_out(prompts, trainer))

    def roll_out(self, prompts: Sequence[str], trainer: Any) -> list[Scored]:
        """A trajectory for each prompt of `train_dataset`, by the trainer's present weights."""
        if unknown := [one for one in prompts if one not in self._by_prompt]:
            raise ConfigError(f"{str(unknown[0])[:60]!r} is no prompt of spec.train_dataset")
        step = trainer.state.global_step
        self._at = (step, self._at[1] + 1 if self._at[0] == step else 0)
        runtime = self._open(trainer)
        runtime.sync(step)
        scored = runtime.run(self._attempts(prompts, trainer))
        gathered = launched().gather_first(scored)
        if self._folder is not None and trainer.model.training:
            self._folder.append_trajectories(rollouts_name(step), gathered)
        return scored

    def close(self) -> None:
        """End kernels and graders, those of tools too. Another use starts others."""
        self._runtime = None
        self._held.close()
        self._tools.close()

    def _attempts(self, prompts: Sequence[str], trainer: Any) -> list[Attempt]:
        """Siblings stand together in the batch of all processes, as TRL repeats prompts."""
        is_training = trainer.model.training
        size = trainer.num_generations if is_training else trainer.num_generations_eval
        about = (self._plan.config.seed, "rollout" if is_training else "eval", *self._at)
        return [
            Attempt(
                problem=self._by_prompt[prompt],
                group_index=row // size,
                sibling_index=row % size,
                seed=derive_seed(*about, row),
            )
            for row, prompt in enumerate(prompts, launched().rank * len(prompts))
        ]

    def _plan_of(self, trainer: Any) -> Plan:
        if trainer.tools:
            raise ConfigError("rollout_func takes no tools; they go with environment_factory")
        is_ours = isinstance(trainer, LineGRPOTrainer)
        if self._plan.config.sampling.run_on == "forbid" and not is_ours:
            raise ConfigError(
                "sampling.run_on = 'forbid' with a trainer of TRL's own, which forbids no token; "
                "expected spec.trainer_class, or 'allow'"
            )
        refuse_shards()
        config = said_by(trainer.args, self._plan.config, weights=trainer.model.dtype)
        name = trainer.model.config.name_or_path or None
        return self._plan.changed(sampling=config.sampling, grpo=config.grpo, model=name)

    def _open(self, trainer: Any) -> Runtime:
        if self._runtime is None:
            plan = self._plan_of(trainer)
            loaded = _loaded(plan, trainer)
            self._runtime = self._held.enter_context(open_runtime(plan, loaded, ranks=launched()))
            trainer.remove_callback(_Ending)  # of a training before this one
            trainer.add_callback(_Ending(self))
            if self._output is not None and self._folder is None and launched().is_first:
                self._folder = RunFolder(self._output)
                device = loaded.model.device.type
                self._folder.write_config(self._runtime.origin, policy=loaded.source, device=device)
                loaded.tokenizer.save_pretrained(self._folder.tokenizer)
        return self._runtime


def _loaded(plan: Plan, trainer: Any) -> LoadedModel:
    """The trainer's model, for the engine; ConfigError for ids that one of them cannot forbid."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    loaded = adopted(
        model,
        trainer.processing_class,
        precision=precision(plan.config, plan.engine, device=model.device.type),
        run_on=plan.config.sampling.run_on,
    )
    plan.engine.check_forbidden(len(loaded.forbidden_ids))
    check_trainable(loaded.forbidden_ids, loaded.config)
    return loaded


class _Ending(TrainerCallback):
    def __init__(self, spec: ReplSpec) -> None:
        self._spec = spec

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._spec.close()
