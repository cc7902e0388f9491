"""Every number that a run writes into `metrics.jsonl`: its name, its unit and what it means.

    METRICS -> the chapter "Metrics" of docs/reference.md

`<outcome>` and `<reason>` stand for any kind of line and any reason to stop, `<cell>` for any
family and tier of a task, such as `ode-3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repl_rl.records import OutcomeKind, StopReason

_STANDS_FOR = {"<outcome>": OutcomeKind, "<reason>": StopReason}


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    name: str
    unit: str
    text: str
    when: str = ""
    """When it is there; empty: in each row of its kind."""

    @property
    def names(self) -> list[str]:
        """Names of all columns that it stands for."""
        for mark, kinds in _STANDS_FOR.items():
            if mark in self.name:
                return [self.name.replace(mark, str(kind)) for kind in kinds]
        return [self.name]


EVALUATION = (
    Metric("eval_solve_rate", "share", "Held-out problems that were solved."),
    Metric("eval_total", "count", "Held-out problems that were asked."),
    Metric("eval_ungraded", "count", "Answers without a verdict; they count as failed."),
    Metric("eval_submit_share", "share", "Trajectories that submitted an answer."),
    Metric(
        "eval_ran_share",
        "share",
        "Lines that ran without an error, of those that are neither comments nor blank.",
        "there are such lines",
    ),
    Metric("eval_runtime", "s", "Time that the evaluation took."),
)
RUN = (
    Metric("step", "count", "Updates so far. It never falls from one row to the next."),
    Metric("wall_s", "s", "Time of the run so far, in all of its parts if it was resumed."),
)
UPDATE = (
    Metric("loss", "", "Quantity that the optimiser minimises, after `grpo.loss_type`."),
    Metric("mean_adv_loss", "", "Minus the mean advantage of the sampled tokens."),
    Metric(
        "mean_kl_penalty", "", "`kl` times its weight `grpo.kl_beta`.", "`grpo.kl_beta` is not 0"
    ),
    Metric(
        "kl",
        "nats",
        "Divergence from the weights that the run started from, per sampled token (k3).",
        "`grpo.kl_beta` is not 0",
    ),
    Metric(
        "entropy",
        "nats",
        "Entropy of the distribution that a token is drawn from, per sampled token.",
    ),
    Metric("grad_norm", "", "Length of the gradient before it is clipped."),
    Metric("learning_rate", "", "Learning rate of the step."),
    Metric("epoch", "", "Share of the run's problems that were asked so far."),
    Metric("num_tokens", "count", "Prompts of all rows, and tokens in the loss, so far."),
    Metric("step_time", "s", "Rollouts, forwards and backwards of the step, as TRL measures it."),
    Metric("reward", "", "Mean outcome reward of the scored trajectories.", "one is scored"),
    Metric("reward_std", "", "Its standard deviation.", "two are scored"),
    Metric("rewards/outcome_reward/mean", "", "Value of `reward`.", "one is scored"),
    Metric("rewards/outcome_reward/std", "", "Value of `reward_std`.", "two are scored"),
    Metric("frac_reward_zero_std", "share", "Groups whose trajectories all have one reward."),
    *(
        Metric(f"completions/{which}_length", "tokens", text, "`grpo.credit` is not `tree`")
        for which, text in (
            ("mean", "Mean length of completions, without injected tokens."),
            ("min", "Length of the shortest one."),
            ("max", "Length of the longest one."),
        )
    ),
    *(
        Metric(f"clip_ratio/{name}", "share", text, "the loss clips ratios")
        for name, text in (
            ("low_mean", "Sampled tokens whose ratio is clipped from below."),
            ("low_min", "The least of any trajectory."),
            ("high_mean", "Sampled tokens whose ratio is clipped from above."),
            ("high_max", "The most of any trajectory."),
            ("region_mean", "Both together."),
        )
    ),
    Metric(
        "cispo_clip_ratio",
        "share",
        "Sampled tokens whose ratio is clipped from above.",
        "`grpo.loss_type` is `cispo`",
    ),
    Metric("vespo/phi_seq_mean", "", "Mean weight of a trajectory.", "`grpo.loss_type` is `vespo`"),
    Metric(
        "update/moved_share",
        "share",
        "Weights with a gradient that the step has changed at all.",
        "a weight has a gradient",
    ),
)
_BRANCHED = "groups branch, see `grpo.branching`"
_WEIGHED = "lines are weighed, see `grpo.importance`"
ENGINE_AND_TRAINER = (
    Metric(
        "inf_kld",
        "nats",
        "Divergence of the trainer's probabilities from the engine's, per sampled token (k3).",
        _WEIGHED,
    ),
    Metric("importance/ratio_mean", "", "Mean ratio of the two, per line.", _WEIGHED),
    Metric("importance/ratio_min", "", "The least ratio of a line.", _WEIGHED),
    Metric("importance/ratio_max", "", "The highest ratio of a line.", _WEIGHED),
    Metric("importance/truncated", "share", "Lines above `grpo.importance_cap`.", _WEIGHED),
    Metric(
        "importance/largest_gap",
        "nats",
        "The most that log-probabilities of a sampled token differ by.",
        _WEIGHED,
    ),
    Metric(
        "rollout/sync_gap",
        "nats",
        "Root mean square of what log-probabilities of a few tokens differ by, before rollouts.",
    ),
)
TRAJECTORIES = (
    Metric(
        "solve_rate",
        "share",
        "Trajectories of the step that solved their problem; in trees, by what each stands for.",
    ),
    Metric("outcome_mean", "", "Mean outcome reward of the scored trajectories.", "one is scored"),
    Metric(
        "ungraded_share", "share", "Trajectories whose answer has no verdict that the reward reads."
    ),
    Metric("active_tokens", "count", "Sampled tokens of the step: those that the loss is over."),
    Metric("mask_ratio", "share", "Tokens of completions that were sampled, not injected."),
    Metric("trajectory/silent_share", "share", "Trajectories in which no line holds code."),
    Metric("trajectory/first_line_submit_share", "share", "Trajectories that submit at once."),
    Metric("stop/<reason>", "share", "Trajectories that ended for this reason."),
)
LINES = (
    Metric("line/per_trajectory", "count", "Mean number of lines."),
    Metric("line/<outcome>/share", "share", "Lines with this outcome; they add up to 1."),
    Metric("line/<outcome>/tokens", "count", "Sampled tokens of these lines."),
    Metric(
        "line/<outcome>/adv_mass",
        "share",
        "Share of the absolute advantages of all tokens, as the loss takes them; 0 without any.",
    ),
    Metric("line/error_share", "share", "Lines whose outcome is an error."),
    Metric("line/code_share", "share", "Lines that hold something a kernel could run."),
    Metric(
        "line/run_on_share",
        "share",
        "Lines with text behind their first newline, from the same token: see `sampling.run_on`.",
    ),
    Metric(
        "line/recovery_share",
        "share",
        "Lines with an error after which a later line of the trajectory ran without one "
        "(`ok_output`, `ok_silent`) or submitted.",
        "a line has an error",
    ),
)
_RAN, _SUBMITTED = "a kernel ran a line", "something was submitted"


def _percentiles(name: str, text: str, when: str = "") -> list[Metric]:
    return [
        Metric(f"{name}_p{share}_ms", "ms", f"{share} % {text}", when) for share in (50, 95, 99)
    ]


SPEEDS = (
    Metric("time/rollout", "s", "Sampling."),
    Metric("time/kernel", "s", "Waiting for kernels: their starts and their lines."),
    Metric("time/grading", "s", "Waiting for verdicts."),
    Metric("time/sync", "s", "Giving the engine new weights, and checking that it has them."),
    Metric("time/update", "s", "Advantages, forwards, backwards and the optimiser."),
    Metric("time/other", "s", "The rest of the step: checkpoints, files, the screen."),
    Metric("rollout/seconds", "s", "The step's rollouts, from the first line to the last verdict."),
    Metric("rollout/tokens_per_s", "1/s", "Sampled tokens of trajectories."),
    Metric("rollout/lines_per_s", "1/s", "Lines of trajectories."),
    Metric("rollout/retries", "count", "Trajectories begun again, as our side of a kernel failed."),
    Metric("group/rerolled", "count", "Groups rolled out again: see `grpo.rerolls`."),
    Metric("group/leaves", "", "Trajectories of a group, on average.", _BRANCHED),
    Metric(
        "group/stems_lost",
        "count",
        "Trajectories that began at the prompt, as a line of whom they leave did something else.",
        _BRANCHED,
    ),
    Metric("group/dead", "count", "Groups that teach nothing: all their advantages are 0."),
    Metric("rollout/wasted_tokens", "count", "Tokens that the engine sampled for no trajectory."),
    Metric(
        "engine/tokens_per_s",
        "1/s",
        "Sampled tokens, wasted ones included, for each second with a line in flight.",
        "a line was sampled",
    ),
    Metric(
        "engine/idle_share", "share", "Time of the rollouts in which no line was being sampled."
    ),
    Metric(
        "engine/prefix_hit_rate",
        "share",
        "Tokens before a line whose keys and values were there already.",
        "the engine counts them: `hf` does",
    ),
    *_percentiles("kernel/start", "of the kernels were there after at most this."),
    *_percentiles("kernel/line", "of the lines took at most this by the clock.", _RAN),
    *_percentiles("kernel/line_cpu", "of the lines took at most this of a CPU.", _RAN),
    Metric("kernel/timeouts", "count", "Lines that were interrupted at a limit of time."),
    Metric("kernel/kills", "count", "Kernels that had to be killed."),
    Metric("kernel/deaths", "count", "Kernels that died of themselves."),
    *_percentiles(
        "grader/verdict",
        "of the verdicts were there after at most this, the wait for a free grader included.",
        _SUBMITTED,
    ),
    Metric(
        "grader/undecided_share",
        "share",
        "Submissions that the grader could not judge.",
        _SUBMITTED,
    ),
    Metric(
        "grader/error_share", "share", "Submissions at which the grader itself failed.", _SUBMITTED
    ),
)
SECTIONS = {
    "Every row": RUN,
    "Rows of evaluations": EVALUATION,
    "The update": UPDATE,
    "Engine and trainer": ENGINE_AND_TRAINER,
    "Trajectories": TRAJECTORIES,
    "Lines": LINES,
    "Time, engine, kernels, grader": SPEEDS,
}
"""All rows of the table. Those below the first two are in the rows of steps."""

METRICS = {name: one for rows in SECTIONS.values() for one in rows for name in one.names}
"""By the name of the column."""

_INTRODUCTION = """\
## Metrics

