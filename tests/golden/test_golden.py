"""The golden transcripts of the default reward hold, and the format says what it means."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from repl_rl.config import Config
from repl_rl.config.sections import RewardConfig
from repl_rl.errors import ConfigError
from repl_rl.golden.check import MutantResult, mutants, play
from repl_rl.golden.suites import Suite, Suites
from repl_rl.golden.text import GoldenFile, find_files, parse
from repl_rl.records import OutcomeKind, StopReason

HERE = Path(__file__).parent
SUITES = [Suite.open(path) for path in find_files([HERE])]


@pytest.mark.parametrize(
    ("suite", "index"),
    [
        pytest.param(suite, index, id=golden.title)
        for suite in SUITES
        for index, golden in enumerate(suite.file.goldens)
    ],
)
def test_the_default_reward_is_as_written(suite: Suite, index: int) -> None:
    found = suite.misses_of(index)
    assert not found, "\n\n".join(map(str, found))


def test_no_constant_of_the_default_reward_can_change_unseen() -> None:
    fates = Suites.open([HERE]).mutate()
    assert [(mutant.key, mutant.change) for mutant, fate in fates if fate.is_survivor] == []


def test_every_outcome_of_a_line_and_every_key_has_its_mutants() -> None:
    keys = {mutant.key for mutant in mutants(RewardConfig())}
    assert {f"line.{kind}" for kind in OutcomeKind} <= keys
    assert {"verdict.proved", "verdict.undecided", "max_line_charge", "no_submission"} <= keys


def test_the_transcript_of_the_page_on_rewards_is_as_written(tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "rewards.md").read_text()
    shown = page.partition("## Testing a reward")[2].partition("    === ")
    (tmp_path / "a.repl").write_text(textwrap.dedent(shown[1] + shown[2].partition("`<-`")[0]))
    assert list(Suite.open(tmp_path / "a.repl").misses()) == []


# What a file says


def read(text: str) -> GoldenFile:
    return parse(text, Path("a.repl"))


def kinds(text: str) -> list[OutcomeKind]:
    """Outcomes of the one transcript in `text`, written without its title."""
    (golden,) = read(f"=== t\n{text}").goldens
    return [line.outcome.kind for line in play(golden).lines]


def test_a_transcript_becomes_the_tokens_that_a_policy_would_have_left() -> None:
    (golden,) = read("=== t\n>>> 1 + 1\n<- ok_output\n2\n>>> x = 1\n").goldens
    trajectory = play(golden)
    assert bytes(trajectory.completion_ids) == b" 1 + 1\n2\n>>> x = 1\n"
    assert [line.source for line in trajectory.lines] == [" 1 + 1\n", " x = 1\n"]
    assert trajectory.stop_reason is StopReason.MAX_LINES


def test_several_transcripts_and_their_comments_are_told_apart() -> None:
    file = read("# of the file\n\n=== a\n>>> x\n1\n\n# of b\n=== b\n# too\n>>> y\n2\n\n# end\n")
    assert [golden.title for golden in file.goldens] == ["a", "b"]
    assert [golden.lines[0].output for golden in file.goldens] == ["1\n", "2\n"]


def test_a_hash_or_a_blank_line_within_an_output_is_output() -> None:
    (golden,) = read("=== t\n>>> show()\n# a\n\nb\n>>> x\n").goldens
    assert golden.lines[0].output == "# a\n\nb\n"


def test_a_backslash_makes_output_of_what_looks_like_something_else() -> None:
    text = "=== t\n>>> show()\n\\>>> x\n\\=== y\n\\\\z\n\\\n"
    (golden,) = read(text).goldens
    assert golden.lines[0].output == ">>> x\n=== y\n\\z\n\n"


def test_dots_below_an_output_are_output() -> None:
    (golden,) = read("=== t\n>>> show()\na\n... [9 characters omitted] ...\nb\n").goldens
    assert golden.lines[0].output == "a\n... [9 characters omitted] ...\nb\n"


def test_an_expectation_stands_below_its_source_and_nowhere_else() -> None:
    (golden,) = read("=== t\n>>> x <- y\n<- ok_output -0.12/0.6 # why\n<- a\n").goldens
    (line,) = golden.lines
    assert (line.source, line.output) == (" x <- y\n", "<- a\n")
    assert line.kind is OutcomeKind.OK_OUTPUT
    assert line.reward == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("SyntaxError: invalid syntax", OutcomeKind.RUNTIME_ERROR),
        ("Traceback (most recent call last):\n  File ...\nNameError: x", OutcomeKind.NAME_ERROR),
        ("Traceback (most recent call last):\nOdd: a\nb", OutcomeKind.RUNTIME_ERROR),
        ("Traceback (most recent call last):\nMemoryError", OutcomeKind.MEMORY),
        ("a\nValueError: b", OutcomeKind.RUNTIME_ERROR),
        ("sympy.polys.polyerrors.PolynomialError: b", OutcomeKind.RUNTIME_ERROR),
        ("OutputLimit: more than 1000 characters", OutcomeKind.OUTPUT_LIMIT),
        ("NameError: a\n  Traceback (most recent call last):", OutcomeKind.OK_OUTPUT),
        ("\\ValueError: b", OutcomeKind.OK_OUTPUT),
        ("Odd: a", OutcomeKind.OK_OUTPUT),
    ],
)
def test_an_error_is_read_from_its_traceback_or_from_the_last_line(
    output: str, kind: OutcomeKind
) -> None:
    assert kinds(f">>> f()\n{output}\n") == [kind]


def test_the_later_of_two_tracebacks_is_the_error() -> None:
    chained = (
        "Traceback (most recent call last):\nZeroDivisionError: a\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\nNameError: b\n"
    )
    assert kinds(f">>> f()\n{chained}") == [OutcomeKind.NAME_ERROR]


@pytest.mark.parametrize("kind", ["timeout", "killed", "died", "cut"])
def test_what_no_output_tells_is_taken_from_the_word(kind: str) -> None:
    assert kinds(f">>> f()\n<- {kind}\n") == [kind]


@pytest.mark.parametrize(
    ("source", "kind"),
    [("f(", "incomplete"), ("f(1))", "syntax_error"), ("obj.None ''' 1", "syntax_error")],
)
@pytest.mark.parametrize("output", ["", "1\n", "NameError: f\n"])
def test_whether_a_source_compiles_is_read_from_the_source(
    source: str, kind: str, output: str
) -> None:
    assert kinds(f">>> {source}\n{output}") == [kind]


@pytest.mark.parametrize("kind", ["timeout", "killed", "incomplete"])
def test_but_not_where_no_kernel_is_asked(kind: str) -> None:
    assert kinds(f">>> # hm\n<- {kind}\n") == [OutcomeKind.COMMENT]


def test_a_submission_is_the_text_of_its_expression_unless_the_head_says() -> None:
    text = "verdict: proved\n{}>>> submit_final_answer(_)\n"
    for head, submission in (("", "_"), ("submission: [2]\n", "[2]"), ("submission: none\n", None)):
        (golden,) = read("=== t\n" + text.format(head)).goldens
        assert play(golden).submission == submission


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.repl:1: no transcript here; expected `=== TITLE`"),
        (">>> x\n=== t\n", "a.repl:1: '>>> x'; expected `config: ...`, `set: ...`, a comment or"),
        ("=== t\n\n", "a.repl:1: 't' has no line; expected `>>> SOURCE`"),
        ("===\n>>> x\n", "a.repl:1: a title is missing"),
        ("=== t\n>>> x\n=== t\n>>> x\n", "a.repl:3: the title 't' is that of line 1 too"),
        (
            "=== t\nverdct: proved\n>>> x\n",
            "a.repl:2: unknown key 'verdct'; did you mean 'verdict'",
        ),
        ("=== t\nverdict: proven\n>>> x\n", "a.repl:2: unknown word 'proven'; did you mean 'prov"),
        ("=== t\nstop: none\n>>> x\n", "a.repl:2: unknown word 'none'; expected one of submitted"),
        ("=== t\noutcome: 1\noutcome: 1\n>>> x\n", "a.repl:3: a second 'outcome'; the first is"),
        ("=== t\noutcome: high\n>>> x\n", "a.repl:2: 'high'; expected a number such as -0.3"),
        ("=== t\n... x\n>>> x\n", "a.repl:2: '... x'; expected `verdict: ...`"),
        (
            "=== t\nlemma: a proved\n>>> x\n",
            "a.repl:2: unknown key 'lemma'; expected one of verdict",
        ),
        ("=== t\nchance: none\n>>> x\n", "a.repl:2: 'none'; expected a number such as"),
        ("=== t\nchance: 1\n>>> x\n", "a.repl:2: '1'; expected a chance from 0 to 0.9"),
        ("=== t\nchance: -0.1\n>>> x\n", "a.repl:2: '-0.1'; expected a chance from 0"),
        ("=== t\n>>> x\n<-\n", "a.repl:3: '<-'; expected `<- OUTCOME REWARD`"),
        ("=== t\n>>> x\n<- ok 0\n", "a.repl:3: unknown word 'ok'; "),
        ("=== t\n>>> x\n<- timout\n", "a.repl:3: unknown word 'timout'; did you mean 'timeout'?"),
        ("=== t\n>>> x\n<- blank 1/0\n", "a.repl:3: '1/0'; expected a number"),
        ("=== t\n>>> x\n<- blank 0 0\n", "a.repl:3: '<- blank 0 0'; expected"),
    ],
)
def test_what_is_not_in_the_format_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.repl").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Suite.open(Path("a.repl"))
    assert str(caught.value).startswith(message)


def test_a_submission_takes_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text("=== t\n>>> submit_final_answer(2)\n")
    with pytest.raises(ConfigError, match=r"a.repl:1: 't' submits '2'; expected `verdict: KIND`"):
        list(Suite.open(tmp_path / "a.repl").misses())


# What it is held to


def found(tmp_path: Path, text: str, *overrides: str) -> list[tuple[int, str, str]]:
    """(line, expected, got) of every miss in `text`, without its title."""
    path = tmp_path / "a.repl"
    path.write_text(f"=== t\n{text}")
    misses = Suite.open(path, overrides=overrides).misses()
    return [(miss.number, miss.expected, miss.got) for miss in misses]


@pytest.mark.parametrize(
    ("text", "miss"),
    [
        (">>> x\n<- name_error\n1\n", (3, "<- name_error", "<- ok_output")),
        (">>> x\n<- -0.1\n1\n", (3, "<- -0.1", "<- ok_output 0")),
        (">>> x\n<- ok_output -0.1\n1\n", (3, "<- ok_output -0.1", "<- ok_output 0")),
        ("outcome: 0\n>>> x\n", (2, "outcome: 0", "outcome: -0.6")),
        ("stop: eos\n>>> x\n", (2, "stop: eos", "stop: max_lines")),
        ("verdict: proved\n>>> x\n", (2, "verdict: proved", "verdict: none")),
        (">>> # a\nb\n", (2, "the output 'b\\n'", "the output ''")),
        (">>> # a\n... b\n", (3, "the prompt ...", "the prompt >>>")),
        (">>> f(\n<- incomplete\n>>> b\n", (4, "the prompt >>>", "the prompt ...")),
        (
            "verdict: proved\n>>> submit_final_answer(2)\n>>> x\n",
            (4, "one more line", "the end: submitted"),
        ),
    ],
)
def test_what_the_code_does_not_give_is_a_miss(
    tmp_path: Path, text: str, miss: tuple[int, str, str]
) -> None:
    assert found(tmp_path, text) == [miss]


def test_what_is_not_written_is_not_asserted(tmp_path: Path) -> None:
    assert (
        found(tmp_path, "verdict: wrong\n>>> x\nNameError: x\n>>> submit_final_answer(1)\n") == []
    )


def test_a_file_names_its_own_config_and_overrides_stand_above_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[reward]\nno_submission = -0.7\n")
    text = "=== t\noutcome: {}\n>>> x\n<- {}\nNameError: x\n"
    path = tmp_path / "a.repl"
    preamble = "config: mine.toml\nset: reward.line.name_error=-0.2\n"
    path.write_text(preamble + text.format(-0.7, -0.2))
    assert list(Suite.open(path).misses()) == []
    path.write_text(preamble + text.format(-0.7, -0.05))
    assert list(Suite.open(path, overrides=["reward.line.name_error=-0.05"]).misses()) == []


def test_a_setting_of_a_file_that_is_wrong_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text("set: reward.lines=1\n=== t\n>>> x\n")
    with pytest.raises(ConfigError, match=r"a.repl: unknown key 'reward.lines'"):
        Suite.open(tmp_path / "a.repl")


@pytest.mark.parametrize("where", ["set", "config", "command"])
@pytest.mark.parametrize("name", ["ipython", "calc:CALC"])
def test_another_format_is_refused(tmp_path: Path, where: str, name: str) -> None:
    """It would be passed over: what stands in the file is read with `>>>`."""
    (tmp_path / "mine.toml").write_text(f"transcript = '{name}'\n")
    says = {"set": f"set: transcript={name}\n", "config": "config: mine.toml\n", "command": ""}
    (tmp_path / "a.repl").write_text(f"{says[where]}=== t\n>>> x\n")
    overrides = [f"transcript={name}"] if where == "command" else []
    with pytest.raises(ConfigError, match=rf"a.repl: transcript = '{name}' has no effect here"):
        Suite.open(tmp_path / "a.repl", overrides=overrides)
    for chat in ("chat", "chat-turns"):
        assert Suite.open(tmp_path / "a.repl", overrides=[f"transcript={chat}"])


def test_a_reward_that_raises_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_reward.py").write_text("def f(*_):\n    raise KeyError('a bug')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyError, match="a bug"):
        found(tmp_path, ">>> x\n", "reward.function=broken_reward:f")


# Mutants


def fates(tmp_path: Path, text: str) -> dict[tuple[str, str], MutantResult]:
    path = tmp_path / "a.repl"
    path.write_text(f"=== t\n{text}")
    return {(mutant.key, mutant.change): fate for mutant, fate in Suites.open([path]).mutate()}


def test_a_mutant_is_noticed_refused_unwritten_or_untouched(tmp_path: Path) -> None:
    found = fates(tmp_path, ">>> x\n<- name_error -0.1\nNameError: x\n")
    assert found["line.name_error", "-0.1 -> -0.2"] is MutantResult.NOTICED
    assert found["max_line_charge", "0.4 -> -0.4"] is MutantResult.REFUSED
    assert found["no_submission", "-0.6 -> -1.2"] is MutantResult.UNWRITTEN
    assert found["line.timeout", "-0.3 -> 0"] is MutantResult.UNTOUCHED


def test_a_constant_that_is_zero_or_not_named_is_raised_and_lowered() -> None:
    changes = {
        key: {mutant.change for mutant in mutants(Config().reward) if mutant.key == key}
        for key in ("verdict.wrong", "verdict.undecided", "no_submission")
    }
    assert changes == {
        "verdict.wrong": {"0 -> 0.1", "0 -> -0.1"},
        "verdict.undecided": {"none -> 0.1", "none -> -0.1"},
        "no_submission": {"-0.6 -> 0.6", "-0.6 -> 0", "-0.6 -> -1.2"},
    }


def test_one_file_that_notices_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.repl").write_text("=== t\n>>> x\n<- -0.1\nNameError: x\n")
    (tmp_path / "b.repl").write_text("=== t\n>>> x\n")
    key = "line.name_error"
    assert {fate for m, fate in Suites.open([tmp_path]).mutate() if m.key == key} == {
        MutantResult.NOTICED,
        MutantResult.REFUSED,
    }
