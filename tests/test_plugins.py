"""Laws of names and seeds: what is found, what is refused, what never changes."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

import repl_sandbox
from repl_rl.base.concurrency import derive_seed
from repl_rl.base.plugins import load_spec, resolve_model, resolve_spec, users_code
from repl_rl.errors import ConfigError, ReplRLError


def test_a_spec_stands_for_itself() -> None:
    assert resolve_spec("any.module:Thing", group="repl_rl.tasks") == "any.module:Thing"


def test_an_entry_point_is_found_by_name() -> None:
    spec = resolve_spec("sympy-proofs", group="repl_rl.tasks")
    assert spec == "repl_rl.tasks.sympy_proofs:SympyProofs"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sympy-proof", r"unknown task 'sympy-proof'; did you mean 'sympy-proofs'\?"),
        ("qqq", r"unknown task 'qqq'; known: .*sympy-proofs"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_spec(name, group="repl_rl.tasks")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_module_of_the_current_folder_is_found(here: Path) -> None:
    (here / "own_task_a.py").write_text("THING = 42\n")
    assert load_spec("own_task_a:THING") == 42


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\nimport no_such_library", "2: ModuleNotFoundError: No module named 'no_such_library'"),
        ("def f(a: Split): ...", "1: NameError: name 'Split' is not defined"),
        (
            "import json\njson.loads('')",
            "2: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        ),
        ("def f(:", "1: SyntaxError: invalid syntax"),
        ("def f():\n    1 / 0\nf()", "2: ZeroDivisionError: division by zero"),
        ("import os\nos.sep.no", "2: AttributeError: 'str' object has no attribute 'no'"),
    ],
)
def test_what_fails_in_a_module_of_a_user_is_named_by_its_last_line_there(
    here: Path, source: str, message: str
) -> None:
    name = f"own_task_{derive_seed(0, source):x}"
    (here / f"{name}.py").write_text(f"{source}\n")
    with pytest.raises(ConfigError) as told:
        load_spec(f"{name}:Thing")
    assert str(told.value) == f"{name}.py:{message}"


def test_a_module_of_a_user_may_say_itself_what_is_wrong(here: Path) -> None:
    source = "from repl_rl import ReplRLError\nraise ReplRLError('no file of mine')\n"
    (here / "own_task_c.py").write_text(source)
    with pytest.raises(ReplRLError, match=r"^no file of mine$"):
        load_spec("own_task_c:Thing")


@pytest.mark.parametrize("spec", ["os:", ":Thing", "a b:c", "os:path:x"])
def test_a_spec_that_is_no_spec_is_a_config_error(spec: str) -> None:
    with pytest.raises(ConfigError):
        load_spec(spec)


def test_a_seed_is_the_same_on_every_machine() -> None:
    assert derive_seed(0, "rollout", 3) == 7028342466154490321


def test_a_seed_fits_63_bits() -> None:
    assert all(0 <= derive_seed(i) < 2**63 for i in range(1000))


def test_paths_of_seeds_do_not_run_into_each_other() -> None:
    assert len({derive_seed(1, 11), derive_seed(11, 1), derive_seed(111)}) == 3


# Models


def test_a_folder_is_a_model_and_is_named_so_that_it_is_found_from_elsewhere(here: Path) -> None:
    (here / "model").mkdir()
    assert resolve_model("model") == str((here / "model").resolve())


def test_a_name_with_one_slash_may_be_on_the_hub(here: Path) -> None:
    assert resolve_model("owner/name-1.5") == "owner/name-1.5"


@pytest.fixture
def runs(here: Path) -> Path:
    """A folder with two runs, the second one later."""
    for number, name in enumerate(("nop-20260101-120000", "sums-20260102-120000")):
        folder = here / "runs" / name
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    return here / "runs"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("runs/nope", "'runs/nope'; did you mean 'runs/nop-20260101-120000'?"),
        ("runs/nop-20260101-12000/", "did you mean 'runs/nop-20260101-120000'?"),
        ("rnus/nop-20260101-120000", "did you mean 'runs/nop-20260101-120000'?"),
        ("nop", "'nop'; did you mean 'runs/nop-20260101-120000'?"),
        ("runs/RUN", "'runs/RUN'; the latest in 'runs' is 'runs/sums-20260102-120000'"),
        ("./owner/name", "'./owner/name'; expected a run, a model's folder, a GGUF file, or owner"),
        (
            "/no/such/name",
            "'/no/such/name'; expected a run, a model's folder, a GGUF file, or owner",
        ),
        ("a/b/c", "'a/b/c'; expected a run, a model's folder, a GGUF file, or owner"),
    ],
)
def test_a_mistyped_folder_names_the_nearest(runs: Path, name: str, message: str) -> None:
    """`rnus/...` alone could be on the hub, were there no folder so like it."""
    with pytest.raises(ConfigError, match="no such run or folder") as refused:
        resolve_model(name)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["runs/nope", "models/none", "outputs/x"])
def test_what_lies_below_a_folder_here_is_on_no_hub(here: Path, name: str) -> None:
    for folder in ("models", "outputs"):
        (here / folder).mkdir()
    with pytest.raises(ConfigError, match="no such run or folder"):
        resolve_model(name)


def test_a_gguf_file_is_a_model_and_is_named_so_that_it_is_found_from_elsewhere(
    here: Path,
) -> None:
    """By what it begins with, whatever its name is."""
    for name in ("weights.gguf", "sha256-12"):
        (here / name).write_bytes(b"GGUF and so on")
        assert resolve_model(name) == str((here / name).resolve())


def test_another_file_is_no_model(here: Path) -> None:
    (here / "weights.gguf").write_text("PK and so on")
    with pytest.raises(ConfigError, match=r"'weights.gguf' is no GGUF file: it begins with b'PK a"):
        resolve_model("weights.gguf")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("weihgts.gguf", "did you mean 'weights.gguf'?"),
        ("none/x.gguf", "expected a run, a model's folder, a GGUF file, or owner/name on the hub"),
    ],
)
def test_a_file_that_is_not_there_is_on_no_hub(here: Path, name: str, message: str) -> None:
    (here / "weights.gguf").write_bytes(b"GGUF and so on")
    with pytest.raises(ConfigError, match="no such run or folder") as refused:
        resolve_model(name)
    assert message in str(refused.value)


def test_what_fails_in_the_sandbox_is_no_fault_of_a_user() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        users_code()(partial(getattr, repl_sandbox, "Nothing"))()
