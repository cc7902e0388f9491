r"""Records that travel from a task to the loss: frozen and typed.

    Problem -> Attempt -> Line ... -> Trajectory -> Verdict -> Reward = Scored -> advantages [T]

Lines bring their outcomes and the table of what each kind means; `Origin` says where trajectories
come from, `Finding` is one line of a report. Any layer may use them. Knows no torch, no
kernel, no file. T tokens of a completion, L lines, P tokens of a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class OutcomeKind(StrEnum):
    """Kind of a line's outcome. Timeouts and deaths are observed from outside the kernel.

    >>> OutcomeKind.TIMEOUT.traits.is_error, OutcomeKind("ok_output").traits.is_error
    (True, False)
    """

    COMMENT = "comment"
    BLANK = "blank"
    INCOMPLETE = "incomplete"
    """It ran nothing yet: the interpreter shows `...` and waits for more."""
    CUT = "cut"
    """It never ran: a limit or the end of the sequence came before its newline."""
    OK_SILENT = "ok_silent"
    OK_OUTPUT = "ok_output"
    DUPLICATE = "duplicate"
    """It ran without error, and the same source had run before with the same output. Where nothing
    is printed, only imports and plain assignments count: `i += 1` is a step each time."""
    SYNTAX_ERROR = "syntax_error"
    NAME_ERROR = "name_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"
    DIED = "died"
    FAKE_OUTPUT = "fake_output"
    """A comment or line that imitates a prompt or an output of the interpreter."""
    SUBMITTED = "submitted"
    BAD_SUBMIT = "bad_submit"
    """`submit_final_answer` called in a way that submits nothing."""

    @property
    def traits(self) -> OutcomeTraits:
        """Meaning of the kind for everything that reads it: rewards, replays, screens, reports."""
        return _TRAITS[self]


class Tone(StrEnum):
    """Tone in which a line of some kind is shown, in a terminal and on a page."""

    THOUGHT = "thought"
    RAN = "ran"
    REPEATED = "repeated"
    """It did nothing new."""
    ERROR = "error"
    SUBMITTED = "submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTraits:
    """One entry of the table of outcomes: whoever adds a kind says here what it means."""

    tone: Tone
    reward: float = 0.0
    """Reward of such a line, unless the config sets another."""
    ran: bool = True
    """False where no kernel was asked to run it, or where the kernel still waits for its end."""
    is_idle: bool = False
    """True where it holds nothing that a kernel could run."""
    takes_number: bool = True
    """True where the next line begins a new statement: `In [2]:` after `In [1]:`."""
    ends: StopReason | None = None
    """Reason why the trajectory ends with such a line; None where it goes on."""
    kernel: str | None = None
    """Event in the kernel that the supervisor caused or saw. The status of such an execution has
    the name of the kind; the printed output does not show it."""
    error_types: tuple[str, ...] = ()
    """Names of the exception classes that mean it; the first is used where none is known."""
    is_limit: bool = False
    """True for a limit of time or memory: whether it strikes depends on the machine."""
    strikes_anywhere: bool = False
    """True where such a limit stops the line at any point and leaves the kernel alive."""

    @property
    def is_error(self) -> bool:
        return self.tone is Tone.ERROR

    @property
    def kernel_is_gone(self) -> bool:
        return self.kernel is not None and self.ends is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOutcome:
    r"""Outcome of one line, and what was shown of it.

    >>> LineOutcome(kind=OutcomeKind.OK_OUTPUT, observation="2\n").kind.traits.reward
    0.0
    """

    kind: OutcomeKind
    observation: str = ""
    """Text spliced in after the line, without the prompt that follows it."""
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    is_truncated: bool = False
    """True where the observation is shorter than what the kernel printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    r"""One sampled line: `completion_ids[start:stop]` are its tokens, its newline among them.

    >>> outcome = LineOutcome(kind=OutcomeKind.OK_OUTPUT, observation="2\n")
    >>> line = Line(index=0, source=" 1+1\n", start=0, stop=5, outcome=outcome)
    >>> line.stop - line.start, line.outcome.observation
    (5, '2\n')
    """

    index: int
    source: str
    """The whole decoded text, with its leading space and its newline. Where a line is a message of
    a chat, these two stand for the message's ends."""
    start: int
    stop: int
    outcome: LineOutcome


