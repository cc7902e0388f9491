"""The sections of a config: every setting with its default, its bounds and its unit.

Knows names and types; does not know what anything does, nor where values come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta

from repl_rl.records import OutcomeKind, VerdictKind
from repl_sandbox.types import Isolation

Loss = Literal["dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["group", "batch", "none"]
Preset = Literal["none", "starter"]
RunOn = Literal["allow", "forbid"]
Checkpointing = bool | Literal["auto"]
USUAL_MICRO_BATCH = 8
GraderName = Literal["auto", "math", "exact", "integer", "tests"]
HUB, GYM = "hf:", "reasoning-gym:"
"""Beginnings of the name of a task that is data from elsewhere, and no class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """The task and its problems. `task = "NAME"` means `task.name`."""

    name: str = "sympy-proofs"
    """Source of problems and verdicts: an entry point's name, `module:Class`, or data. Data is a
    file (`rows.jsonl`, `.json`, `.parquet`, `.csv` or `.tsv`), `hf:owner/name[@revision]` or
    `reasoning-gym:family`."""
    families: tuple[str, ...] = ()
    """Families of problems to draw from. `["all"]`: every family that has one of the tiers. Empty:
    the task chooses."""
    tiers: tuple[int, ...] = ()
    """Tiers to draw from. Empty: the task chooses."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative frequency of each family; a family that is not named has 1."""
    held_out: tuple[str, ...] = ()
    """Families that are only measured, never trained on."""
    frozen: bool = False
    """Measure on the task's fixed list of problems, whatever the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Columns of your problems, where `task.name` names a file or a data set.

    A column `a.b` is the field `b` of column `a`. Columns that are not set are found by their usual
    names.
    """

    statement: str | None = None
    """Column of the problem: a text, or a list of messages whose last user message is the
    problem."""
    answer: str | None = None
    """Column of the known answer. The answer may end a longer text, after `####` or in the last
    `\\boxed{}`."""
    id: str | None = None
    """Column of problem ids. Without one, ids are made from the problems' texts."""
    grader: GraderName = "auto"
    """`math`: the value of a LaTeX or Python expression. `integer`: an integer. `exact`: the same
    text. `auto`: one of these for each answer, by its look. A row's own `grader` wins. `tests` is
    for all rows: answers are tests such as `assert f(2) == 4`, and the model submits the source of
    functions as a string."""
    split: str | None = None
    """Take only the rows of this split, and hold out a share of them. Not set: a column `split`, or
    the splits of a data set on the hub, say what is held out."""
    held_out: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of the problems to hold out if no split decides. A hash of the text chooses them, so a
    problem stays on its side when others come or go."""
    limit: Annotated[int, Meta(ge=0)] = 0
    """Read only this many rows, from the first on; 0: all."""
    config: str | None = None
    """Name of the configuration, if a data set on the hub has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """One trajectory: how it is sampled and when it ends.

    >>> SamplingConfig(max_lines=8).temperature
    1.0
    """

    engine: str = "auto"
    """`hf`: transformers, in the trainer's process and on its weights. `vllm`: vLLM in the same
    process, with a copy of the weights. `vllm-server`: the processes that `servers` lists. `auto`:
    `vllm-server` if it lists some, else `vllm` on a GPU if vLLM is installed and serves the model,
    else `hf`; a run keeps the choice."""
    servers: tuple[str, ...] = ()
    """Addresses of `vllm serve` processes, for the engine `vllm-server`."""
    weights_dir: str | None = None
    """Folder where the servers find new weights; the trainer must see it, too. Not set: a temporary
    folder."""
    weights: Literal["file", "nccl"] = "file"
    """Route of whole weights to the servers. `file`: through `weights_dir`. `nccl`: from GPU to GPU
    by vLLM's transfer, for servers started with `--weight-transfer-config`; not tried on GPUs. An
    adapter without its model always goes through `weights_dir`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model. `auto`: a GPU if the machine has one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number type in which the engine computes. `auto`: the update's type. On a CPU, `hf` cannot be
    more exact than the update."""
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    """Divisor of the logits. 0 decodes greedily, for `eval` and engine `hf` only."""
    run_on: RunOn = "allow"
    """Tokens with text after their first newline, such as a newline and spaces in one token.
    `allow`: a line may hold them, and runs as several lines. `forbid`: they have probability 0 in
    sampling and in the update, so the policy is the distribution over the other tokens."""
    max_lines: Annotated[int, Meta(ge=1)] = 24
    """Maximum number of lines in a trajectory."""
    max_line_tokens: Annotated[int, Meta(ge=1)] = 192
    """Maximum number of tokens in a line. A longer line ends its trajectory."""
    max_tokens: Annotated[int, Meta(ge=2)] = 2048
    """Maximum number of tokens in a trajectory, sampled and injected together, without the
    prompt."""
    max_think_tokens: Annotated[int, Meta(ge=0)] = 0
    """Maximum number of tokens in a thought before the first line, with transcript `chat`; see
    docs/model.md. They count towards `max_tokens`. 0: no thought, and a chat template's thinking
    switch is off."""
    # Room for the words that mark a cut, at one token a character.
    max_observation_tokens: Annotated[int, Meta(ge=64)] = 256
    """Maximum number of tokens in a line's output. A longer output loses its middle."""
    time_limit_s: Annotated[float, Meta(gt=0)] = 120.0
    """Time limit of a trajectory, kernels included. Only the first line may exceed it."""
    max_in_flight: Annotated[int, Meta(ge=1)] = 64
    """Trajectories under way at once. Each holds a kernel and a row of the KV cache."""
    engine_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    """Time limit of the engine for a line, waiting in its queue included, or for new weights. After
    that the engine counts as hung and the run ends."""
    sampler: str = "lines"
    """Sampler of trajectories: `lines` (the line loop), a name in the entry point group
    `repl_rl.samplers`, or `module:Class`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """One kernel: what it may use and what it starts with."""

    isolation: Isolation = Isolation.AUTO
    """`auto`: the strongest isolation that this machine allows. `strict`: namespaces as well, or an
    error. `none`: no isolation."""
    preload: tuple[str, ...] = ("sympy",)
    """Modules imported once, before kernels are forked. Kernels can import only these, their
    dependencies and the standard library."""
    warmup: tuple[str, ...] | None = None
    """Source code that runs once before kernels are forked, to fill caches. Not set: code for sympy
    if sympy is preloaded."""
    standby: Annotated[int, Meta(ge=0, le=1 << 16)] = 16
    """Kernels forked ahead of need."""
    line_cpu_s: Annotated[float, Meta(gt=0)] = 2.0
    """CPU time of a line before it is interrupted."""
    line_wall_s: Annotated[float, Meta(gt=0)] = 10.0
    """Wall-clock time of a line before it is interrupted."""
    grace_s: Annotated[float, Meta(gt=0)] = 0.5
    """Time from the interrupt to the kill, for a line that does not stop."""
    kernel_cpu_s: Annotated[int, Meta(ge=1, le=1 << 31)] = 60
    """CPU time of a kernel over all its lines."""
    memory_mib: Annotated[int, Meta(ge=1, le=1 << 24)] = 512
    """Address space that a kernel may add to what it starts with."""
    max_output_chars: Annotated[int, Meta(ge=1)] = 2048
    """Characters kept of a line's output: two thirds from its start, one third from its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """Rewards of lines and answers.

    A line is charged for an error and never paid for running. The charge is capped below the
    difference between a correct answer and any other. Ending without a submission costs more than
    the worst answer after the highest charge, so silence never beats an honest attempt. If a guess
    is often right (`Problem.chance`), this holds for the average of right and wrong guesses.

    >>> RewardConfig().no_submission
    -0.6
    """

    function: str = "shaped"
    """Reward function from (Trajectory, Verdict | None, RewardConfig) to Reward: a name in the
    entry point group `repl_rl.rewards`, or `module:function`."""
    line: Mapping[OutcomeKind, float] = field(
        default_factory=lambda: {one: one.traits.reward for one in OutcomeKind if one.traits.reward}
    )
    """Reward of a line by its outcome; an outcome that is not named has 0."""
    max_line_charge: Annotated[float, Meta(ge=0)] = 0.4
    """Largest charge for all lines of a trajectory together. Line rewards are scaled so that they
    never sum to less than minus this."""
    verdict: Mapping[VerdictKind, float] = field(
        default_factory=lambda: {
            VerdictKind.PROVED: 1.0,
            VerdictKind.SUPPORTED: 0.8,
            VerdictKind.REFUTED: 0.0,
            VerdictKind.WRONG: 0.0,
            VerdictKind.MALFORMED: -0.1,
        }
    )
    """Outcome reward by verdict. A trajectory whose verdict is not named is left out of the
    update."""
    no_submission: float = -0.6
    """Outcome reward of a trajectory without a submission."""
    potential: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of a potential, which measures progress: paid as it grows, taken back with the last
    line. Use it with the credit modes `return_to_go` and `potential`. See
    `rewards.potential_steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOConfig:
    """The update. A step has `problems_per_step` times `group_size` trajectories."""

    steps: Annotated[int, Meta(ge=0)] = 200
    """Updates of the policy; 0 only measures it."""
    problems_per_step: Annotated[int, Meta(ge=1)] = 8
    """Groups in a step. Each group has its own problem."""
    group_size: Annotated[int, Meta(ge=2)] = 8
    """Trajectories of one problem, which are compared with each other."""
    rerolls: Annotated[int, Meta(ge=0)] = 0
    """Times that a group is rolled out again, with other seeds, if it teaches nothing because all
    its advantages are 0. From 1 on, groups that still teach nothing are left out of the loss, its
    KL and its divisor."""
    prefix_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the groups that begin after copied lines of a script that solved their problem. The
    script is an earlier success of the run, or else a demonstration of the task. Copied lines are
    not trained. The more often groups of a family and tier succeed, the more lines they have to
    write. Measurements begin at the prompt."""
    updates_per_rollout: Annotated[int, Meta(ge=1)] = 1
    """Updates that share the trajectories of one rollout, which has this many times
    `problems_per_step` groups. From the second update on, the policy has moved since it sampled."""
    passes: Annotated[int, Meta(ge=1)] = 1
    """Passes over a rollout's trajectories, each of `updates_per_rollout` updates. If a rollout
    feeds several updates, policy ratios differ from 1 and clipping takes effect."""
    staleness: Annotated[int, Meta(ge=0, le=1)] = 0
    """Rollouts by which the sampling weights lag behind. 1: a rollout is sampled during the
    previous update, with the weights from before that update; `importance` corrects its lines for
    this. It needs an engine with its own weights: `vllm` or `vllm-server`."""
    learning_rate: Annotated[float, Meta(ge=0)] = 1e-6
    """Learning rate, constant after the warm-up unless `trl.lr_scheduler_type` says otherwise."""
    warmup_steps: Annotated[int, Meta(ge=0)] = 5
    """Steps over which the learning rate rises to its value."""
    weight_decay: float = 0.0
    """Weight decay of the optimiser, which is AdamW unless `trl.optim` says otherwise."""
    max_grad_norm: float = 1.0
    """Maximum gradient norm. Longer gradients are scaled down to it."""
    micro_batch_size: Annotated[int, Meta(ge=1)] | Literal["auto"] = "auto"
    """Trajectories per forward and backward pass; only the update of `bnpo` depends on it. `auto`:
    8, and on a GPU as many more as fit in memory, because each micro-batch costs its launches."""
    dtype: Literal["auto", "mixed", "float32", "bfloat16"] = "auto"
    """Number types of the update. `mixed`: weights, gradients and optimiser in float32, forward
    passes in bfloat16. `float32` and `bfloat16`: everything in that type. `auto`: `mixed` on a GPU,
    `float32` on a CPU. At usual learning rates bfloat16 weights hardly move: see
    `update/moved_share` in `metrics.jsonl`."""
    gradient_checkpointing: Checkpointing = "auto"
    """Recompute activations in the backward pass: less memory for a third more time. `auto`: only
    if the update would not fit in memory otherwise."""
    loss_type: Loss = "dapo"
    """Loss, named for the divisor of a token's share. The divisor is the sampled tokens of the step
    (`dapo`), of the trajectory (`grpo`) or of the micro-batch (`bnpo`), `sampling.max_tokens`
    (`dr_grpo`), or 1 (`luspo`). If a rollout feeds one update, `cispo` and `vespo` equal `dapo`,
    and `sapo` equals `grpo`. If it feeds several, each of the three bounds the policy ratio in its
    own way."""
    epsilon_low: float = 0.2
    """Margin by which the policy ratio may fall below 1 before it is clipped. If a rollout feeds
    one update, the ratio is 1 and nothing is clipped."""
    epsilon_high: float = 0.28
    """Margin by which the policy ratio may rise above 1 before it is clipped."""
    importance: Literal["auto", "line", "off"] = "auto"
    """`line`: weigh each line by its probability at the trainer, divided by that at the engine when
    it was sampled. This costs one forward pass a step. `auto`: the same, unless the engine is `hf`
    and both compute in float32, where they agree to 1e-5. `off`: no weights. `vespo` weighs whole
    trajectories and needs no weights of lines."""
    importance_cap: Annotated[float, Meta(ge=1)] = 2.0
    """Highest weight that `importance` gives."""
    kl_beta: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of the KL divergence to the policy that the run started from. Each sampled token adds
    its estimate k3, weighed by the policy ratio, so the gradient is that of the divergence
    itself."""
    credit: str = "line_local"
    """Credit mode, which decides the worth of each line: `outcome`, `line_local`, `return_to_go`,
    `potential`, `tree`, a name in the entry point group `repl_rl.credits`, or `module:attribute`.
    See docs/rewards.md."""
    branching: tuple[int, ...] = ()
    """Shape of the trees of `credit = "tree"`. `[4, 2, 2]` starts 4 trajectories of a problem. Each
    of the 4 is branched once, at one of its lines, and each of the resulting 8 once more. The
    product, 16, is the group size. A trajectory that ends before its branch point also stands for
    the branches that it does not get."""
    branch_probability: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Probability of a branch at each state along a trajectory. Lower values branch later, so
    branches share more lines, but more trajectories end before they branch."""
    line_credit_weight: Annotated[float, Meta(ge=0)] = 0.5
    """Lambda: weight of line rewards relative to the outcome; 0 is plain GRPO."""
    baseline: Baseline = "mean"
    """Value that a trajectory is compared with. `mean`: the mean of its group, itself included.
    `leave_one_out` (RLOO, arXiv:2402.14740): the mean of the others, which drops the factor (G - 1)
    / G. Tree credit always uses the others."""
    scale: Scale = "group"
    """Divisor of the outcome advantage: the standard deviation over the `group` or the `batch`;
    `none`: undivided."""

    @property
    def most_rows(self) -> int:
        """Trajectories per forward and backward at most, where nothing is known of a GPU."""
        return USUAL_MICRO_BATCH if self.micro_batch_size == "auto" else self.micro_batch_size

    @property
    def num_rollout_updates(self) -> int:
        """Updates that a rollout feeds, all passes together."""
        return self.updates_per_rollout * self.passes


