"""Laws of names: what is found and what is refused, before anything heavy is loaded."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.engines.base import EngineKind
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan, sampler_class, samples_lines
from repl_rl.rollout.sampler import LineSampler, ScriptSampler

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_line_loop_is_the_sampler_unless_another_is_named() -> None:
    assert sampler_class(Config().sampling.sampler) is LineSampler


def test_a_loop_of_ones_own_takes_its_place() -> None:
    found = sampler_class("inline_calls:InlineCalls")
    assert found is importlib.import_module("inline_calls").InlineCalls


@pytest.mark.parametrize(
    "spec", ["math:sin", "inline_calls:PROSE", "inline_calls:Prose", "inline_calls:OPEN"]
)
def test_what_has_no_method_sample_is_no_sampler(spec: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sampler_class(spec)
    assert str(refused.value) == (
        f"sampling.sampler = {spec!r} is no sampler; expected a class with the arguments of "
        f"repl_rl.LineSampler and its method `sample`"
    )


class Derived(LineSampler):
    pass


class Promised(LineSampler):
    samples_lines = True


class Shown:
    samples_lines = True


def test_a_class_says_itself_that_its_loop_is_the_usual_one() -> None:
    assert [samples_lines(made) for made in (LineSampler, Promised, Shown)] == [True] * 3
    assert not samples_lines(Derived)
    assert not samples_lines(sampler_class("inline_calls:InlineCalls"))


@pytest.mark.parametrize(("name", "promises"), [("Promised", True), ("Derived", False)])
def test_a_sampler_that_promises_the_usual_loop_may_be_asked_for_thoughts(
    name: str, promises: bool
) -> None:
    settings = ("preset=none", "transcript=chat", "sampling.max_think_tokens=4")
    config = resolve(overrides=[*settings, f"sampling.sampler={__name__}:{name}"])
    refusal = pytest.raises(ConfigError, match=r"needs sampling.sampler = 'lines'")
    with contextlib.nullcontext() if promises else refusal:
        assert make_plan(config).samples_lines


def test_a_sampler_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="has no 'InlineCall'; did you mean 'InlineCalls'"):
        sampler_class("inline_calls:InlineCall")


# What a run would refuse


OWN = """
class Silent:
    name = "silent"
    prompt = "{{problem}}"

    def problems(self, split, *, seed):
        return iter(())

    def grade(self, problem, submission):
        raise NotImplementedError


class Unmarked(Silent):
    prompt = "# No place for a problem."


class Half:
    name = "half"
