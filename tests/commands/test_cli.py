"""Laws of the command line that need no model: what is printed, and the code it ends with."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from repl_rl import __version__
from repl_rl.base.concurrency import received_signals
from repl_rl.commands import cli
from repl_rl.commands.options import before_libraries, say
from repl_rl.config.resolve import resolve
from repl_rl.errors import ConfigError
from repl_rl.records import GRADING, Origin, OutcomeKind, Scored, Trajectory
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.trajectory_file import append, read_trajectories
from repl_sandbox.types import SandboxError
from repl_sandbox.walls import bubblewrap, confine
from tiny_model import save_tiny_model

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
Called = tuple[int, str, str]
Call = Callable[..., Called]


def test_the_version_is_that_of_the_package(call: Call) -> None:
    assert call("--version") == (0, f"repl-rl, version {__version__}\n", "")


def test_help_names_every_command(call: Call) -> None:
    _, out, _ = call("--help")
    for command in ("eval", "show", "tasks", "train", "warmstart"):
        assert f"\n  {command} " in out


def test_a_dry_run_prints_a_config_that_gives_the_same_run(call: Call, tmp_path: Path) -> None:
    code, out, err = call("train", "--dry-run", "--seed", "7", "--set", "grpo.steps=3")
    (tmp_path / "config.toml").write_text(out)
    assert (code, err) == (0, "engine: hf (no NVIDIA GPU)\n")
    expected = resolve(flags={"seed": 7}, overrides=["grpo.steps=3", "sampling.engine=hf"])
    assert resolve(files=[tmp_path / "config.toml"]) == expected


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("command", ["eval", "rollout", "audit", "warmstart", "replay", "plot"])
def test_several_processes_are_for_training_alone(
    call: Call, monkeypatch: pytest.MonkeyPatch, command: str, rank: int
) -> None:
    """Processes start as `torchrun` starts them, and each says so: the launcher ends all when the
    first has ended."""
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert call(command, "runs/a") == (
        2,
        "",
        f"repl-rl: {'rank 1: ' * rank}`repl-rl {command}` is one process, and a launcher has "
        "started 2 (WORLD_SIZE); start it without torchrun or accelerate, which are for `repl-rl "
        "train`\n",
    )


def test_one_process_under_a_launcher_is_any_command(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert call("config", "grpo.steps")[0] == 0


def test_a_dry_run_estimates_memory_beside_its_config(call: Call, tmp_path: Path) -> None:
    model = str(save_tiny_model(tmp_path / "model"))
    (tmp_path / "model" / "model.safetensors").unlink()  # nothing reads it
    given = ("train", "--dry-run", "--model", model, "--set", "sampling.device=cpu")
    code, out, err = call(*given)
    assert code == 0
    assert tomllib.loads(out)["model"] == model
    assert "\ndevice: cpu\nmemory: weights 0.2, optimiser 0.5, update " in err
    assert "memory: weights 0.3, optimiser 0.1, " in call(*given, "--set", "lora.rank=4")[2]


def test_a_dry_run_prints_the_world(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read a launcher's variables: 64 trajectories of a step, 16 processes."""
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    model = str(save_tiny_model(tmp_path / "model"))
    given = ("train", "--dry-run", "--model", model, "--set", "sampling.device=cpu")
    servers = ("--engine", "vllm-server", "--set", "sampling.servers=['http://a:8000']")
    _, _, err = call(*given, *servers, "--set", "sampling.weights_dir=/shared/w")
    assert (
        "\nworld: 16 processes on 2 hosts, each with 4 trajectories of a step and all "
        "weights\nservers: http://a:8000\nshared folders: the run's folder and the model's path, "
        "for all hosts; /shared/w (sampling.weights_dir), for the first rank and the "
        "servers\ndevice: cpu\nmemory: weights 0.2, "
    ) in err
    uneven = call(*given, "--set", "grpo.group_size=3")[2]
    assert "world: 8 problems of 3 trajectories cannot be dealt to 16 processes" in uneven
    assert "memory:" not in uneven
    monkeypatch.setenv("RANK", "1")
    assert "world:" not in call(*given)[2]