class StopReason(StrEnum):
    """Reason for a trajectory's end.

    >>> StopReason("max_lines") is StopReason.MAX_LINES
    True
    """

    SUBMITTED = "submitted"
    EOS = "eos"
    """The model sampled an end-of-sequence token instead of going on."""
    MAX_LINES = "max_lines"
    MAX_LINE_TOKENS = "max_line_tokens"
    """A line ran into its own cap."""
    MAX_TOKENS = "max_tokens"
    """Sampled and injected tokens together reached the budget."""
    CONTEXT_FULL = "context_full"
    TIME_LIMIT = "time_limit"
    KERNEL_KILLED = "kernel_killed"
    KERNEL_DIED = "kernel_died"
    CANCELLED = "cancelled"
    """It was cancelled from outside (an interrupt, another rollout's failure). The part made so far
    is kept, and never scored."""

    @property
    def is_limit(self) -> bool:
        """True where a budget cut the trajectory: lines, tokens, context or time."""
        return self in _LIMITS


_LIMITS = (
    *(StopReason.MAX_LINES, StopReason.MAX_LINE_TOKENS, StopReason.MAX_TOKENS),
    *(StopReason.CONTEXT_FULL, StopReason.TIME_LIMIT),
)

_TRAITS = {
    OutcomeKind.COMMENT: OutcomeTraits(tone=Tone.THOUGHT, ran=False, is_idle=True),
    OutcomeKind.BLANK: OutcomeTraits(
        tone=Tone.THOUGHT, ran=False, is_idle=True, takes_number=False
    ),
    OutcomeKind.INCOMPLETE: OutcomeTraits(tone=Tone.RAN, ran=False, takes_number=False),
    OutcomeKind.CUT: OutcomeTraits(tone=Tone.REPEATED, ran=False, is_idle=True),
    OutcomeKind.OK_SILENT: OutcomeTraits(tone=Tone.RAN),
    OutcomeKind.OK_OUTPUT: OutcomeTraits(tone=Tone.RAN),
    OutcomeKind.DUPLICATE: OutcomeTraits(tone=Tone.REPEATED, reward=-0.05),
    OutcomeKind.SYNTAX_ERROR: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.3, error_types=("SyntaxError", "IndentationError", "TabError")
    ),
    OutcomeKind.NAME_ERROR: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.1, error_types=("NameError", "UnboundLocalError")
    ),
    OutcomeKind.RUNTIME_ERROR: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.1, error_types=("Exception",)
    ),
    OutcomeKind.TIMEOUT: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.3, kernel="interrupted", is_limit=True, strikes_anywhere=True
    ),
    OutcomeKind.MEMORY: OutcomeTraits(
        tone=Tone.ERROR,
        reward=-0.3,
        error_types=("MemoryError",),
        is_limit=True,
        strikes_anywhere=True,
    ),
    # No limit of the machine: characters are counted alike everywhere.
    OutcomeKind.OUTPUT_LIMIT: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.3, error_types=("OutputLimit",)
    ),
    OutcomeKind.KILLED: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.4, kernel="killed", ends=StopReason.KERNEL_KILLED, is_limit=True
    ),
    OutcomeKind.DIED: OutcomeTraits(
        tone=Tone.ERROR, reward=-0.4, kernel="died", ends=StopReason.KERNEL_DIED, is_limit=True
    ),
    OutcomeKind.FAKE_OUTPUT: OutcomeTraits(tone=Tone.ERROR, reward=-0.3, is_idle=True),
    OutcomeKind.SUBMITTED: OutcomeTraits(tone=Tone.SUBMITTED, ends=StopReason.SUBMITTED),
    OutcomeKind.BAD_SUBMIT: OutcomeTraits(tone=Tone.ERROR, reward=-0.1),
}


def runs_on(text: str) -> bool:
    r"""Return whether there is text behind the first newline of a line.

    A sampled line ends with the first token that ends in a newline. So a line runs on exactly where
    one of its tokens does.

    >>> runs_on(" x = 1\n"), runs_on(" x = 1\n\n"), runs_on("\n    ")
    (False, True, True)
    """
    return "\n" in text[:-1]


class Split(StrEnum):
    """Side of the split that a problem is on. A hash of its statement decides, so none is on both.

    >>> [str(side) for side in Split]
    ['train', 'held_out']
    """

    TRAIN = "train"
    HELD_OUT = "held_out"


