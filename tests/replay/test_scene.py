"""Laws of what a stored trajectory is run again with: whose config, whose setup, what is told."""

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixture_types import MakeScored, MakeTrajectory
from repl_rl import __version__
from repl_rl.config import Config
from repl_rl.config.resolve import to_toml
from repl_rl.errors import ConfigError
from repl_rl.records import Origin, OutcomeKind
from repl_rl.runs.folder import RunFolder, make_origin
from repl_rl.runs.trajectory_file import StoredTrajectory, append, places
from repl_rl.tasks.base import load_task, make_setup
from repl_rl.transcript.conventions import IPYTHON
from repl_rl.transcript.format import PYTHON, SUBMIT_STUB
from repl_rl.viewer.replay.scene import config_of, make_scene, other_walls
from repl_sandbox.types import Isolation
from repl_sandbox.walls.isolation import Level, Walls

PARTS = [(" 1+1\n", OutcomeKind.OK_OUTPUT, "2\n>>>")]
WALLS = "strict: namespaces"

MakeOrigin = Callable[..., Origin]
MakePlace = Callable[..., StoredTrajectory]


@pytest.fixture
def here() -> Origin:
    """Made on this very machine."""
    return make_origin(Config(), setup=("y = 5",), tokenizer=None, isolation=WALLS)


@pytest.fixture
def trusted(here: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeOrigin:
    """`trusted(config=...)`: the origin of a run that was made here; no other test knows of it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(**changed: Any) -> Origin:
        origin = replace(here, **changed)
        RunFolder(tmp_path / "made").write_config(origin, policy="a script", device="cpu")
        return origin

    return run


@pytest.fixture
def place(make_trajectory: MakeTrajectory, make_scored: MakeScored, tmp_path: Path) -> MakePlace:
    """`place(origin)`: where a trajectory stands in a run's folder."""

    def write(origin: Origin | None = None) -> StoredTrajectory:
        path = tmp_path / "run" / "trajectories" / "step-000000.jsonl"
        path.parent.mkdir(parents=True)
        append(path, [make_scored(make_trajectory(PARTS), 1.0)], origin=origin)
        return next(places(path))

    return write


def save(place: StoredTrajectory, text: str, versions: Mapping[str, str] | None = None) -> None:
    run = place.path.parent.parent
    (run / "config.toml").write_text(text)
    if versions is not None:
        (run / "versions.json").write_text(json.dumps(versions))


def test_a_file_that_says_where_it_comes_from_needs_no_folder(
    place: MakePlace, here: Origin
) -> None:
    scene = make_scene(place(replace(here, config="[sandbox]\nline_cpu_s = 3.5")))
    assert (scene.config.sandbox.line_cpu_s, scene.setup) == (3.5, ("y = 5",))
    assert scene.notes == ()


def test_what_a_file_says_stands_before_the_config_beside_it(
    place: MakePlace, here: Origin
) -> None:
    found = place(replace(here, config="seed = 1"))
    save(found, "seed = 2")
    assert make_scene(found).config.seed == 1


def test_a_file_that_does_not_say_takes_the_config_of_its_run(place: MakePlace) -> None:
    found = place()
    save(found, "transcript = 'ipython'", make_origin_versions())
    scene = make_scene(found)
    assert scene.fmt is IPYTHON
    assert scene.setup[: len(IPYTHON.setup)] == IPYTHON.setup
    assert (scene.setup[-1], scene.notes) == (SUBMIT_STUB, ())


def make_origin_versions() -> dict[str, str]:
    return dict(make_origin(Config(), setup=(), tokenizer=None, isolation="").versions)


def test_a_bare_file_is_run_with_defaults_and_that_is_told(place: MakePlace) -> None:
    scene = make_scene(place())
    assert (scene.config.task, scene.fmt) == (Config().task, PYTHON)
    assert len(scene.notes) == 1
    assert scene.notes[0].startswith("step-000000.jsonl does not say how it was made")


def test_what_is_said_here_stands_before_what_is_saved(
    place: MakePlace, here: Origin, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("seed = 2\n[sandbox]\nstandby = 7")
    found = place(replace(here, config="seed = 1"))
    scene = make_scene(found, files=[file], overrides=["seed=3"])
    assert (scene.config.seed, scene.config.sandbox.standby) == (3, 7)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python", "made with python 1.0, here it is 3."),
        ("sympy", "made with sympy 1.0, here it is 1."),
        ("repl_rl", f"made with repl_rl 1.0, here it is {__version__}"),
    ],
)
def test_another_version_of_what_kernels_saw_is_told(
    place: MakePlace, here: Origin, name: str, said: str
) -> None:
    (note,) = make_scene(place(replace(here, versions={**here.versions, name: "1.0"}))).notes
    assert note.startswith(said)


def test_another_version_of_what_only_trained_is_not_told(place: MakePlace, here: Origin) -> None:
    versions = {**here.versions, "torch": "1.0", "platform": "another"}
    assert make_scene(place(replace(here, versions=versions))).notes == ()