def test_a_dry_run_says_why_it_has_no_estimate(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = call("train", "--dry-run", "--model", str(tmp_path / "empty"))
    assert (code, err.count("\n")) == (0, 3)
    assert err.startswith("engine: hf (no NVIDIA GPU)\n")
    assert "\nmemory: cannot load a model from" in err
    assert out


def test_a_dry_run_says_that_no_problem_would_come_back_for_its_prefixes(
    call: Call, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"problem": "{n} + 1?", "answer": {n + 1}}}\n' for n in range(99)))
    model = str(save_tiny_model(tmp_path / "model"))
    given = ["train", "--dry-run", "--model", model, "--task", str(rows)]
    given += ["--set", "sampling.device=cpu", "--set", "grpo.problems_per_step=2"]
    given += ["--set", "grpo.prefix_share=0.5"]
    said = "\nproblems: grpo.prefix_share = 0.5 needs a task with demonstrate(), "
    assert said in call(*given, "--set", "grpo.steps=8")[2]
    assert "problems: " not in call(*given, "--set", "grpo.steps=80")[2]


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as if vLLM were installed."""
    monkeypatch.setattr("repl_rl.engines.vllm.engine.prepare", lambda: None)


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("engine", ["hf", "vllm", "vllm-server"])
def test_the_engines_flag_is_its_setting(call: Call, tmp_path: Path, engine: str) -> None:
    servers = "sampling.servers=['http://localhost:8000']"
    given = ("--model", ".", "--set", servers)
    _, out, _ = call("train", "--dry-run", "--engine", engine, *given)
    (tmp_path / "config.toml").write_text(out)
    assert resolve(files=[tmp_path / "config.toml"]).sampling.engine == engine


@pytest.mark.usefixtures("vllm")
def test_without_the_engines_flag_a_file_decides(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[sampling]\nengine = "vllm"\nmax_lines = 3\n')
    given = ("train", "--dry-run", "--model", ".", "--config", "mine.toml")
    assert 'engine = "vllm"' in call(*given)[1]
    out = call(*given, "--engine", "hf")[1]
    assert 'engine = "hf"' in out
    assert "max_lines = 3" in out


def test_an_unknown_engine_is_bad_usage(call: Call) -> None:
    code, _, err = call("train", "--engine", "vlm")
    assert code == 2
    assert "unknown engine 'vlm'; did you mean 'vllm'?" in err


@pytest.mark.parametrize("transcript", ["chat", "ipython", "inline_calls:PROSE"])
def test_the_starter_takes_the_transcript_that_it_was_trained_on(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    transcript: str,
) -> None:
    monkeypatch.setenv("REPL_RL_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    code, out, err = call("train", "--output", "run", "--set", f"transcript={transcript}")
    assert (code, out) == (2, "")
    assert err == (
        f"repl-rl: the starter writes transcript 'python', not {transcript!r}; give --model PATH\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--set", "grpo.step=1"), "unknown key 'grpo.step'; did you mean 'grpo.steps'?"),
        (("train", "--set", "seed"), "--set 'seed'; expected section.key=value"),
        (("train", "--config", "no.toml"), "cannot read config file 'no.toml': No such file"),
        (("show", "no-run"), "no such file or run folder: 'no-run'"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = call(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"repl-rl: {message}")


@pytest.mark.parametrize("command", [("show",), ("replay", "--execute"), ("reward", "explain")])
def test_a_mistyped_run_is_answered_with_the_nearest(
    call: Call, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine-1").mkdir(parents=True)
    code, _, err = call(*command, "runs/mime-1")
    assert (code, err.count("\n")) == (2, 1)
    assert "'runs/mime-1'; did you mean 'runs/mine-1'?" in err


@pytest.fixture
def model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A folder with a random model and a vocabulary of newline and end."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    from engine_kit import EOS, NEWLINE, qwen3
    from repl_rl.testing.under_test import random_model

    backend = Tokenizer(models.BPE(vocab={"\u010a": NEWLINE, "<|end|>": EOS}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")
    tokenizer.save_pretrained(tmp_path / "model")
    random_model(qwen3).save_pretrained(tmp_path / "model")
    capsys.readouterr()  # the bars of `save_pretrained`
    return "model"


@pytest.mark.parametrize(
    ("setting", "lacking", "message"),
    [
        ("preload=['sympi']", None, "preload 'sympi': no such module; expected one that "),
        (
            "isolation=strict",
            None,
            'isolation = "strict" needs namespaces, but bubblewrap is not installed (`apt install',
        ),
        (
            "isolation=auto",
            "Landlock",
            'kernels cannot be sealed: this machine lacks Landlock; isolation = "none" under',
        ),
    ],
    ids=["module", "bubblewrap", "landlock"],
)
def test_kernels_that_cannot_be_had_are_one_line_and_exit_code_2(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    setting: str,
    lacking: str | None,
    message: str,
) -> None:
    monkeypatch.setattr(confine, "missing", lambda: lacking)
    monkeypatch.setattr(bubblewrap, "find", lambda: None)
    code, _, err = call("eval", model, "--set", f"sandbox.{setting}")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"repl-rl: {message}")


def test_help_is_a_command_too(call: Call) -> None:
    assert call("help") == call("--help")


def test_a_command_of_a_group_says_its_full_name(call: Call) -> None:
    code, _, err = call("explain")
    assert code == 2
    assert "No such command 'explain'; it is 'repl-rl reward explain'" in err


def test_an_unknown_command_is_bad_usage(call: Call) -> None:
    code, _, err = call("trian")
    assert code == 2
    assert "No such command 'trian'" in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("train", "--lora", "16"), "No such option '--lora'; use --set lora.rank=16"),
        (("train", "--steps", "2"), "No such option '--steps'; use --set grpo.steps=2"),
        (
            ("replay", "R", "--rescore", "--output", "a.jsonl"),
            "No such option '--output'; --rescore prints what changes: send that to a file by",
        ),
        (("warmstart", "--lr"), "No such option '--lr'; use --set grpo.learning_rate=VALUE"),
        (("train", "--epsilon", "1"), "use grpo.epsilon_low and grpo.epsilon_high"),
        (("train", "--max-tokens", "64"), "use --set sampling.max_tokens=64"),
        (("train", "--learning-rate", "1"), "use --set grpo.learning_rate=1"),
    ],
)
def test_an_option_that_is_a_setting_says_how_to_set_it(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], hint: str
) -> None:
    code, _, err = call(*words)
    assert code == 2
    assert hint in err


def test_show_prints_the_best_first(
    call: Call, tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored
) -> None:
    trajectories = [
        make_trajectory([(f" {name}\n", OutcomeKind.OK_SILENT, None)]) for name in ("bad", "good")
    ]
    scored = [make_scored(t, reward) for t, reward in zip(trajectories, (0.0, 1.0), strict=True)]
    RunFolder(tmp_path / "run").append_trajectories("after", scored)
    code, out, _ = call("show", "run", "--best", "-n", "1")
    assert code == 0
    assert ">>> good" in out
    assert ">>> bad" not in out


@pytest.mark.parametrize("value", ["0", "1", "-5", "", "x", "99999999999", "9" * 5000])
@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
def test_a_size_that_no_terminal_has_changes_nothing(
    call: Call, stored: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    expected = call("show", stored.name)
    monkeypatch.setenv(name, value)
    assert call("show", stored.name) == expected
    assert ">>> x" in expected[1]


SCORE_AGAIN = "to score it again: repl-rl replay run --rescore\n"


@pytest.mark.parametrize(("made_by", "is_said"), [(None, 1), ("1", 1), (f"{GRADING}", 0), ("x", 1)])
def test_show_says_once_what_another_grader_judged(
    call: Call, stored: Path, tmp_path: Path, made_by: str | None, is_said: int
) -> None:
    versions = {} if made_by is None else {"grading": made_by}
    origin = Origin(config="", setup=(), tokenizer=None, isolation="", versions=versions)
    (scored,) = read_trajectories(stored)
    RunFolder(tmp_path / "run")
    append(tmp_path / "run" / "trajectories" / "step-000000.jsonl", [scored] * 2, origin=origin)
    _, _, err = call("show", "run")
    assert err.count(SCORE_AGAIN) == is_said
    if is_said:
        here = f"here it is {GRADING}: verdicts"
        assert f"repl-rl: run was graded by version 1 of the grader, {here}" in err


def test_eval_says_what_another_grader_judged(call: Call, tmp_path: Path, model: str) -> None:
    run = RunFolder(tmp_path / "run").path
    (run / "config.toml").write_text("")
    shutil.copytree(model, run / "checkpoints" / "final")
    for versions, is_said in (({"policy": "p"}, True), ({"grading": f"{GRADING}"}, False)):
        (run / "versions.json").write_text(json.dumps(versions))
        _, _, err = call("eval", "run", "--picture", "nowhere.txt")
        assert (SCORE_AGAIN in err) is is_said


def test_an_evaluation_of_no_problem_is_refused(call: Call, model: str) -> None:
    code, _, err = call("eval", model, "--set", "eval.problems=0")
    assert code == 2
    assert err == "repl-rl: eval.problems = 0 measures nothing; add --set eval.problems=200\n"


def test_what_an_evaluation_could_not_end_with_is_refused_before_it(
    call: Call, model: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = call("eval", model, "--against", "empty")
    assert (code, err) == (
        2,
        "repl-rl: 'empty' holds no model; expected config.json or adapter_config.json in it\n",
    )
    (tmp_path / "bars.svg").mkdir()
    code, _, err = call("eval", model, "--picture", "bars.svg")
    assert (code, err) == (2, "repl-rl: 'bars.svg' is a folder; expected a file\n")
    code, _, err = call("eval", model, "--picture", "/proc/bars.svg")
    assert code == 2
    assert "cannot write to '/proc/bars.svg'" in err


def test_a_whole_model_has_no_adapter_to_merge(call: Call, model: str) -> None:
    code, out, err = call("merge", model, "--output", "merged")
    assert (code, out) == (2, "")
    assert "holds no adapter to merge" in err


def test_a_name_that_no_disk_takes_is_one_line(call: Call) -> None:
    name = "x" * 300
    code, _, err = call("plot", name)
    assert (code, err) == (2, f"repl-rl: {name}: File name too long\n")


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "/usr/bin/bwrap"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_what_no_word_of_the_command_names_keeps_its_traceback(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "cli", fail)
    monkeypatch.setattr(sys, "argv", ["repl-rl", "eval", "runs/mine", "--config=a.toml"])
    with pytest.raises(OSError, match=str(error.strerror)):
        cli.main()


def test_a_stdout_that_takes_no_more_is_one_line(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from repl_rl.commands.cli import main; main()", "config"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert ended.returncode == 1  # as for any disk that is full
    assert ended.stderr == "repl-rl: stdout: No space left on device\n"


def test_the_installed_task_is_listed(call: Call) -> None:
    assert "sympy-proofs" in call("tasks")[1]


@pytest.mark.kernel
def test_the_lines_of_a_sample_problem_stand_below_each_other(call: Call) -> None:
    first, second, third, *_ = call("tasks", "sympy-proofs", "-n", "2")[1].split("\n")
    assert first[12:14] == third[12:14] == "  "
    assert (
        second == " " * 14 + "Answer: True, or the least positive integer x where the sides differ."
    )


@pytest.mark.kernel
def test_a_check_of_a_task_draws_with_the_seed_of_a_setting(call: Call) -> None:
    named, default = (
        call("tasks", "sympy-proofs", "-n", "1", *words)[1].split()[0]
        for words in (["--seed", "7"], [])
    )
    assert call("tasks", "sympy-proofs", "-n", "1", "--set", "seed=7")[1].split()[0] == named
    assert named != default


def test_a_polite_kill_goes_the_way_of_an_interrupt(call: Call) -> None:
    """Whatever handles SIGINT at that moment gets it: an event loop has a handler of its own."""
    call("--version")
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
        received_signals.clear()
    assert heard == [signal.SIGINT]


INTERRUPTED = """
import repl_rl.commands.cli as command_line