CREDIT_SETTINGS = {"branching": "tree", "branch_probability": "tree"}
"""Settings of `[grpo]` for credit that grows groups, and one that reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """An adapter (LoRA, arXiv:2106.09685): small matrices are trained, the model's weights stay.

    An adapter needs a learning rate about ten times as high, which `grpo.learning_rate` has by
    default if `rank` is not 0. Gradients and optimiser are only as large as the adapter. The
    reference of `grpo.kl_beta` needs no second copy of the model.
    """

    rank: Annotated[int, Meta(ge=0)] = 0
    """Rank of the update of each matrix. 0: no adapter; all weights are trained."""
    alpha: Annotated[float, Meta(gt=0)] = 32.0
    """Scale of the update, which is multiplied by alpha / rank. So the best learning rate hardly
    depends on the rank."""
    targets: tuple[str, ...] = ()
    """Layers that get an adapter, by the last parts of their names, such as `q_proj`. Empty: all
    linear layers but the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmstartConfig:
    """A warm start: `repl-rl warmstart --model PATH` fine-tunes a model on transcripts before GRPO.

    It computes as the update does, by `grpo.dtype` and `grpo.micro_batch_size`. It trains the
    adapter of `[lora]`, with rank 32 if that sets none.
    """

    demonstrations: Annotated[int, Meta(ge=0)] = 1000
    """Transcripts of attempts that the task itself scripts, each run in a kernel. Some fail, so up
    to four times as many are run. With --from there are none unless you set this."""
    keep: Literal["solved", "submitted", "all"] = "solved"
    """Transcripts to train on: `solved` (with a right answer), `submitted` (with any answer) or
    `all`."""
    transcripts_per_step: Annotated[int, Meta(ge=1)] = 8
    """Transcripts in a step."""
    epochs: Annotated[float, Meta(gt=0)] = 1.0
    """Times that each transcript is shown."""
    learning_rate: Annotated[float, Meta(gt=0)] | None = None
    """Peak learning rate of AdamW. Not set: 2e-3 for an adapter, 3e-4 for whole weights."""
    train_observations: bool = False
    """Train on the interpreter's answers, too, and not only on the model's own lines."""
    gradient_checkpointing: Checkpointing = False
    """Recompute activations, as in `[grpo]`. Most transcripts are far shorter than the longest that
    `auto` has to plan for."""
    problems_before: Annotated[int, Meta(ge=0)] = 32
    """Held-out problems that measure the model before the warm start, the first ones of
    `eval.problems`. A model that has never seen a REPL writes until a limit ends it, which takes
    long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Evaluations on held-out problems."""

    problems: Annotated[int, Meta(ge=0)] = 200
    """Held-out problems to measure before and after training, one trajectory each; 0: none."""
    every: Annotated[int, Meta(ge=0)] = 0
    """Steps between two measurements during training; 0: none. If a rollout feeds several steps, a
    measurement is made where the next rollout begins. `checkpoints/best` keeps the weights that did
    best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersConfig:
    """Worker processes of `repl-rl train`: each has kernels, a grader and a client of the servers.

    They need an engine that samples elsewhere, such as `vllm-server`.
    """

    count: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Workers of each training process, each with `sampling.max_in_flight` trajectories. 0: the
    training process does their work."""
    launch: tuple[str, ...] = ()
    """Commands that start a worker elsewhere, such as `ssh HOST`. The worker's own command is
    appended. If there are several, workers use them in turn. Empty: this machine."""
    timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """Longest silence of a worker that has work. After that the worker counts as hung: it is ended,
    and its trajectories are attempted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingConfig:
    """The processes that judge submissions."""

    deadline_s: Annotated[float, Meta(gt=0)] = 5.0
    """Time for one submission; after it the verdict is `undecided`."""
    num_workers: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Number of processes that grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """Reports of a run: what is shown and what is kept."""

    sample_every: Annotated[int, Meta(ge=1)] = 10
    """Steps between two sample trajectories on the screen."""
    checkpoint_every: Annotated[int, Meta(ge=1)] = 50
    """Steps between two checkpoints, rounded up to whole rollouts if a rollout feeds several
    steps."""
    keep_checkpoints: Annotated[int, Meta(ge=1)] = 2
    """Number of latest checkpoints to keep. The last one of a run, `final`, always stays."""
    curve: bool = True
    """Draw the learning curve at the end of a run."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Trackers that also get the rows of `metrics.jsonl`."""
    hub: str | None = None
    """Repository `owner/name` on the hub that gets the last weights and their card; empty: none. A
    repository that does not exist is created, private, before the first step. See `repl-rl
    push`."""


class Settings(Protocol):
    """Sections that a config has, and a plan that was made of it."""

    @property
    def seed(self) -> int: ...
    @property
    def sampling(self) -> SamplingConfig: ...
    @property
    def grpo(self) -> GRPOConfig: ...
    @property
    def trl(self) -> Mapping[str, Any]: ...
    @property
    def eval(self) -> EvalConfig: ...
    @property
    def report(self) -> ReportConfig: ...


# Defaults of certain policies, by section

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
        "steps": 70,
        "problems_per_step": 12,
        "learning_rate": 5e-4,
        "micro_batch_size": 32,
        "gradient_checkpointing": False,
        "kl_beta": 0.001,
    },
}
"""Settings that differ from the defaults with `preset = "starter"`: small, short, fast to learn."""

ADAPTER_PRESET: Mapping[str, Any] = {"grpo": {"learning_rate": 1e-5}}
"""Settings that differ when an adapter of a named model is trained. Its best rate is about ten
times that of all weights, in reinforcement learning as well, and hardly depends on the rank
(Schulman et al. 2025, "LoRA Without Regret")."""