def test_a_module_is_told_by_the_version_of_what_it_came_with(
    place: MakePlace, trusted: MakeOrigin
) -> None:
    found = place(trusted(config='[sandbox]\npreload = ["dateutil"]'))
    (note,) = make_scene(found).notes
    version = importlib.metadata.version("python-dateutil")
    assert note.startswith(f"made with python-dateutil unknown, here it is {version}:")


def test_a_version_reaches_no_terminal_as_it_is(place: MakePlace, here: Origin) -> None:
    versions = {**here.versions, "python": "\x1b[31m3.1"}
    assert (
        make_scene(place(replace(here, versions=versions)))
        .notes[0]
        .startswith("made with python 3.1, here")
    )


def test_another_sampler_is_refused(place: MakePlace, trusted: MakeOrigin) -> None:
    found = place(trusted(config="sampling.sampler = 'inline_calls:InlineCalls'"))
    with pytest.raises(ConfigError, match=r"step-000000.jsonl was made by .*InlineCalls"):
        make_scene(found)


FOREIGN = [
    ("task.name", "os:abort"),
    ("transcript", "os:abort"),
    ("sampling.sampler", "os:abort"),
    ("reward.function", "os:abort"),
    ("grpo.credit", "os:abort"),
]


@pytest.mark.parametrize(("key", "name"), FOREIGN)
def test_a_file_from_elsewhere_names_no_code_of_its_own(
    place: MakePlace, here: Origin, key: str, name: str
) -> None:
    told = rf"step-000000.jsonl names code of its own; .* --set {key}={name}"
    with pytest.raises(ConfigError, match=told):
        make_scene(place(replace(here, config=f"{key} = '{name}'")))


@pytest.mark.parametrize(("key", "name"), FOREIGN)
def test_a_name_that_a_person_repeats_is_taken(
    place: MakePlace, here: Origin, key: str, name: str
) -> None:
    found = place(replace(here, config=f"{key} = '{name}'"))
    section, _, leaf = key.rpartition(".")
    config = config_of(found, overrides=[f"{key}={name}"])
    assert getattr(getattr(config, section) if section else config, leaf) == name


def test_code_that_was_run_here_is_loaded_again_unasked(
    place: MakePlace, trusted: MakeOrigin
) -> None:
    assert config_of(place(trusted(config="task = 'my_tasks:Task'"))).task.name == "my_tasks:Task"


def test_a_folder_that_brings_its_config_along_is_trusted_no_more(
    place: MakePlace, here: Origin
) -> None:
    saved = "task = 'os:abort'"
    found = place(replace(here, config=saved))
    save(found, saved)
    with pytest.raises(ConfigError, match="names code of its own"):
        config_of(found)


def test_a_config_beside_a_file_that_says_nothing_names_no_code(place: MakePlace) -> None:
    found = place()
    save(found, "task = 'os:abort'")
    with pytest.raises(ConfigError, match="names code of its own"):
        config_of(found)


def test_the_code_of_a_run_is_not_trusted_with_another_setup(
    place: MakePlace, trusted: MakeOrigin
) -> None:
    origin = trusted(config="task = 'os:abort'")
    with pytest.raises(ConfigError, match="names code of its own"):
        config_of(place(replace(origin, setup=("y = 6",))))


def test_a_file_from_elsewhere_has_limits(place: MakePlace, here: Origin) -> None:
    saved = "[sandbox]\nline_cpu_s = 1e9\nmemory_mib = 1000000\nline_wall_s = 4.0"
    found = config_of(place(replace(here, config=saved))).sandbox
    # Eight times the usual 2 s and 512 MiB; what is less is taken as it is.
    assert (found.line_cpu_s, found.memory_mib, found.line_wall_s) == (16.0, 4096, 4.0)


def test_a_file_from_elsewhere_has_nothing_loaded(place: MakePlace, here: Origin) -> None:
    found = place(replace(here, config='[sandbox]\npreload = ["sympy", "pip.__main__"]'))
    with pytest.raises(ConfigError, match=r"has kernels load 'pip.__main__'; if you trust it"):
        config_of(found)


@pytest.mark.parametrize("saved", ["no_such_key = 1", "seed = 'a'", "seed =", "[sampling]\nx = 1"])
def test_a_saved_config_that_is_none_names_its_file(
    place: MakePlace, here: Origin, saved: str
) -> None:
    with pytest.raises(ConfigError, match=r"the config that .*step-000000.jsonl' was made with"):
        make_scene(place(replace(here, config=saved)))


def test_a_setting_of_ones_own_that_is_wrong_is_not_blamed_on_the_file(
    place: MakePlace, here: Origin
) -> None:
    with pytest.raises(ConfigError, match=r"^unknown key 'no_such_key'"):
        make_scene(place(here), overrides=["no_such_key=1"])


def test_a_setting_may_lean_on_what_is_saved(place: MakePlace, here: Origin) -> None:
    found = place(replace(here, config="grpo.credit = 'potential'"))
    assert make_scene(found, overrides=["reward.potential=0.1"]).config.reward.potential == 0.1