class Loop:
    def __init__(self):
        raise KeyboardInterrupt
    def __del__(self):
        self.socket.close()

command_line.cli = lambda **_: Loop()
command_line.main()
"""


def test_an_interrupt_while_an_object_is_made_is_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "repl-rl: interrupted\n")


# What a stranger's file says


@pytest.fixture
def stored(tmp_path: Path, make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Path:
    """A file with one trajectory of one line."""
    path = tmp_path / "s.jsonl"
    trajectory = make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)])
    append(path, [make_scored(trajectory, 1.0)])
    return path


def test_a_file_whose_lists_disagree_is_not_shown(call: Call, stored: Path) -> None:
    stored.write_text(stored.read_text().replace('"line_rewards":[0.0]', '"line_rewards":[]'))
    code, _, err = call("show", "s.jsonl")
    assert (code, err) == (
        2,
        "repl-rl: s:1 of s.jsonl is a trajectory with 0 line rewards for 1 lines\n",
    )


def test_a_file_with_nothing_but_half_a_row_shows_nothing(call: Call, stored: Path) -> None:
    stored.write_text(stored.read_text().splitlines()[-1][:40])
    assert call("show", "s.jsonl") == (2, "", "repl-rl: 's.jsonl' holds no whole trajectory\n")


@pytest.mark.parametrize("command", [("show",), ("reward", "explain")])
def test_less_than_one_trajectory_is_bad_usage(call: Call, command: tuple[str, ...]) -> None:
    code, _, err = call(*command, "s.jsonl", "-n", "-5")
    assert code == 2
    assert "Invalid value for '-n'" in err


@pytest.mark.parametrize("command", [("show",), ("replay", "--execute")])
def test_best_and_worst_exclude_each_other(call: Call, command: tuple[str, ...]) -> None:
    assert call(*command, "s.jsonl", "--best", "--worst") == (
        2,
        "",
        "repl-rl: --best and --worst are given; expected one of them\n",
    )


HOSTILE = "a\x1b[31m\nb\u202e"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ConfigError(HOSTILE), "repl-rl: a\\nb\n"),
        # What another process said as it ended keeps its rows.
        (SandboxError(HOSTILE), "repl-rl: a\nb\n"),
    ],
)
def test_no_error_moves_the_terminal(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("repl_rl.commands.cli.cli", fail)
    assert call()[2] == shown


def test_what_is_said_beside_a_result_is_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    assert capsys.readouterr().err == "repl-rl: a\\nb\n"


def test_libraries_warn_of_what_a_folder_lacks_and_not_of_what_is_done_on_purpose() -> None:
    before_libraries(None)
    warn = {
        name: logging.getLogger(f"transformers.{name}").isEnabledFor(logging.WARNING)
        for name in ("trainer_utils", "utils.generic", "utils.loading_report", "modeling_utils")
    }
    assert warn == {
        "trainer_utils": False,
        "utils.generic": False,
        "utils.loading_report": True,
        "modeling_utils": True,
    }


@pytest.mark.parametrize(("module", "extra"), [("torch.nn", "train"), ("textual", "replay")])
def test_what_a_base_installation_lacks_is_named_with_what_installs_it(
    call: Call, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    def lacking(**_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("repl_rl.commands.cli.cli", lacking)
    code, out, err = call("train")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"repl-rl: {module.split('.')[0]} is not installed")
    assert err.endswith(f"pip install --editable ./sandbox --editable '.[{extra}]'\n")


def test_any_other_module_that_is_missing_is_a_bug_and_shown_whole(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(**_: object) -> None:
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")

    monkeypatch.setattr("repl_rl.commands.cli.cli", lacking)
    with pytest.raises(ModuleNotFoundError, match="theirs"):
        call("train")
