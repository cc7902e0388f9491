"""Laws of the workbench that need neither a model nor a kernel."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from repl_rl.errors import ConfigError
from repl_rl.sampler import LineSampler
from repl_rl.workbench import _sampler_class

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_line_loop_is_the_sampler_unless_another_is_named() -> None:
    assert _sampler_class("repl_rl.sampler:LineSampler") is LineSampler


def test_a_loop_of_ones_own_takes_its_place() -> None:
    found = _sampler_class("inline_calls:InlineCalls")
    assert found is importlib.import_module("inline_calls").InlineCalls


@pytest.mark.parametrize(
    "spec", ["math:sin", "inline_calls:PROSE", "inline_calls:Prose", "inline_calls:OPEN"]
)
def test_what_has_no_method_sample_is_no_sampler(spec: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _sampler_class(spec)
    assert str(refused.value) == (
        f"sampling.sampler = {spec!r} is no sampler; expected a class with the arguments of "
        f"repl_rl.sampler.LineSampler and its method `sample`"
    )


def test_a_sampler_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="has no 'InlineCall'; did you mean 'InlineCalls'"):
        _sampler_class("inline_calls:InlineCall")
