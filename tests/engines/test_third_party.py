"""A project holds an engine of its own to our laws in a few lines, and hears which it breaks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from documents import programs
from warm_python import WarmPython

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
IS_WARM = "ignore:Module already imported so cannot be rewritten; anyio"
"""A plugin of others that something heavy has imported."""
PYTEST = str(Path(sys.executable).with_name("pytest"))

BROKEN = """
import copy, dataclasses, itertools
from plain_engine import PlainEngine
from repl_rl.testing import EngineContract


class Contract(EngineContract):
    def open(self, model, folder, options):
        return self.Engine(
            model,
            newline_ids=options.newline_ids,
            eos_ids=options.eos_ids,
            temperature=options.temperature,
        )


class TestWrongLogprobs(Contract):
    class Engine(PlainEngine):
        async def line(self, ids, **request):
            line = await super().line(ids, **request)
            return dataclasses.replace(line, logprobs=tuple(x - 1e-3 for x in line.logprobs))


class TestNoTemperature(Contract):
    class Engine(PlainEngine):
        def __init__(self, model, **options):
            super().__init__(model, **{**options, "temperature": 1.0})


class TestNoSeed(Contract):
    class Engine(PlainEngine):
        calls = itertools.count(1)

        async def line(self, ids, *, max_tokens, seed):
            seed += next(self.calls)
            return await super().line(ids, max_tokens=max_tokens, seed=seed)


class TestFewSeeds(Contract):
    class Engine(PlainEngine):
        async def line(self, ids, *, max_tokens, seed):
            return await super().line(ids, max_tokens=max_tokens, seed=seed % 8)


class TestOneStreamForAll(Contract):
    class Engine(PlainEngine):
        async def line(self, ids, *, max_tokens, seed):
            seed += self.num_sampled
            return await super().line(ids, max_tokens=max_tokens, seed=seed)


class TestOldWeights(Contract):
    class Engine(PlainEngine):
        def __init__(self, model, **options):
            super().__init__(copy.deepcopy(model), **options)


class TestNoVersion(Contract):
    class Engine(PlainEngine):
        async def sync(self, weights, *, version):
            pass


class TestTokensBehindTheEnd(Contract):
    class Engine(PlainEngine):
        _stops = frozenset()


class TestNoCount(Contract):
    class Engine(PlainEngine):
        num_sampled = property(lambda self: 0, lambda self, value: None)


class TestNeverClosed(Contract):
    class Engine(PlainEngine):
        async def aclose(self):
            pass
"""

BREAKS = {
    "TestWrongLogprobs": "test_logprobs_are_those_of_a_fresh_forward",
    "TestNoTemperature": "test_logprobs_are_those_of_the_tempered_distribution",
    "TestNoSeed": "test_the_same_seed_gives_the_same_trajectory",
    "TestFewSeeds": "test_different_seeds_give_different_lines",
    "TestOneStreamForAll": "test_a_line_is_the_same_whatever_else_is_in_flight",
    "TestOldWeights": "test_logprobs_are_those_of_the_weights_after_an_update",
    "TestNoVersion": "test_a_line_has_the_version_of_the_last_sync",
    "TestTokensBehindTheEnd": "test_a_line_is_ended_by_its_last_token_alone",
    "TestNoCount": "test_sampled_tokens_are_counted",
    "TestNeverClosed": "test_a_closed_engine_can_be_closed_again_and_serves_nothing",
}


def shown_in_the_docs() -> str:
    """The test file of the page on Python."""
    (program,) = (
        one for one in programs(ROOT / "docs" / "python.md") if one.title == "test_plain.py"
    )
    return program.text


RunPytest = Callable[..., tuple[int, str]]


@pytest.fixture
def run_pytest(tmp_path: Path, warm_python: WarmPython) -> RunPytest:
    """(exit code, output) of pytest in a folder that holds these tests and the engine's module."""

    def run(tests: str, *arguments: str) -> tuple[int, str]:
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / "test_mine.py").write_text(tests)
        shutil.copy(ROOT / "examples" / "plain_engine.py", folder)
        words = (PYTEST, "-p", "no:cacheprovider", "-W", "error", "-W", IS_WARM, *arguments)
        shown = tmp_path / "shown"
        with open(os.devnull) as nothing, shown.open("w") as out:
            environment = {**warm_python.environment, "PYTEST_ADDOPTS": ""}
            streams = (nothing, out, out)
            with warm_python.start(*words, cwd=folder, env=environment, streams=streams) as process:
                code = process.wait(280)
        return code, shown.read_text()

    return run


def test_the_example_keeps_all_laws_in_the_few_lines_that_the_docs_show(
    run_pytest: RunPytest,
) -> None:
    code, shown = run_pytest(shown_in_the_docs())
    assert code == 0, shown
    assert re.search(r"^=+ 31 passed in ", shown, re.MULTILINE), shown


def test_a_broken_engine_fails_the_law_that_it_breaks(run_pytest: RunPytest) -> None:
    asked = " or ".join(f"({engine} and {law})" for engine, law in BREAKS.items())
    code, shown = run_pytest(BROKEN, "-k", asked)
    assert code == 1, shown
    failed = set(re.findall(r"^FAILED test_mine\.py::(\w+::\w+)", shown, re.MULTILINE))
    assert failed == {f"{engine}::{law}" for engine, law in BREAKS.items()}, shown
    assert "errors" not in shown.splitlines()[-1], shown
    # What was compared is shown, as in a test file.
    assert re.search(r"E +assert 0\.00\d+ < 1e-05", shown), shown


def test_where_pytest_is_missing_it_is_said_what_installs_it() -> None:
    hidden = "import sys; sys.modules['pytest'] = None; import repl_rl.testing"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pytest is not installed, but repl_rl.testing needs it; in a checkout "
        "of repl-rl: pip install --editable '.[testing]'"
    )
