"""Laws of the REPL's formats: numbers, prompts, and what a real kernel shows under them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from attempt_kit import an_attempt
from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Trajectory
from repl_rl.rollout.sampler import LineSampler
from repl_rl.transcript.conventions import IPYTHON, load_format
from repl_rl.transcript.format import PYTHON, Prompt, TranscriptFormat, spans
from repl_rl.transcript.tokens import ByteCodec
from repl_sandbox.fake import FakeKernel
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import ExecStatus, Execution, Kernel, Limits

CODEC = ByteCodec()
INCOMPLETE = Execution(status=ExecStatus.INCOMPLETE)
FORMAT = TranscriptFormat(name="own", banner="", primary="?", secondary="!")


def printed(output: str) -> Execution:
    return Execution(status=ExecStatus.OK, output=output)


async def play(fmt: TranscriptFormat, kernel: Kernel, *sources: str) -> Trajectory:
    """A rollout of `sources`, each with the space and the newline that a policy writes."""
    sampler = LineSampler(
        ScriptedEngine(CODEC, script(*(f" {source}\n" for source in sources))),
        CODEC,
        fmt,
        SamplingConfig(max_lines=len(sources) + 1),
        context_tokens=1 << 16,
    )
    prompt = Prompt.plain(fmt.render_prompt([], python_version=""))
    attempt = an_attempt()
    return await sampler.sample(attempt, prompt, kernel)


def shown(trajectory: Trajectory) -> str:
    """The transcript after the banner."""
    whole = CODEC.decode(trajectory.prompt_ids + trajectory.completion_ids)
    return whole[whole.index("In [1]:") :]


def ipython(answers: Mapping[str, Execution], *sources: str) -> Trajectory:
    return asyncio.run(play(IPYTHON, FakeKernel(answers), *sources))


# Prompts


def test_the_prompt_numbers_its_lines_and_asks_for_the_next() -> None:
    prompt = IPYTHON.prompt("x = 1\n{{problem}}", "What\nis x?", python_version="3.11.7")
    assert prompt.text == (
        "Python 3.11.7\n"
        "Type 'copyright', 'credits' or 'license' for more information\n"
        "IPython -- An enhanced Interactive Python. Type '?' for help.\n"
        "In [1]: x = 1\n"
        "In [2]: # What\n"
        "In [3]: # is x?\n"
        "In [4]:"
    )
    assert prompt.next_number == 4


def test_the_first_line_has_the_number_of_the_prompt_that_asks_for_it() -> None:
    sampler = LineSampler(
        ScriptedEngine(CODEC, script(" x\n")),
        CODEC,
        IPYTHON,
        SamplingConfig(),
        context_tokens=1 << 16,
    )
    prompt = IPYTHON.prompt("x = 1\n{{problem}}", "Go", python_version="3.11")
    attempt = an_attempt()
    kernel = FakeKernel({"x": printed("Out[{n}]: 1\n")})
    trajectory = asyncio.run(sampler.sample(attempt, prompt, kernel))
    assert CODEC.decode(trajectory.completion_ids) == " x\nOut[3]: 1\nIn [4]:"


# A session


def test_a_session_reads_as_in_ipython() -> None:
    answers = {
        "x": printed("Out[{n}]: 2\n"),
        "if x:": INCOMPLETE,
        "if x:\n    y": INCOMPLETE,
        "if x:\n    y\n": printed("Out[{n}]: 5\n"),
        "print(1)": printed("1\n"),
    }
    trajectory = ipython(answers, "x = 2", "# why", "", "x", "if x:", "    y", "", "print(1)")
    assert shown(trajectory) == (
        "In [1]: x = 2\n"
        "In [2]: # why\n"
        "In [3]: \n"
        "In [3]: x\n"
        "Out[3]: 2\n"
        "In [4]: if x:\n"
        "   ...:     y\n"
        "   ...: \n"
        "Out[4]: 5\n"
        "In [5]: print(1)\n"
        "1\n"
        "In [6]:"
    )


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (OutcomeKind.OK_SILENT, 8),
        (OutcomeKind.COMMENT, 8),
        (OutcomeKind.SYNTAX_ERROR, 8),
        (OutcomeKind.TIMEOUT, 8),
        (OutcomeKind.BLANK, 7),
    ],
)
def test_every_line_but_a_blank_one_counts(kind: OutcomeKind, number: int) -> None:
    assert IPYTHON.render_observation("", kind, number=7) == f"In [{number}]:"


def test_inside_an_open_statement_nothing_counts() -> None:
    answers = {"f(": INCOMPLETE, "f(\n# a": INCOMPLETE, "f(\n# a\n)": printed("")}
    trajectory = ipython(answers, "f(", "# a", ")", "x")
    assert shown(trajectory) == (
        "In [1]: f(\n   ...: # a\n   ...: )\nIn [2]: x\nIn [3]:"
    )  # fmt: skip


@pytest.mark.parametrize("fmt", [PYTHON, IPYTHON])
def test_no_prompt_ends_in_a_space_and_no_observation_begins_with_a_newline(
    fmt: TranscriptFormat,
) -> None:
    """The model samples the space; tokenizers would join the newline with the one before it."""
    answers = {"f(": INCOMPLETE, "f(\n)": printed("1\n")}
    kernel = FakeKernel(answers)
    trajectory = asyncio.run(play(fmt, kernel, "x = 1", "# a", "", "f(", ")", "x"))
    injected = [
        CODEC.decode(trajectory.completion_ids[span.start : span.stop])
        for span in spans(trajectory)
        if not span.is_sampled
    ]
    assert len(injected) == 6
    assert [text for text in [trajectory.prompt_text, *injected] if text.endswith(" ")] == []
    assert [text for text in injected if text.startswith("\n")] == []


def test_a_repeated_line_is_a_duplicate_whatever_its_number() -> None:
    trajectory = ipython({"x": printed("Out[{n}]: 1\n")}, "x", "x")
    kinds = [line.outcome.kind for line in trajectory.lines[:2]]
    assert kinds == [OutcomeKind.OK_OUTPUT, OutcomeKind.DUPLICATE]


def test_the_plain_format_leaves_braces_of_an_output_alone() -> None:
    kernel = FakeKernel({"s": printed("Out[{n}]: {version}\n")})
    trajectory = asyncio.run(play(PYTHON, kernel, "s"))
    assert trajectory.lines[0].outcome.observation == "Out[{n}]: {version}\n"


# In a kernel


async def _play_in_kernel(fmt: TranscriptFormat, *sources: str) -> Trajectory:
    limits = Limits(line_cpu_s=2.0, line_wall_s=20.0, memory_mib=256)
    async with KernelPool(limits, preload=(), setup=fmt.setup, standby=1) as pool:
        kernel = await pool.acquire(seed=0)
        try:
            return await play(fmt, kernel, *sources)
        finally:
            await kernel.aclose()


def in_kernel(*sources: str) -> str:
    return shown(asyncio.run(_play_in_kernel(IPYTHON, *sources)))


@pytest.mark.kernel
def test_a_kernel_shows_values_as_ipython_does() -> None:
    tall = r"type('A', (), {'__repr__': lambda self: 'a\nb'})()"
    sources = ("x = 2", "x", "_ + 1", "None", "_", "print(x)", tall, "1 / 0", "'{n}'")
    assert in_kernel(*sources) == (
        "In [1]: x = 2\n"
        "In [2]: x\n"
        "Out[2]: 2\n"
        "In [3]: _ + 1\n"
        "Out[3]: 3\n"
        "In [4]: None\n"
        "In [5]: _\n"
        "Out[5]: 3\n"
        "In [6]: print(x)\n"
        "2\n"
        f"In [7]: {tall}\n"
        "Out[7]: \n"
        "a\n"
        "b\n"
        "In [8]: 1 / 0\n"
        "Traceback (most recent call last):\n"
        '  File "<stdin>", line 1, in <module>\n'
        "ZeroDivisionError: division by zero\n"
        "In [9]: '{n}'\n"
        "Out[9]: '{n}'\n"
        "In [10]:"
    )


@pytest.mark.kernel
def test_a_displayhook_of_the_policy_is_forgotten_and_that_of_the_format_stays() -> None:
    own = "import sys; sys.displayhook = print; 1"
    assert in_kernel(own, "2", "del sys.displayhook", "3") == (
        f"In [1]: {own}\n"
        "1\n"
        "In [2]: 2\n"
        "Out[2]: 2\n"
        "In [3]: del sys.displayhook\n"
        "In [4]: 3\n"
        "Out[4]: 3\n"
        "In [5]:"
    )


@pytest.mark.kernel
def test_names_of_the_policy_do_not_reach_the_display() -> None:
    assert in_kernel("repr = print = None", "2") == (
        "In [1]: repr = print = None\nIn [2]: 2\nOut[2]: 2\nIn [3]:"
    )


@pytest.mark.kernel
def test_the_setup_of_a_format_leaves_no_name_behind() -> None:
    (line, _) = asyncio.run(_play_in_kernel(IPYTHON, "print(dir())")).lines
    (plain, _) = asyncio.run(_play_in_kernel(PYTHON, "print(dir())")).lines
    assert line.outcome.observation == plain.outcome.observation


# By name


def test_the_formats_are_found_by_name() -> None:
    assert (load_format("python"), load_format("ipython")) == (PYTHON, IPYTHON)


def test_a_format_of_ones_own_is_found_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repl_rl.transcript.conventions.OWN", FORMAT, raising=False)
    assert load_format("repl_rl.transcript.conventions:OWN") is FORMAT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pythn", "unknown transcript 'pythn'; did you mean 'python'? (or give module:attribute)"),
        (
            "repl_rl.transcript.conventions:ChatTemplate",
            "is a _ProtocolMeta; expected a TranscriptFormat",
        ),
        ("repl_rl.transcript.conventions:IPYTHN", "has no 'IPYTHN'; did you mean 'IPYTHON'?"),
        ("chat", "transcript = 'chat' needs a model whose tokenizer has a chat template"),
    ],
)
def test_what_is_no_format_is_refused_in_a_sentence(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_format(name)
    assert message in str(refused.value)


@pytest.mark.parametrize(("primary", "secondary"), [("calc> ", "."), ("calc>", ". ")])
def test_a_prompt_that_ends_in_a_space_is_refused(primary: str, secondary: str) -> None:
    with pytest.raises(ConfigError, match="ends in a space"):
        TranscriptFormat(name="own", banner="", primary=primary, secondary=secondary)
