"""A golden file names code: which of it is loaded, from where, and for whom."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repl_rl.config.sections import RewardConfig
from repl_rl.golden.check import mutants

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
FREE = """\
from pathlib import Path
from repl_rl.records import Reward
Path(__file__).with_suffix(".ran").touch()
def free(trajectory, verdict, config):
    return Reward(line_rewards=(0.0,) * len(trajectory.lines), outcome_reward=0.5)
"""
SLIP = "set: reward.function={}\n=== t\noutcome: 0.5\n>>> y\n<- name_error 0\nNameError: y\n"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the imports of a test before the next one."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A folder from elsewhere: a golden file, and the module beside it that it names."""
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "free_reward.py").write_text(FREE)
    (folder / "a.repl").write_text(SLIP.format("free_reward:free"))
    return folder


def was_run(folder: Path) -> bool:
    return (folder / "free_reward.ran").exists()


def test_the_example_holds_from_the_repositorys_root(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shown = "4 transcripts in 1 file: all as written\n"
    assert call("reward", "test", "examples/no_charge.repl") == (0, shown, "")
    assert call("reward", "test", "examples") == (0, shown, "")


def test_the_module_beside_a_file_is_its_reward_wherever_one_stands(call: Call, pack: Path) -> None:
    # The one that lies where one stands is another.
    (pack.parent / "free_reward.py").write_text("raise RuntimeError('the wrong one')\n")
    assert call("reward", "test", "pack/a.repl")[0] == 0
    assert was_run(pack)


def test_a_package_beside_a_file_is_found_too(call: Call, pack: Path) -> None:
    (pack / "rewards").mkdir()
    (pack / "rewards" / "__init__.py").touch()
    (pack / "rewards" / "one.py").write_text("from free_reward import free\n")
    (pack / "a.repl").write_text(SLIP.format("rewards.one:free"))
    assert call("reward", "test", "pack/a.repl")[0] == 0


@pytest.mark.parametrize("spec", ["this:s", "free_reward:free", "..free_reward:free", "os:system"])
@pytest.mark.parametrize("command", ["test", "mutate", "explain"])
@pytest.mark.parametrize("where", ["set", "config"])
def test_a_file_loads_no_code_from_anywhere_else(
    call: Call, pack: Path, command: str, spec: str, where: str
) -> None:
    """Not where one stands either, which is where a module of that name lies here."""
    (pack / "free_reward.py").rename(pack.parent / "free_reward.py")
    (pack / "mine.toml").write_text(f'[reward]\nfunction = "{spec}"\n')
    text = SLIP.format(spec)
    if where == "config":
        text = text.replace(f"set: reward.function={spec}", "config: mine.toml")
    (pack / "a.repl").write_text(text)
    code, out, err = call("reward", command, "pack/a.repl")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith(f"if you trust it: --set reward.function={spec}\n")
    assert "this" not in sys.modules
    assert not was_run(pack.parent)


def test_to_look_at_a_file_loads_nothing_that_nobody_names(call: Call, pack: Path) -> None:
    code, _, err = call("reward", "explain", "pack/a.repl")
    assert (code, was_run(pack)) == (2, False)
    assert err == (
        "repl-rl: a.repl names code of its own; if you trust it: "
        "--set reward.function=free_reward:free\n"
    )
    named = "reward.function=free_reward:free"
    assert call("reward", "explain", "pack/a.repl", "--set", named)[0] == 0
    assert was_run(pack)


def test_what_a_person_names_is_found_where_they_stand(call: Call, pack: Path) -> None:
    (pack / "free_reward.py").rename(pack.parent / "free_reward.py")
    named = "reward.function=free_reward:free"
    assert call("reward", "test", "pack/a.repl", "--set", named)[0] == 0


def test_two_modules_of_one_name_are_told_apart(call: Call, pack: Path) -> None:
    """The second file would be held to the first one's reward."""
    other = pack.parent / "other"
    other.mkdir()
    (other / "free_reward.py").write_text(FREE.replace("0.5", "0.25"))
    (other / "a.repl").write_text(SLIP.format("free_reward:free"))
    code, _, err = call("reward", "test", "pack", "other")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("repl-rl: two modules are called 'free_reward': ")


def test_a_file_of_the_librarys_name_is_not_mixed_up_with_it(call: Call, pack: Path) -> None:
    (pack / "json.py").write_text(FREE)
    (pack / "a.repl").write_text(SLIP.format("json:free"))
    code, _, err = call("reward", "test", "pack/a.repl")
    assert (code, "two modules are called 'json': " in err) == (2, True)


def test_a_module_that_fails_fails_whole(call: Call, pack: Path) -> None:
    (pack / "free_reward.py").write_text("import no_such_library\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            call("reward", "test", "pack/a.repl")


ALL = len(list(mutants(RewardConfig())))


@pytest.mark.parametrize(
    ("outcome", "worth", "num_mutants"),
    [
        ("0.5", 0.5, 0),
        ("config.no_submission", -0.6, 3),
        ("getattr(config, 'no_submission')", -0.6, 3),
        # Three changes of each of proved, supported, malformed; two of the three others.
        ("config.verdict['wrong']", 0, 15),
        ("dataclasses.replace(config, potential=0.0).no_submission", -0.6, ALL - 2),
    ],
)
def test_constants_that_a_reward_of_ones_own_does_not_read_have_no_mutants(
    call: Call, pack: Path, outcome: str, worth: float, num_mutants: int
) -> None:
    source = FREE.replace("outcome_reward=0.5", f"outcome_reward={outcome}")
    (pack / "free_reward.py").write_text(f"import dataclasses\n{source}")
    text = SLIP.format("free_reward:free").replace("outcome: 0.5", f"outcome: {worth}")
    (pack / "a.repl").write_text(text)
    code, out, _ = call("reward", "mutate", "pack")
    row = next(row for row in out.splitlines() if re.match(r"\d+ mutants", row))
    assert (code, int(row.split()[0])) == (int(num_mutants > 3), num_mutants)


def test_what_a_reward_of_ones_own_does_not_read_is_said(call: Call, pack: Path) -> None:
    assert call("reward", "mutate", "pack") == (
        0,
        "0 mutants\n"
        "pack/a.repl: free_reward:free reads no line, max_line_charge, verdict, no_submission, "
        "potential, so nothing under [reward] can be varied\n",
        "",
    )


def test_a_reward_is_given_a_config_like_any_other(call: Call, pack: Path) -> None:
    """While it is watched, too."""
    (pack / "free_reward.py").write_text(
        "import copy, dataclasses\nfrom repl_rl.config import RewardConfig\n"
        + FREE.replace(
            "    return",
            "    assert isinstance(config, RewardConfig)\n"
            "    assert dataclasses.asdict(config).keys() > {'line', 'verdict'}\n"
            "    assert copy.deepcopy(config) is not None\n"
            "    assert repr(config)\n"
            "    return",
        )
    )
    assert call("reward", "mutate", "pack")[0] == 1


def test_the_example_leaves_only_what_it_reads(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    out = call("reward", "mutate", "examples")[1]
    assert "line." not in out
    assert "verdict.supported" in out