A run writes `metrics.jsonl`: a row for each evaluation and each step, also for a step that nothing
could be learned from. Trackers (`report.trackers`) get the same rows. `loss` is `train/loss` there,
and `eval_solve_rate` is `eval/solve_rate`. A number with a condition is left out where it does not
hold. Names of the update are TRL's where TRL has one.

The columns `time/...` are disjoint. They add up to the time of the step, which begins where the
last one ended; evaluations are not in it. Trajectories overlap: while one is sampled, another waits
for its kernel. So the time of the rollouts is divided among `time/rollout`, `time/kernel` and
`time/grading` as the times of their trajectories are, all added up.

Where several processes train, counts, shares and latencies are those of all of them, and
`engine/tokens_per_s` is the sum of their engines. Times are the first process's: `time/...`,
`rollout/seconds` and what is counted per second of it. It waits for the others at the end of its
rollouts, which is in `time/rollout`, and in the update.
"""


def chapter() -> str:
    """The text of the chapter."""
    return "\n".join([_INTRODUCTION, *(_section(title) for title in SECTIONS)])


def _section(title: str) -> str:
    head = ("name", "unit", "what it is", "if")
    rows = [(f"`{one.name}`", one.unit, one.text, one.when) for one in SECTIONS[title]]
    return f"### {title}\n\n{markdown_table(head, rows)}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown with a blank row at its end; a bar within a cell is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["--"] * len(head), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