def test_a_config_beside_that_is_no_text_is_told(place: MakePlace) -> None:
    found = place()
    (found.path.parent.parent / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot read .*config\.toml"):
        make_scene(found)


def test_a_file_takes_no_walls_down_and_runs_nothing_outside_of_them(
    place: MakePlace, here: Origin
) -> None:
    saved = "[sandbox]\nisolation = 'none'\nwarmup = [\"open('/tmp/mine', 'w')\"]"
    sandbox = make_scene(place(replace(here, config=saved))).config.sandbox
    assert (sandbox.isolation, sandbox.warmup) == (Isolation.AUTO, None)


def test_a_run_of_ones_own_takes_no_walls_down_either(
    place: MakePlace, trusted: MakeOrigin
) -> None:
    """Its config can be guessed, and the lines may be anybody's."""
    sandbox = config_of(place(trusted(config="sandbox.isolation = 'none'"))).sandbox
    assert sandbox.isolation is Isolation.AUTO


def test_who_sits_here_may_take_walls_down(place: MakePlace, here: Origin) -> None:
    found = place(replace(here, config="sandbox.isolation = 'none'"))
    scene = make_scene(found, overrides=["sandbox.isolation=none"])
    assert scene.config.sandbox.isolation is Isolation.NONE


def test_stricter_walls_stay(place: MakePlace, here: Origin) -> None:
    scene = make_scene(place(replace(here, config="sandbox.isolation = 'strict'")))
    assert scene.config.sandbox.isolation is Isolation.STRICT


def test_a_whole_config_comes_back_equal(place: MakePlace, here: Origin) -> None:
    config = Config(seed=4, model="owner/name")
    assert make_scene(place(replace(here, config=to_toml(config)))).config == config


def test_a_chat_is_a_repl_inside_one_turn(place: MakePlace, here: Origin) -> None:
    scene = make_scene(place(replace(here, config="transcript = 'chat'")))
    assert scene.fmt is PYTHON
    assert scene.fmt.number_at_end("<|im_start|>assistant\n>>> # x\n>>>") == 1


@pytest.mark.parametrize(
    ("prompt", "number"),
    [
        ("In [1]: from sympy import *\nIn [12]:", 12),
        ("In [3]:", 3),
        ("In [3]: x", None),
        ("In [3]:\n", None),
        ("", None),
        (f"In [{'9' * 5000}]:", None),
    ],
)
def test_statements_are_numbered_on_from_the_prompt_that_is_open(
    prompt: str, number: int | None
) -> None:
    assert IPYTHON.number_at_end(prompt) == number


@pytest.mark.parametrize(
    ("then", "today"),
    [
        ("tier A: namespaces, Landlock, seccomp", Level.STRICT),
        ("tier B: Landlock, seccomp, no namespaces", Level.BASIC),
        ("none: kernels run unsealed, as the user who started them", Level.NONE),
    ],
)
def test_the_walls_of_older_files_are_known(here: Origin, then: str, today: Level) -> None:
    for level in Level:
        notes = other_walls(replace(here, isolation=then), str(Walls(level=level)))
        assert bool(notes) is (level is not today)


def test_other_walls_are_named(here: Origin) -> None:
    assert other_walls(here, WALLS) == []
    assert other_walls(None, WALLS) == []
    (note,) = other_walls(replace(here, isolation="\x1b[31mnone"), WALLS)
    assert note == f"made in kernels of 'none', here they are {WALLS!r}"


def test_a_setup_from_elsewhere_is_not_run_before_all_walls_stand(
    place: MakePlace, here: Origin
) -> None:
    scene = make_scene(place(here))
    assert (scene.born_with, scene.run_first) == ((), ("y = 5",))


def test_the_setup_that_the_task_has_here_is_run_as_ever(place: MakePlace, here: Origin) -> None:
    setup = make_setup(load_task("sympy-proofs")[0], PYTHON)
    scene = make_scene(place(replace(here, setup=setup)))
    assert (scene.born_with, scene.run_first) == (setup, ())


def test_a_setup_that_was_run_here_is_run_as_ever(place: MakePlace, trusted: MakeOrigin) -> None:
    scene = make_scene(place(trusted()))
    assert (scene.born_with, scene.run_first) == (("y = 5",), ())


def test_the_setup_of_a_format_is_no_foreign_one(place: MakePlace, here: Origin) -> None:
    foreign = replace(here, setup=(*IPYTHON.setup, "y = 5"), config="transcript = 'ipython'")
    scene = make_scene(place(foreign))
    assert (scene.born_with, scene.run_first) == (IPYTHON.setup, ("y = 5",))


@pytest.mark.parametrize(
    ("setup", "counted"),
    [(("x = 1",) * 20_000, "20,000 sources"), (("#" * 70_000,), "70,000 characters")],
)
def test_a_foreign_setup_is_no_longer_than_a_tasks(
    place: MakePlace, here: Origin, setup: tuple[str, ...], counted: str
) -> None:
    with pytest.raises(ConfigError, match=rf"step-000000.jsonl has kernels run .*{counted}"):
        make_scene(place(replace(here, setup=setup)))


def test_a_setup_of_ones_own_may_be_long(place: MakePlace, trusted: MakeOrigin) -> None:
    setup = ("x = 1",) * 100
    assert make_scene(place(trusted(setup=setup))).setup == setup