"""

REFUSED = [
    (("--task", "sympy-prof"), "unknown task 'sympy-prof'; did you mean 'sympy-proofs'?"),
    (("--task", "nope:Nope"), "no module named 'nope' (wanted 'nope:Nope')"),
    (("--task", "own_names:Half"), "'own_names:Half' is no task: it lacks prompt, problems, grade"),
    (("--task", "own_names:Silent"), "task 'silent' has no demonstrate(), so no starter can be"),
    (
        ("--task", "own_names:Unmarked", "--model", "."),
        "a task's prompt needs {{problem}} alone on exactly one line",
    ),
    (
        ("--set", "transcript=chatt"),
        "unknown transcript 'chatt'; did you mean 'chat'?",
    ),
    (("--set", "transcript=chat"), "the starter writes transcript 'python'"),
    (("--set", "reward.function=foo:bar"), "no module named 'foo' (wanted 'foo:bar')"),
    (("--set", "sampling.sampler=foo:Bar"), "no module named 'foo' (wanted 'foo:Bar')"),
    (("--engine", "vllm-server"), "the starter's heads are too small for vLLM"),
    (
        ("--engine", "vllm-server", "--model", "."),
        "the engine 'vllm-server' has no server; name some in sampling.servers",
    ),
    (
        ("--engine", "vllm-server", "--model", ".", "--set", "sampling.servers=['x']"),
        "server 'x'; expected an address such as 'http://localhost:8000'",
    ),
    (("--set", "grpo.credit=outcom"), "unknown credit 'outcom'; did you mean 'outcome'?"),
    (("--set", "grpo.credit=foo:Bar"), "no module named 'foo' (wanted 'foo:Bar')"),
    (("--set", "grpo.credit=own_names:Half"), "grpo.credit = 'own_names:Half' is no credit"),
    (("--set", "sampling.temperature=0"), "sampling.temperature = 0 is greedy, so siblings"),
    (("--model", "nope"), "no such run or folder 'nope'"),
    (("--set", "sandbox.preload=['sympi']"), "preload 'sympi': no such module"),
]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own_names.py").write_text(OWN)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("flag", [(), ("--dry-run",)], ids=["train", "dry run"])
@pytest.mark.parametrize(("given", "message"), REFUSED, ids=lambda one: " ".join(one)[:40])
def test_a_wrong_name_is_refused_before_torch_is_loaded(
    own: Path, given: tuple[str, ...], message: str, flag: tuple[str, ...]
) -> None:
    """A fresh interpreter, for this one holds everything."""
    code, loaded, err = fresh(own, "train", *given, *flag)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"repl-rl: {message}")
    assert loaded & {"torch", "transformers", "trl", "datasets"} == set()


def fresh(folder: Path, *arguments: str) -> tuple[int, set[str], str]:
    """(exit code, modules that it holds in the end, stderr) of a command by itself."""
    code = (
        f"import sys; sys.argv = {['repl-rl', *arguments]!r}\n"
        "from repl_rl.commands.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    print(end.code, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=folder
    )
    number, *modules = done.stdout.split()
    return int(number), set(modules), done.stderr


@pytest.mark.slow
def test_a_wrong_name_leaves_no_folder_of_a_run(own: Path) -> None:
    fresh(own, "train", "--set", "transcript=chatt", "--output", "run")
    assert not (own / "run").exists()


def test_what_a_default_run_names_is_there() -> None:
    make_plan(resolve()).require_policy()


def test_a_plan_without_model_and_starter_is_for_lines_that_are_sampled_elsewhere() -> None:
    plan = make_plan(Config())
    with pytest.raises(ConfigError, match=r"^preset = 'none' .*; give --model PATH, or preset = "):
        plan.require_policy()
    make_plan(Config(model="m")).require_policy()


class Plain(EngineKind):
    name = "plain"


class Limited(EngineKind):
    name = "limited"
    most_forbidden = 1000


def test_an_engine_that_cannot_forbid_ids_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("repl_rl.rollout.plan.chosen", lambda _: (Plain(), ""))
    make_plan(Config(model="m"))
    with pytest.raises(
        ConfigError, match=r"'plain' can forbid 0 tokens.*asks for 1 or more; give the engine 'hf'"
    ):
        make_plan(Config(model="m", sampling=SamplingConfig(run_on="forbid")))


def test_an_engine_is_refused_more_forbidden_ids_than_it_takes() -> None:
    Limited().check_forbidden(1000)
    with pytest.raises(ConfigError, match=r"can forbid 1,000 tokens.*asks for 1,001 or more"):
        Limited().check_forbidden(1001)


@pytest.mark.slow
def test_a_starter_of_a_task_that_shows_nothing_is_refused_whatever_the_model(own: Path) -> None:
    code, loaded, err = fresh(own, "warmstart", "--task", "own_names:Silent", "--model", ".")
    assert (code, "torch" in loaded) == (2, False)
    assert err.startswith("repl-rl: task 'silent' has no demonstrate()")


def test_what_is_said_where_vllm_is_missing_works_from_a_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name of the package is on no index."""
    monkeypatch.setattr("repl_rl.engines.vllm.engine.importlib.util.find_spec", lambda _: None)
    config = Config(model="m", sampling=SamplingConfig(engine="vllm"))
    with pytest.raises(ConfigError, match="not installed: run `make vllm` in the checkout") as told:
        make_plan(config)
    assert "repl-rl[" not in str(told.value)


# Groups that branch

TREE = ("grpo.credit=tree", "grpo.branching=[4, 2]", "grpo.group_size=8")


