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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """The task and its problems. `task = "NAME"` means `task.name`."""

    name: str = "sympy-proofs"
    """Source of problems and verdicts: an entry point's name, `module:Class`, or data: a file
    `rows.jsonl`, `.json`, `.parquet`, `.csv` or `.tsv`, `hf:owner/name[@revision]`,
    `reasoning-gym:family`."""
    families: tuple[str, ...] = ()
    """Families of problems to draw from; `["all"]`: all that have one of the tiers; empty: the
    task's own choice."""
    tiers: tuple[int, ...] = ()
    """Tiers to draw from; empty: the task's own choice."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Frequency of each family, compared with others; 1 for one that is not named."""
    held_out: tuple[str, ...] = ()
    """Families that are measured and never trained on."""
    frozen: bool = False
    """Measure on the task's fixed list of problems, whatever the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Problems of one's own, where `task.name` names a file or a data set: which columns hold what.

    A column `a.b` is `b` inside of column `a`. Columns that are not set go by their usual names.
    """

    statement: str | None = None
    """Column of the problem: a text, or messages, of which the last one of the user counts."""
    answer: str | None = None
    """Column of the known answer, which may stand after `####` or in the last `\\boxed{}`."""
    id: str | None = None
    """Column of names for problems. Without one they are named by their text."""
    grader: GraderName = "auto"
    """`math`: the value that LaTeX or Python spells. `integer`. `exact`: the same text. `auto`: one
    of these, by the look of each answer. A row's own `grader` wins. `tests`, for all rows: the
    answer is `assert f(2) == 4` and the like, and source of functions is submitted, as a string."""
    split: str | None = None
    """Take only rows of this split, and hold out a share of them. Not set: a column `split`, or the
    splits of a data set on the hub, say what is held out."""
    held_out: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of the problems that is never trained on, where no split says so. A hash of the text
    chooses it, so a problem stays on its side when others come or go."""
    limit: Annotated[int, Meta(ge=0)] = 0
    """Read only so many rows, the first ones; 0: all."""
    config: str | None = None
    """Name of the configuration, where a data set on the hub has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """One trajectory: how it is sampled and when it ends.

    >>> SamplingConfig(max_lines=8).temperature
    1.0
    """

    engine: str = "auto"
    """`hf`: transformers, in the trainer's process and on its weights. `vllm`: in this process
    too, with weights of its own. `vllm-server`: the processes that `servers` names. `auto`: `vllm`
    on a GPU where vLLM is installed and serves the model, else `hf`; a run keeps what it came
    to."""
    servers: tuple[str, ...] = ()
    """Addresses of `vllm serve` processes, for the engine `vllm-server`."""
    weights_dir: str | None = None
    """Folder where they find new weights; the trainer sees it, too. None: a temporary one."""
    weights: Literal["file", "nccl"] = "file"
    """Way of whole weights to servers. `file`: by `weights_dir`. `nccl`: from GPU to GPU by vLLM's
    own transfer, for servers with `--weight-transfer-config`; untried on GPUs. An adapter that goes
    alone goes by `weights_dir`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model. `auto`: a GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type that the engine computes in. `auto`: that of the update, which `hf` cannot exceed on a
    CPU."""
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    """Divisor of the logits. 0 takes the likeliest token: engine `hf` alone, for `eval`."""
    run_on: RunOn = "allow"
    """Tokens with text behind their first newline, as a newline and spaces in one. `allow`: a line
    may hold them, and runs as several. `forbid`: they have no probability, neither where they would
    be sampled nor in the update, so the policy is the distribution of the others."""
    max_lines: Annotated[int, Meta(ge=1)] = 24
    """The most lines of a trajectory."""
    max_line_tokens: Annotated[int, Meta(ge=1)] = 192
    """The most tokens of a line; a trajectory with a longer one ends there."""
    max_tokens: Annotated[int, Meta(ge=2)] = 2048
    """Sampled and injected tokens together; the prompt is not counted."""
    max_think_tokens: Annotated[int, Meta(ge=0)] = 0
    """The most tokens of a thought before the first line, with transcript `chat`: see
    docs/model.md. They count as `max_tokens`. 0: none, and a template's switch for it is off."""
    # Room for the words that mark a cut, at one token a character.
    max_observation_tokens: Annotated[int, Meta(ge=64)] = 256
    """The most tokens of a line's output; the middle of a longer one is left out."""
    time_limit_s: Annotated[float, Meta(gt=0)] = 120.0
    """Time of a trajectory, kernels included; only its first line may take longer."""
    max_in_flight: Annotated[int, Meta(ge=1)] = 64
    """Trajectories, and so kernels and rows of the KV cache, alive at once."""
    engine_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    """The most that an engine may take for a line, its turn included, or for new weights. Beyond it
    the engine counts as hung and the run ends."""
    sampler: str = "lines"
    """Sampler of trajectories: the line loop, or one of your own, by its name in the entry point
    group `repl_rl.samplers` or as `module:Class`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """One kernel: what it may use and what it starts with."""

    isolation: Isolation = Isolation.AUTO
    """`auto`: the best walls this machine has; `strict`: namespaces too, or an error; `none`."""
    preload: tuple[str, ...] = ("sympy",)
    """Modules imported once, before kernels are forked. Kernels can import these, what these depend
    on and the standard library, nothing else."""
    warmup: tuple[str, ...] | None = None
    """Sources run once before kernels are forked, to fill caches; None: those for sympy if it is
    preloaded."""
    standby: Annotated[int, Meta(ge=0, le=1 << 16)] = 16
    """Kernels forked ahead of need."""
    line_cpu_s: Annotated[float, Meta(gt=0)] = 2.0
    """CPU time of a line, then an interrupt."""
    line_wall_s: Annotated[float, Meta(gt=0)] = 10.0
    """Time of a line by the clock, then an interrupt."""
    grace_s: Annotated[float, Meta(gt=0)] = 0.5
    """From the interrupt to the kill, for a line that does not stop."""
    kernel_cpu_s: Annotated[int, Meta(ge=1, le=1 << 31)] = 60
    """CPU time of a kernel over all of its lines."""
    memory_mib: Annotated[int, Meta(ge=1, le=1 << 24)] = 512
    """Address space of a kernel beyond what it starts with."""
    max_output_chars: Annotated[int, Meta(ge=1)] = 2048
    """Characters kept of a line's output: two thirds from its head, one third from its tail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """Rewards of lines and answers.

    Lines are charged for errors and never paid for running. The charge is capped below the
    difference between a correct answer and any other. Ending without a submission costs more than
    the worst answer after the highest charge, so silence never beats an honest attempt. Where a
    guess is often right (`Problem.chance`), this holds of the average of right and wrong ones.

    >>> RewardConfig().no_submission
    -0.6
    """

    function: str = "shaped"
    """A function of (Trajectory, Verdict | None, RewardConfig) -> Reward, by its name in the entry
    point group `repl_rl.rewards` or as `module:function`."""
    line: Mapping[OutcomeKind, float] = field(
        default_factory=lambda: {one: one.traits.reward for one in OutcomeKind if one.traits.reward}
    )
    """Reward of a line by its outcome; 0 for one that is not named."""
    max_line_charge: Annotated[float, Meta(ge=0)] = 0.4
    """Line rewards of one trajectory are scaled so that they never sum to less than minus this."""
    verdict: Mapping[VerdictKind, float] = field(
        default_factory=lambda: {
            VerdictKind.PROVED: 1.0,
            VerdictKind.SUPPORTED: 0.8,
            VerdictKind.REFUTED: 0.0,
            VerdictKind.WRONG: 0.0,
            VerdictKind.MALFORMED: -0.1,
        }
    )
    """Outcome reward by verdict. A verdict not named leaves the trajectory out of the update."""
    no_submission: float = -0.6
    """Outcome reward where nothing was submitted."""
    potential: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of a potential, the progress so far: paid as it grows, taken back with the last line.
    For the credit modes `return_to_go` and `potential`. See `rewards.potential_steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOConfig:
    """The update. Group size and problems per step multiply to the trajectories of a step."""

    steps: Annotated[int, Meta(ge=0)] = 200
    """Updates of the policy; 0 only measures it."""
    problems_per_step: Annotated[int, Meta(ge=1)] = 8
    """Groups of a step, each for a problem of its own."""
    group_size: Annotated[int, Meta(ge=2)] = 8
    """Trajectories of a problem, which are compared with each other."""
    rerolls: Annotated[int, Meta(ge=0)] = 0
    """Number of times that a group is rolled out anew if it teaches nothing, as all its advantages
    are 0: the same problem, other seeds. From 1 on, groups that teach nothing to the end leave the
    loss, its KL and what it divides by."""
    prefix_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the groups that begin behind lines of a script that solved their problem: an earlier
    success of the run, or else a demonstration of the task. Lines that are copied are not trained.
    How many are left to write follows the success of such groups. Measurements begin at the
    prompt."""
    updates_per_rollout: Annotated[int, Meta(ge=1)] = 1
    """Updates that the trajectories of a rollout are dealt out to: it has so many times
    `problems_per_step` groups. All updates but the first are of a policy that has moved on."""
    passes: Annotated[int, Meta(ge=1)] = 1
    """Number of passes over a rollout's trajectories, each of `updates_per_rollout` updates. Where
    a rollout feeds several updates, ratios of policies are not 1, and clipping is at work."""
    staleness: Annotated[int, Meta(ge=0, le=1)] = 0
    """Rollouts that the weights of a rollout are behind. 1: it is sampled while the update before
    it runs, by the weights from before that update; lines are weighed for it by `importance`. Takes
    an engine with weights of its own: `vllm` or `vllm-server`."""
    learning_rate: Annotated[float, Meta(ge=0)] = 1e-6
    """Constant after the warm-up, unless `trl.lr_scheduler_type` says otherwise."""
    warmup_steps: Annotated[int, Meta(ge=0)] = 5
    """Steps over which the learning rate rises to its value."""
    weight_decay: float = 0.0
    """Weight decay of the optimiser, which is AdamW unless `trl.optim` says otherwise."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this norm."""
    micro_batch_size: Annotated[int, Meta(ge=1)] | Literal["auto"] = "auto"
    """Trajectories per forward and backward; only the update of `bnpo` depends on it. `auto`: 8,
    and on a GPU as many more as memory allows, since each micro-batch costs its launches."""
    dtype: Literal["auto", "mixed", "float32", "bfloat16"] = "auto"
    """`mixed`: weights, gradients and optimiser in float32, forwards in bfloat16. `float32` and
    `bfloat16`: everything. `auto`: `mixed` on a GPU, `float32` on a CPU. At usual learning rates
    bfloat16 weights hardly move: see `update/moved_share` in `metrics.jsonl`."""
    gradient_checkpointing: Checkpointing = "auto"
    """Recompute activations in the backward: less memory for a third more time. `auto`: where
    the update would not fit in memory otherwise."""
    loss_type: Loss = "dapo"
    """Divisor of a token's share: all sampled tokens of the step (`dapo`), those of its trajectory
    (`grpo`), `sampling.max_tokens` (`dr_grpo`), nothing (`luspo`), or those of its micro-batch
    (`bnpo`, which depends on `micro_batch_size`). Where a rollout feeds one update, that is of the
    very policy that sampled: `cispo` and `vespo` equal `dapo`, and `sapo` equals `grpo`. Where it
    feeds several, each bounds the ratio of policies in its own way."""
    epsilon_low: float = 0.2
    """Margin by which the ratio of policies may fall below 1 before it is clipped. The ratio is
    1, and nothing is clipped, where a rollout feeds one update."""
    epsilon_high: float = 0.28
    """Margin by which the ratio may rise above 1."""
    importance: Literal["auto", "line", "off"] = "auto"
    """Weigh each line by how much likelier the trainer finds it than the engine that sampled it.
    This costs one forward a step. `auto`: unless the engine is `hf` and both compute in float32,
    where they agree to 1e-5. `vespo` weighs whole trajectories and goes without."""
    importance_cap: Annotated[float, Meta(ge=1)] = 2.0
    """The highest weight."""
    kl_beta: Annotated[float, Meta(ge=0)] = 0.0
    """Weight of the KL divergence to the policy the run started from. Each sampled token adds its
    estimate k3, weighed by the ratio: so the gradient is that of the divergence itself."""
    credit: str = "line_local"
    """Rule for the worth of a line: `outcome`, `line_local`, `return_to_go`, `potential`, `tree`,
    another name in the entry point group `repl_rl.credits`, or `module:attribute`. See
    docs/rewards.md."""
    branching: tuple[int, ...] = ()
    """For `credit = "tree"`: `[4, 2, 2]` rolls out 4 trajectories of a problem, then lets 1 other
    leave each of them at one of its lines, and again: 16, which is the group size. One that ends
    before it is left stands for all that would have left it."""
    branch_probability: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Probability that others leave a trajectory at a state, for each state on its way. Lower: they
    leave later and share more, and more trajectories end before."""
    line_credit_weight: Annotated[float, Meta(ge=0)] = 0.5
    """Lambda: weight of line rewards beside the outcome; 0 is plain GRPO."""
    baseline: Baseline = "mean"
    """Value that a trajectory is compared with: the mean of its group, itself included, or of the
    others. `leave_one_out` (RLOO, arXiv:2402.14740) does without the factor (G - 1) / G. Credit by
    trees always takes the others."""
    scale: Scale = "group"
    """The outcome advantage is divided by the standard deviation over this; `none`: undivided."""

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
    """An adapter (LoRA, arXiv:2106.09685): small matrices are trained beside weights that stay.

    They take a learning rate about ten times as high, which is what `grpo.learning_rate` is by
    default where `rank` is not 0. Gradients and optimiser have their size, and
    the reference of `grpo.kl_beta` takes no second copy of the model.
    """

    rank: Annotated[int, Meta(ge=0)] = 0
    """Rank of the update of each matrix. 0: no adapter, all weights are trained."""
    alpha: Annotated[float, Meta(gt=0)] = 32.0
    """The update is multiplied by this, divided by the rank: so the best learning rate hardly
    depends on the rank."""
    targets: tuple[str, ...] = ()
    """Layers that get an adapter, by the last parts of their names, as in `q_proj`. None named: all
    linear layers but the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmstartConfig:
    """A warm start, `repl-rl warmstart --model PATH`: a model is shown transcripts before GRPO.

    It computes as the update does, by `grpo.dtype` and `grpo.micro_batch_size`. Adapters are those
    of `[lora]`, of rank 32 where it sets none.
    """

    demonstrations: Annotated[int, Meta(ge=0)] = 1000
    """Transcripts of attempts that the task itself scripts, each run in a kernel. Some fail, so up
    to four times as many are run. Where transcripts are named with --from, there are none unless
    this is set."""
    keep: Literal["solved", "submitted", "all"] = "solved"
    """Transcripts that are shown to the model: those with a right answer, with any, or all."""
    transcripts_per_step: Annotated[int, Meta(ge=1)] = 8
    """Transcripts of a step."""
    epochs: Annotated[float, Meta(gt=0)] = 1.0
    """Number of times that each transcript is shown."""
    learning_rate: Annotated[float, Meta(gt=0)] | None = None
    """The highest of AdamW. Not set: 2e-3 for an adapter, 3e-4 for whole weights."""
    train_observations: bool = False
    """Train on what the interpreter answered as well, and not on the model's own lines alone."""
    gradient_checkpointing: Checkpointing = False
    """Checkpointing of activations, as in `[grpo]`. Transcripts are mostly far shorter than `auto`
    has to reckon with."""
    problems_before: Annotated[int, Meta(ge=0)] = 32
    """Held-out problems that measure the model before, the first of `eval.problems`. One that has
    never seen a REPL writes until a limit ends it, which takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Evaluations on held-out problems."""

    problems: Annotated[int, Meta(ge=0)] = 200
    """Held-out problems, one trajectory each, before and after training; 0: none."""
    every: Annotated[int, Meta(ge=0)] = 0
    """Steps between two measurements while training; 0: none. Where a rollout feeds several steps,
    the next rollout waits for them. The weights that did best stay in `checkpoints/best`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersConfig:
    """Worker processes of `repl-rl train`: each has kernels, a grader and a client of the servers.

    They take an engine that samples elsewhere, such as `vllm-server`.
    """

    count: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Workers of each process that trains, with `sampling.max_in_flight` trajectories each. 0: the
    process that trains does their work."""
    launch: tuple[str, ...] = ()
    """Commands that start a worker elsewhere, such as `ssh HOST`, dealt out to the workers in turn:
    the worker's own command is put behind. Empty: on this machine."""
    timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """The most that a worker may be silent while it has work. Beyond it the worker counts as hung:
    it is ended, and its trajectories are attempted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingConfig:
    """The processes that judge submissions."""

    deadline_s: Annotated[float, Meta(gt=0)] = 5.0
    """Time for one submission; after it the verdict is `undecided`."""
    num_workers: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Processes that grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """Reports of a run: what is shown and what is kept."""

    sample_every: Annotated[int, Meta(ge=1)] = 10
    """Steps between two sample trajectories on the screen."""
    checkpoint_every: Annotated[int, Meta(ge=1)] = 50
    """Steps between two checkpoints, rounded up to whole rollouts where these feed several."""
    keep_checkpoints: Annotated[int, Meta(ge=1)] = 2
    """Number of the latest checkpoints that stay; the last of a run, `final`, always does."""
    curve: bool = True
    """Draw the learning curve at the end of a run."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Trackers that also get the rows of `metrics.jsonl`."""
    hub: str | None = None
    """Repository `owner/name` on the hub that gets the last weights and their card; empty: none.
    One that is not there is made, private, before the first step. See `repl-rl push`."""


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
