"""A file from elsewhere ends in a sentence or in what was asked for, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models

from repl_rl.records import Origin, OutcomeKind, Scored
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.trajectory_file import append

Call = Callable[..., tuple[int, str, str]]
ORIGIN = Origin(config="", setup=(), tokenizer=None, isolation="", versions={})
NEWLINES = "\\n" * 1_000_000


@pytest.fixture
def scored(make_trajectory: Callable[..., object], make_scored: Callable[..., Scored]) -> Scored:
    return make_scored(make_trajectory([(" x\n", OutcomeKind.OK_SILENT, None)]), 1.0)


@pytest.mark.parametrize(
    "hostile",
    [
        {"config": f'task = "{NEWLINES[:60_000]}"'},
        {"config": f'task = "{NEWLINES}"'},
        {"config": f"{'a.' * 30_000}a = 1"},
        {"config": f"[{'a.' * 30_000}a]"},
        {"config": f"seed = {'[' * 60_000}"},
        {"config": f'reward.function = "{"a" * 60_000}:b"'},
        {"config": f'transcript = "{"a" * 60_000}"'},
        {"config": f'sampling.sampler = "{"a" * 60_000}:b"'},
        {"config": f"reward.line.timeout = {'9' * 60_000}"},
        {"config": f'sandbox.preload = ["{"a" * 60_000}"]'},
        {"config": '"' + "k" * 60_000 + '" = 1'},
    ],
    ids=lambda hostile: f"{hostile['config'][:30]!r}",
)
@pytest.mark.parametrize("mode", ["--rescore", "--html", "--notebook", "explain"])
def test_a_config_is_read_or_refused_in_a_short_row(
    call: Call, tmp_path: Path, scored: Scored, hostile: dict[str, Any], mode: str
) -> None:
    append(tmp_path / "s.jsonl", [scored], origin=replace(ORIGIN, **hostile))
    out_file = {"--html": ["o.html"], "--notebook": ["o.ipynb"]}.get(mode, [])
    command = ["reward", "explain", "s.jsonl"] if mode == "explain" else ["replay", "s.jsonl", mode]
    code, out, err = call(*command, *out_file)
    # What looks at a file looks up neither its task nor its sampler.
    assert code in ((2,) if mode == "--rescore" else (0, 2))
    assert max(map(len, (out, err))) < 5000
    assert err.count("\n") < 6  # versions that differ are told before


def test_a_setup_of_thousands_is_refused_before_a_kernel_is_born(
    call: Call, tmp_path: Path, scored: Scored
) -> None:
    setup = tuple(f"x = {number}" for number in range(20_000))
    append(tmp_path / "s.jsonl", [scored], origin=replace(ORIGIN, setup=setup))
    code, _, err = call("replay", "s.jsonl", "--execute")
    assert (code, err.count("\n")) == (2, 1)
    assert "20,000 sources" in err


def test_a_tokenizer_that_would_panic_leaves_a_page(
    call: Call, tmp_path: Path, scored: Scored
) -> None:
    folder = RunFolder(tmp_path / "run")
    origin = replace(ORIGIN, tokenizer="owner/name")
    folder.append_trajectories("step-000000", [scored])
    append(tmp_path / "run" / "trajectories" / "step-000001.jsonl", [scored], origin=origin)
    tokenizer = Tokenizer(models.WordLevel({"1" * 40 + "b": 32}, "b"))
    tokenizer.decoder = decoders.Replace(Regex("^(1|1|1)*$"), "x")
    folder.tokenizer.mkdir(parents=True)
    tokenizer.save(str(folder.tokenizer / "tokenizer.json"))
    code, _, err = call("replay", "run", "--html", "o.html")
    assert (code, "Traceback" in err, (tmp_path / "o.html").exists()) == (0, False, True)
