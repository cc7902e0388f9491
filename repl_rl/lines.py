r"""What a line is, what became of it, and why a trajectory ends with it.

    line -> OutcomeKind, its entry in the table of traits -> LineOutcome -> Line

Knows no task and no reward beyond a kind's default price.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OutcomeKind(StrEnum):
    """What became of one line. Timeouts and deaths are observed from outside the kernel.

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
        """What the kind means to everything that reads it: rewards, replays, screens, reports."""
        return _TRAITS[self]


class Tone(StrEnum):
    """How a line of some kind is shown, in a terminal and on a page."""

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
    """Of such a line, unless the config sets another."""
    ran: bool = True
    """False where no kernel was asked to run it, or where the kernel still waits for its end."""
    is_idle: bool = False
    """True where it holds nothing that a kernel could run."""
    takes_number: bool = True
    """True where the next line begins a new statement: `In [2]:` after `In [1]:`."""
    ends: StopReason | None = None
    """Why the trajectory ends with such a line; None where it goes on."""
    kernel: str | None = None
    """What the supervisor did to the kernel, or saw happen to it. The status of such an execution
    has the name of the kind; the printed output does not show it."""
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
    r"""What became of one line, and what was shown of it.

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
    """Why a trajectory ended.

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
    """It was called off from outside (an interrupt, another rollout's failure): the part that is
    there is kept, and never scored."""

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
    r"""Whether there is text behind its first newline.

    A sampled line ends with the first token that ends in a newline. So a line runs on exactly where
    one of its tokens does.

    >>> runs_on(" x = 1\n"), runs_on(" x = 1\n\n"), runs_on("\n    ")
    (False, True, True)
    """
    return "\n" in text[:-1]