MAX_CHANCE = 0.9
"""Beyond it a wrong answer would cost more than nine right ones are worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One item of a task.

    The policy sees `statement`. `meta` stays with the trainer and the grader's process: it holds
    what grading needs (the expected answer, the domain) and what reports group by (`family`,
    `tier`), all as text.

        >>> Problem(id="2x3", statement="What is 2 * 3?", meta={"answer": "6"}).meta["answer"]
        '6'
    """

    id: str
    statement: str
    """One or more lines of plain text; the prompt shows each as a comment."""
    meta: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    """Sources of one line each, such as `x = Symbol('x', real=True)`. Its kernel runs them before
    the policy's first line, and the prompt shows them."""
    chance: float = 0.0
    """Accuracy of the best guess made without reading the problem. A wrong answer costs so much
    that guessing earns nothing: see `rewards.shaped`."""

    @property
    def label(self) -> str:
        """Name in messages: the row of a file that it was read from, or its id."""
        return self.meta.get("row", f"problem {self.id}")

    def __post_init__(self) -> None:
        if isinstance(self.setup, str):
            raise TypeError(f"problem {self.id!r} has one text as its setup; expected a tuple")
        object.__setattr__(self, "setup", tuple(self.setup))  # as it is read back from a file
        for one in (self.id, self.statement, *self.meta, *self.meta.values(), *self.setup):
            if not isinstance(one, str):
                raise TypeError(f"problem {self.id!r} holds {one!r}; expected texts alone")
        if not 0 <= self.chance <= MAX_CHANCE:
            raise ValueError(
                f"problem {self.id} has the chance {self.chance}; expected 0 to {MAX_CHANCE}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Request for one trajectory. Siblings share `problem` and `group_index`, never a seed.

    >>> problem = Problem(id="sum", statement="What is 1 + 1?")
    >>> Attempt(problem=problem, group_index=0, sibling_index=3, seed=17).problem.id
    'sum'
    """

    problem: Problem
    group_index: int
    sibling_index: int
    seed: int
    stem: Stem | None = None
    """Lines that it begins with; None: the prompt alone."""

    @property
    def kernel_seed(self) -> int:
        """Seed of its kernel: that of the trajectory whose lines it copies, if any."""
        return self.seed if self.stem is None else self.stem.trajectory.seed

    @property
    def branch(self) -> Branch | None:
        """Point where its trajectory branches from the one whose lines it copies."""
        if self.stem is None:
            return None
        index = self.stem.trajectory.sibling_index if self.stem.is_sibling else None
        return Branch(sibling_index=index, num_lines=self.stem.num_lines, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stem:
    """The first lines of a trajectory, that another one of the same problem begins with.

    They run again in a kernel with the seed of the first; its tokens are copied, never encoded
    again.
    """

    trajectory: Trajectory
    """It may still be under way: then this is as much of it as is there."""
    num_lines: int
    """It goes on after them."""
    is_sibling: bool = True
    """False where the trajectory is of another group, such as one of an earlier step."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the completion that are copied: all that stand before its next line."""
        lines, num = self.trajectory.lines, self.num_lines
        return lines[num].start if num < len(lines) else len(self.trajectory.completion_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Point where a trajectory leaves the one that it begins as."""

    sibling_index: int | None
    """Index of the other trajectory; None where that one is no sibling."""
    num_lines: int
    """Lines that are copies."""
    seed: int
    """Seed of its own lines. `Trajectory.seed` is the kernel's, which both share."""

    @property
    def leaves_sibling(self) -> bool:
        """True where both are of one group, which is a tree."""
        return self.sibling_index is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Text that a policy thought before its first line, and what was injected after it."""

    source: str
    """The sampled text, with the marker that ended it where the policy wrote one."""
    stop: int
    """`completion_ids[:stop]` are its tokens; 0 where the policy thought nothing."""
    shown: str
    """The text between it and the first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    r"""Record of one rollout.

    Example, the line ` 1+1\n` sampled after `>>>` and answered by `2\n>>>` (ids are made up):
        completion_ids = (220, 16, 10, 16, 198,   17, 198, 20154)
        loss_mask      = (  T,  T,  T,  T,   T,    F,   F,     F)
        lines          = (Line(index=0, source=" 1+1\n", start=0, stop=5, outcome=outcome),)
    """

    problem_id: str
    group_index: int
    """Index of its problem in the run: siblings share it."""
    sibling_index: int
    policy_version: int
    """Optimiser steps that the sampling policy had taken."""
    seed: int
    prompt_text: str
    prompt_ids: tuple[int, ...]  # [P]
    completion_ids: tuple[int, ...]  # [T]
    """Sampled and injected tokens, in the order the model saw them."""
    loss_mask: tuple[bool, ...]  # [T]
    """True where the model sampled the token. The only truth about who wrote what."""
    logprobs: tuple[float, ...]  # [T]
    """Log-probability of each sampled token under the sampling policy, in nats; injected: 0.0."""
    lines: tuple[Line, ...]  # [L]
    stop_reason: StopReason
    submission: str | None = None
    """`repr` of the submitted value, None if nothing was submitted. Untrusted text."""
    thought: Thought | None = None
    """None where the prompt asks for a line at once."""
    branch: Branch | None = None
    """None where all lines are its own."""

    @property
    def opening(self) -> str:
        """Text right before the first line; it ends in the first prompt."""
        return self.prompt_text if self.thought is None else self.thought.shown

    @property
    def num_copied(self) -> int:
        """Tokens at the start of its completion that are copied from another trajectory."""
        if self.branch is None:
            return 0
        return self.own_lines[0].start if self.own_lines else len(self.completion_ids)

    @property
    def num_before_lines(self) -> int:
        """Tokens at its beginning that the policy sampled outside lines, before the first one."""
        return 0 if self.thought is None else self.thought.stop

    @property
    def num_copied_lines(self) -> int:
        """Lines at its start that are copied from another trajectory."""
        return 0 if self.branch is None else self.branch.num_lines

    @property
    def own_lines(self) -> tuple[Line, ...]:
        """The lines that were sampled for it."""
        return self.lines[self.num_copied_lines :]

    @property
    def own_mask(self) -> list[bool]:
        """[T]: True where a token was sampled for it."""
        copied = self.num_copied
        return [False] * copied + list(self.loss_mask[copied:])

    @property
    def num_sampled(self) -> int:
        """Tokens that were sampled for it."""
        return sum(self.own_mask)

    def value_of(self, line: Line) -> str | None:
        """`repr` of what one of its lines submitted; None where it did not."""
        return self.submission if line.outcome.kind is OutcomeKind.SUBMITTED else None


GRADING = 4
"""Version of what submissions are judged by. Raised by hand with a change that may judge one
otherwise: what was judged before then says that it may be out of date."""


class VerdictKind(StrEnum):
    """Kind of conclusion that the grader reached about a submission.

    >>> VerdictKind("proved") is VerdictKind.PROVED
    True
    """

    PROVED = "proved"
    """Correct, by an exact argument."""
    SUPPORTED = "supported"
    """Correct as far as numbers show; no exact argument was found."""
    UNDECIDED = "undecided"
    """The grader could not tell. Not the same as wrong: left out of the update."""
    REFUTED = "refuted"
    """Wrong, by an explicit counterexample."""
    WRONG = "wrong"
    """Wrong: another form, another value, nothing that answers the question."""
    MALFORMED = "malformed"
    """Not an answer of the kind asked for, or not parseable."""

    @property
    def is_solved(self) -> bool:
        return self in (VerdictKind.PROVED, VerdictKind.SUPPORTED)

    @property
    def is_failed(self) -> bool:
        """Judged, and not solved."""
        return self in (VerdictKind.REFUTED, VerdictKind.WRONG, VerdictKind.MALFORMED)

    @property
    def word(self) -> str:
        """`right`, `wrong` or `undecided`: what a person reads of an answer."""
        return "right" if self.is_solved else "wrong" if self.is_failed else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Conclusion of the grader about a submission.

    >>> Verdict(kind=VerdictKind.SUPPORTED, method="numeric").is_solved
    True
    """

    kind: VerdictKind
    method: str = ""
    """Rung that decided, for example `structural`, `numeric`, `witness`."""
    evidence: str = ""
    ms: float = 0.0
    grader_error: str | None = None
    """Set where the grader itself failed; `kind` is UNDECIDED then."""
    chance: float = 0.0
    """Chance of a guess, as in `Problem.chance`."""

    @property
    def is_solved(self) -> bool:
        return self.kind.is_solved


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Rewards of a trajectory, before any baseline.

    >>> Reward(line_rewards=(-0.3, 0.0), outcome_reward=1.0).total
    0.7
    """

    line_rewards: tuple[float, ...]  # [L]
    outcome_reward: float | None
    """None where it could not be scored: left out of every baseline, never counted as 0."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Sum of every term by name, for the ledger."""

    @property
    def total(self) -> float:
        """Outcome and lines together; an unscorable trajectory counts with its lines alone."""
        return (self.outcome_reward or 0.0) + sum(self.line_rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A trajectory with its verdict and its reward; one JSON line of a run's `trajectories/`.

    To read all of a run:

        for scored in load_run("runs/mine"):
            print(scored.problem.id, scored.verdict, scored.reward.total)
    """

    trajectory: Trajectory
    problem: Problem
    verdict: Verdict | None
    """None where nothing was submitted."""
    reward: Reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of trajectories: what it takes to run their lines again, and to score them."""

    config: str
    """The run's resolved config, as TOML."""
    setup: tuple[str, ...]
    """Sources that a kernel ran before the first line."""
    tokenizer: str | None
    """Folder or `owner/name` of the model whose tokenizer made the ids; None: ids are bytes."""
    isolation: str
    """The walls around its kernels, in words."""
    versions: Mapping[str, str]
    """Versions of Python (`python`), of repl-rl (`repl_rl`), of the packages that kernels had
    loaded and of those that trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a report: what was found, and whether it is as it should be."""

    name: str
    text: str
    passed: bool = True