def test_a_tree_that_makes_whole_groups_is_taken() -> None:
    assert make_plan(resolve(overrides=TREE), to_train=True).config.grpo.branching == (4, 2)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["grpo.group_size=16"], r"makes groups of 8; expected grpo.group_size = 8, not 16"),
        (["grpo.branching=[8]"], r"with grpo.branching = \[8\]; expected such as \[4, 2, 2\]"),
        (["grpo.branching=[4, 0]"], r"with grpo.branching = \[4, 0\]; expected such as"),
        (["grpo.branching=[]"], r"with grpo.branching = \[\]; expected such as"),
        (
            ["grpo.credit=outcome"],
            r"branching = \[4, 2\] has no effect with grpo.credit = 'outcome'",
        ),
        (
            ["grpo.branch_probability=0"],
            r"grpo.branch_probability = 0; expected float, more than 0",
        ),
        (
            ["grpo.branch_probability=1.5"],
            r"grpo.branch_probability = 1.5; expected float, more than 0, at most 1",
        ),
        (["grpo.rerolls=1"], r"grpo.credit = 'tree' needs grpo.rerolls = 0"),
        (
            ["trl.mask_truncated_completions=true"],
            r"needs trl.mask_truncated_completions unset, as it would mask lines that .* share",
        ),
        (["trl.off_policy_mask_threshold=0.5"], r"needs trl.off_policy_mask_threshold unset"),
        (["grpo.loss_type=vespo"], r"needs another loss than 'vespo', which weighs whole trajec"),
        (
            ["grpo.loss_type=grpo"],
            r"needs another loss than 'grpo', which divides by a row's tokens",
        ),
        (
            ["grpo.loss_type=sapo"],
            r"needs another loss than 'sapo', which divides by a row's tokens",
        ),
        (
            ["grpo.loss_type=bnpo"],
            r"needs another loss than 'bnpo', which divides by a row's tokens",
        ),
        (["sampling.sampler=inline_calls:InlineCalls"], r"needs sampling.sampler = 'lines'"),
    ],
)
def test_a_tree_that_cannot_be_grown_is_refused(changed: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(resolve(overrides=[*TREE, *changed]), to_train=True)


def test_a_chance_of_branches_without_trees_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"grpo.branch_probability = 0.3 has no effect"):
        make_plan(resolve(overrides=["grpo.branch_probability=0.3"]), to_train=True)


class BlockScripts(ScriptSampler):
    pass


class OfBlocks(LineSampler):
    scripts = BlockScripts


def test_a_starter_of_lines_is_no_start_for_another_form() -> None:
    overrides = [f"sampling.sampler={__name__}:OfBlocks"]
    with pytest.raises(ConfigError, match=r"the starter writes a line at a time, but .* --model"):
        make_plan(resolve(overrides=overrides))
    assert make_plan(resolve(flags={"model": "m"}, overrides=overrides))


# Credit


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["grpo.credit=outcome"], "has no effect"),
        (["grpo.credit=return_to_go", "grpo.line_credit_weight=0"], "has no effect"),
        (["grpo.credit=line_local"], "'line_local' would charge the last line"),
        ([*TREE], "'tree' would charge the last line"),
    ],
)
def test_a_potential_needs_credit_that_sums_it_up(overrides: list[str], message: str) -> None:
    config = resolve(overrides=["reward.potential=0.3", *overrides])
    with pytest.raises(ConfigError, match=message):
        make_plan(config, to_train=True)


@pytest.mark.parametrize("credit", ["return_to_go", "potential"])
def test_a_potential_goes_with_credit_that_sums_it_up(credit: str) -> None:
    config = resolve(overrides=["reward.potential=0.3", f"grpo.credit={credit}"])
    assert make_plan(config, to_train=True).credit.config.credit == credit


def test_the_credit_of_a_plan_with_other_settings_has_these() -> None:
    plan = make_plan(Config())
    assert plan.credit.config.scale == "group"
    assert plan.changed(grpo=GRPOConfig(scale="none")).credit.config.scale == "none"


SERVED = ('model="PATH"', 'sampling.engine="vllm-server"', 'sampling.servers=["http://h:1"]')


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["sampling.engine=hf"],
            r"the engine 'hf' samples where the weights are, but workers hold none; give the "
            r"engine 'vllm-server', or workers.count = 0",
        ),
        (
            ["grpo.credit=tree", "grpo.branching=[4,2]"],
            r"workers.count = 2 does not go with grpo.credit = 'tree', whose groups grow",
        ),
        (
            ['workers.launch=["env", "no-such-command HOST"]'],
            r"workers.launch has 'no-such-command HOST', but there is no such command here",
        ),
    ],
)
def test_workers_are_refused_where_they_could_not_work(given: list[str], message: str) -> None:
    config = resolve(overrides=[*SERVED, "workers.count=2", *given])
    with pytest.raises(ConfigError, match=message):
        make_plan(config, to_train=True)
    make_plan(config)  # for any use but training there are none


def test_workers_go_with_an_engine_that_is_a_client() -> None:
    given = ["workers.count=2", 'workers.launch=["", " ", "env"]']
    plan = make_plan(resolve(overrides=[*SERVED, *given]), to_train=True)
    assert (plan.workers.count, plan.workers.launch) == (2, ("", " ", "env"))


def test_a_launch_without_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no effect: .*; give workers.count = 1"):
        resolve(overrides=['workers.launch=["ssh HOST"]'])
