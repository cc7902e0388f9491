"""The commands that documents show run as they stand there, in a folder that has what they name."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from documents import DOCUMENTS, ROOT, Program, Shown, commands, programs
from shared_work import once, shared_folder
from small_run import set_words, small
from warm_python import WarmPython, start_cold

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.kernel, pytest.mark.timeout(600)]

Command = Callable[..., Any]

NAMES = {
    "MODEL": "model",
    "runs/RUN/checkpoints/checkpoint-50": "runs/RUN/checkpoints/checkpoint-1",
    "step-000012:5": "step-000001:1",
    "grpo.steps=300": "grpo.steps=4",
}
"""What a reader puts there, and what lies there in a small run."""


def reason_not_to_run(shown: Shown) -> str:
    """The one list of what is held to its options alone; empty for what runs."""
    words = shown.ours
    if words is None:
        return "another program"
    if shown.words[0] != "repl-rl":
        return "starts several processes: tests/e2e/test_ranks.py does"
    given = set(words)
    if words[0] in ("play", "attach"):
        return "a person at a terminal"
    if words[0] == "replay" and not given & {"--execute", "--rescore", "--html", "--notebook"}:
        return "a person at a terminal"
    if words[:2] == ["kernels", "serve"]:
        return "ends by Ctrl-C: tests/sandbox/test_resident.py does"
    if words[0] == "serve-env":
        return "ends by Ctrl-C: tests/adapters/openenv/test_server.py does"
    if (words[0] == "push" and "--folder" not in given) or any(
        word.startswith("hf:") for word in words
    ):
        return "takes the hub"
    if given & {"vllm", "vllm-server"}:
        return "takes vLLM"
    if words[0] == "warmstart" and "--model" not in given:
        return "makes the starter: minutes"
    if words[0] == "train" and not given & {"--model", "--resume", "--config", "--dry-run"}:
        return "makes the starter: minutes"
    return ""


def asked(shown: Shown) -> list[str]:
    """The arguments, in small: a training that is not kept is a dry run."""
    words = [NAMES.get(word, word) for word in shown.ours or []]
    if words[0] == "train" and not {"--output", "--resume", "--dry-run"} & set(words):
        words.append("--dry-run")
    if words[0] == "warmstart":
        if "--output" not in words:
            return [*words, "--dry-run"]
        return [*words, *WARM, *(() if "--from" in words else ("--demonstrations", "6"))]
    if words[0] == "train" and "--output" in words:
        return [*words, *small(report__checkpoint_every=1), *LORA]
    if "--resume" in words and "--set" not in words:
        return [*words, "--set", "grpo.steps=3"]  # the small run was not stopped before its end
    if words[0] == "eval" and words[1] == "model":
        return [*words, *small()]
    return words


LORA = ("--set", "lora.rank=2")
WARM = set_words(
    *("warmstart.keep=all", "warmstart.problems_before=1", "eval.problems=2"),
    *("sandbox.standby=2", "sampling.device=cpu", "sampling.max_tokens=500"),
)


def to_run() -> dict[Path, list[Shown]]:
    """By document; what another one shows word for word, and leaves nothing behind, runs once."""
    found: dict[Path, list[Shown]] = {}
    seen: set[tuple[str, ...]] = set()
    for document in DOCUMENTS:
        for one in commands(document):
            if not reason_not_to_run(one) and (one.words not in seen or "--output" in one.words):
                found.setdefault(document, []).append(one)
                seen.add(one.words)
    return found


RUNS = to_run()


def transcripts(document: Path) -> str:
    """Part of a file of transcripts that a document shows."""
    (block,) = re.findall(r"^    ===.*\n(?:    .*\n|\n)+", document.read_text(), re.MULTILINE)
    return textwrap.dedent(block)


@pytest.fixture
def place(
    repl_rl: Command, tiny_model: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder in which commands start: examples, golden transcripts, a model, a file of rows, three
    runs."""
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(ROOT / "tests" / "golden", tmp_path / "tests" / "golden")
    shutil.copytree(tiny_model, tmp_path / "model")
    shutil.copy(ROOT / "examples" / "ten.jsonl", tmp_path / "rows.jsonl")
    (tmp_path / "shown.repl").write_text(transcripts(ROOT / "docs" / "warmstart.md"))

    def train(aside: Path) -> None:
        settings = (*small(report__checkpoint_every=1), *LORA)
        # An adapter names its model by its place, and this test's folder goes with the test.
        ended = repl_rl(*("train", "--model", str(tiny_model), "--output", "made"), *settings)
        assert ended.code == 0, ended.stderr
        (tmp_path / "made").rename(aside)

    made = once(shared_folder(tmp_path_factory) / "documented-run", train)
    for name in ("RUN", "A", "B"):
        shutil.copytree(made, tmp_path / "runs" / name)
    return tmp_path


@pytest.mark.parametrize("document", RUNS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_runs(document: Path, repl_rl: Command, place: Path) -> None:
    if document.name == "problems.md":
        pytest.importorskip("pylatexenc")
    assert (place / "runs" / "RUN").is_dir()
    for program in filter(lambda one: one.title, programs(document)):
        (place / str(program.title)).write_text(program.text)
    for shown in RUNS[document]:
        words = asked(shown)
        ended = repl_rl(*words)
        # Exit code 1 of `ask`: the model submitted nothing.
        fine = (0, 1) if words[0] == "ask" else (0,)
        assert ended.code in fine, (str(shown), ended.stdout, ended.stderr)
        assert ended.left_behind == [], str(shown)


# Programs

PROGRAMS = [one for document in DOCUMENTS for one in programs(document)]


def reason_not_to_run_program(program: Program) -> str:
    """The one list of what is held to its syntax alone; empty for what runs."""
    if program.is_fragment:
        return "a fragment"
    if "openenv" in program.text:
        return "takes a server: tests/adapters/openenv does"
    if "environment_factory" in program.text:
        return "samples for minutes: tests/adapters/trl/test_tools.py does, with a scripted model"
    return ""


def prepare(program: Program, folder: Path, *, place: Path) -> None:
    """Put there what the program names and a reader has; nothing else is there."""
    if '"MODEL"' in program.text or "=MODEL" in program.text:
        (folder / "MODEL").symlink_to(place / "model")
    if 'load_run("runs/mine"' in program.text:
        shutil.copytree(place / "runs" / "RUN", folder / "runs" / "mine")
    if "plain_engine" in program.text:
        shutil.copy(ROOT / "examples" / "plain_engine.py", folder)


@pytest.mark.parametrize(
    "program", [one for one in PROGRAMS if not reason_not_to_run_program(one)], ids=str
)
def test_every_program_runs_as_printed_from_an_empty_folder(
    program: Program,
    place: Path,
    warm_python: WarmPython,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    prepare(program, folder, place=place)
    name = program.title or "program.py"
    (folder / name).write_text(program.text)
    through = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    is_cold = name.startswith("test_")
    start, words = (start_cold, (*through, name)) if is_cold else (warm_python.start, (name,))
    with open(os.devnull) as nothing, (place / "out").open("w+") as out:
        streams = (nothing, out, out)
        ended = start(*words, cwd=folder, env=warm_python.environment, streams=streams)
        code = ended.wait(400)
        out.seek(0)
        assert code == 0, out.read()


def test_few_programs_are_not_run() -> None:
    kept = [one for one in PROGRAMS if reason_not_to_run_program(one)]
    assert len(kept) < len(PROGRAMS) / 2


def test_few_commands_are_not_run() -> None:
    ours = [one for document in DOCUMENTS for one in commands(document) if one.ours is not None]
    assert len([one for one in ours if reason_not_to_run(one)]) < len(ours) / 2
