"""Laws of a push: asked for before anything slow, one commit, and no run is lost by it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from rich.console import Console

from push_hub import ME, PushHub, checkpoint, ended_run, open_hub
from repl_rl.config import Config
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import ReportConfig
from repl_rl.errors import ConfigError
from repl_rl.rollout.plan import make_plan
from repl_rl.training import publish

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[PushHub]:
    with open_hub() as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        yield made


# Before a run


@pytest.mark.parametrize("name", ["it", "me/", "/it", "me/it/er", "me/-it", "me/a..b", "me/it.git"])
def test_what_no_repository_is_called_is_refused(name: str) -> None:
    config = resolve(overrides=["model=m", f"report.hub='{name}'"])
    with pytest.raises(ConfigError, match=r"report\.hub = .* is no name of a repository"):
        make_plan(config, to_train=True)


def test_the_usual_names_are_taken() -> None:
    for name in ("me/it", "some-body/Qwen3-0.6B_v2.1", "", "me/" + "a" * 96):
        make_plan(Config(model="m", report=ReportConfig(hub=name)), to_train=True)


def test_a_repository_is_made_private_before_a_run(hub: PushHub) -> None:
    said: list[str] = []
    publish.check_push("us/it", say=said.append)
    assert said == ["asking the hub for permission to push to us/it"]
    (made,) = hub.made
    assert made == {"name": "it", "organization": "us", "visibility": "private"}
    assert hub.asked == ["/api/whoami-v2", "/api/repos/create"]


def test_one_that_is_there_is_taken(hub: PushHub) -> None:
    hub.statuses["create"] = 409
    publish.check_push("me/it", say=lambda _: None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "you", "orgs": []}, "the token here is for you"),
        ({"auth": {"accessToken": {"role": "read"}}}, "the token here may only read"),
    ],
)
def test_who_may_not_write_is_refused_and_nothing_is_made(
    hub: PushHub, change: dict[str, object], reason: str
) -> None:
    hub.me = {**ME, **change}
    with pytest.raises(ConfigError, match=f"cannot push to 'me/it': {reason}; log in with"):
        publish.check_push("me/it", say=lambda _: None)
    assert hub.made == []


@pytest.mark.parametrize(("path", "status"), [("whoami-v2", 401), ("create", 400)])
def test_a_hub_that_says_no_is_quoted(hub: PushHub, path: str, status: int) -> None:
    hub.statuses[path] = status
    with pytest.raises(ConfigError, match=rf"the hub did not agree \({status} "):
        publish.check_push("me/it", say=lambda _: None)


def test_no_way_out_is_one_line_before_torch_is_loaded(
    hub: PushHub, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("repl_rl.commands.options.before_libraries", None)
    code, _, err = call("train", "--output", "run", "--set", "report.hub=me/it")
    asking, refusal = err.splitlines()
    assert (code, asking) == (2, "repl-rl: asking the hub for permission to push to me/it")
    assert refusal.startswith("repl-rl: cannot push to 'me/it': the hub did not agree (")
    assert "`hf auth login`, or leave report.hub empty, and push with `repl-rl push`" in refusal
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("offline", "token", "reason"),
    [(True, "hf_mine", "HF_HUB_OFFLINE is set"), (False, None, "nobody is logged in")],
)
def test_what_needs_no_question_is_not_asked(
    hub: PushHub,
    monkeypatch: pytest.MonkeyPatch,
    offline: bool,
    token: str | None,
    reason: str,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    with pytest.raises(ConfigError, match=reason):
        publish.check_push("me/it", say=lambda _: None)
    assert hub.asked == []


# The push


def test_what_others_need_goes_in_one_commit(hub: PushHub, call: Call, tmp_path: Path) -> None:
    run = ended_run(tmp_path / "run")
    before = sorted((run / "checkpoints" / "final").iterdir())
    code, out, err = call("push", "run", "me/it")
    assert (code, out) == (0, f"on the hub: {hub.address}/me/it\n"), err
    assert [row.partition(" of ")[0] for row in err.splitlines()] == [
        "repl-rl: asking the hub for permission to push to me/it",
        "repl-rl: pushing 0.0 MB",
    ]
    assert set(hub.files) == {
        *("README.md", "curve.png", "config.json", "model.safetensors", "tokenizer.json"),
    }
    assert hub.files["model.safetensors"] == b"weights"
    assert b"| after | 75.0 % |" in hub.files["README.md"]
    assert sum("/commit/" in path for path in hub.asked) == 1
    assert sorted((run / "checkpoints" / "final").iterdir()) == before


def test_the_same_files_go_to_a_folder_and_no_hub_is_asked(
    hub: PushHub, call: Call, tmp_path: Path
) -> None:
    ended_run(tmp_path / "run")
    assert call("push", "run", "--folder", "made/model") == (0, "folder: made/model\n", "")
    assert hub.asked == []
    made = {path.name: path for path in (tmp_path / "made" / "model").iterdir()}
    assert set(made) == {
        *("README.md", "curve.png", "config.json", "model.safetensors", "tokenizer.json"),
    }
    assert not any(path.is_symlink() for path in made.values())
    assert made["model.safetensors"].read_bytes() == b"weights"
    assert "| after | 75.0 % |" in made["README.md"].read_text()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((), "neither given; expected either OWNER/NAME on the hub or --folder DIR"),
        (("me/it", "--folder", "made"), "both given; expected either OWNER/NAME on the hub or"),
        (("--folder", "run"), "'run' is there already; give another --folder"),
    ],
)
def test_a_push_goes_to_one_place(
    hub: PushHub, call: Call, tmp_path: Path, given: tuple[str, ...], reason: str
) -> None:
    ended_run(tmp_path / "run")
    code, _, err = call("push", "run", *given)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"repl-rl: {reason}")
    assert hub.asked == []


def test_an_adapter_goes_without_the_folder_of_its_model(
    hub: PushHub, call: Call, tmp_path: Path
) -> None:
    run = ended_run(tmp_path / "run", "lora.rank=4")
    made = checkpoint(run / "checkpoints" / "checkpoint-40", base="/home/somebody/small")
    (made / "README.md").write_text("---\nbase_model: /home/somebody/small\n---\n")
    code, _, err = call("push", "run/checkpoints/checkpoint-40", "me/it")
    assert code == 0
    assert (
        "the adapter belongs to a model in a folder here, which others lack; for a whole one: "
        "repl-rl merge run/checkpoints/checkpoint-40 --output run/checkpoints/merged\n"
    ) in err
    assert json.loads(hub.files["adapter_config.json"]) == {
        "base_model_name_or_path": "small",
        "r": 4,
    }
    assert [name for name, content in hub.files.items() if b"somebody" in content] == []


def test_a_card_that_somebody_has_changed_goes_as_it_is(
    hub: PushHub, call: Call, tmp_path: Path
) -> None:
    run = ended_run(tmp_path / "run")
    mine = "---\ntags: [repl-rl]\n---\nMine.\n"
    (run / "checkpoints" / "final" / "README.md").write_text(mine)
    assert call("push", "run", "me/it")[0] == 0
    assert hub.files["README.md"].decode() == mine


def test_a_merged_model_goes_before_the_adapter_that_it_was_made_of(
    hub: PushHub, call: Call, tmp_path: Path
) -> None:
    run = ended_run(tmp_path / "run")
    merged = checkpoint(run / "checkpoints" / "merged")
    (merged / "model.safetensors").write_bytes(b"merged")
    assert publish.pushed_of(run) == merged
    os.utime(merged / "model.safetensors", (0, 0))  # of a run that has gone on since
    assert publish.pushed_of(run).name == "final"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("model", "'model' is no run; expected the folder of a run, or one of its checkpoints"),
        ("run/checkpoints/empty", "'run/checkpoints/empty' holds no weights"),
        ("run/checkpoints/mergd", "no such run or checkpoint: 'run/checkpoints/mergd'"),
    ],
)
def test_what_is_no_run_is_refused(
    hub: PushHub, call: Call, tmp_path: Path, path: str, message: str
) -> None:
    ended_run(tmp_path / "run")
    checkpoint(tmp_path / "model")
    (tmp_path / "run" / "checkpoints" / "empty").mkdir()
    code, _, err = call("push", path, "me/it")
    assert (code, message in err) == (2, True), err
    assert hub.files == {}


def test_a_push_that_fails_is_exit_code_1(hub: PushHub, call: Call, tmp_path: Path) -> None:
    hub.statuses["commit/main"] = 403
    ended_run(tmp_path / "run")
    code, _, err = call("push", "run", "me/it")
    assert (code, "me/it did not take it: 403 Forbidden" in err) == (1, True), err


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 403])
def test_the_end_of_a_run_pushes_its_weights_or_warns(
    hub: PushHub, tmp_path: Path, status: int
) -> None:
    from repl_rl.training.train import end
    from repl_rl.viewer.show.display import Screen

    hub.statuses["commit/main"] = status
    run = ended_run(tmp_path / "run", "report.hub=me/it")
    shown = io.StringIO()
    report = ReportConfig(hub="me/it", curve=False)
    end(run, report, Screen(Console(file=shown, width=300)), is_merged=False)
    last = shown.getvalue().splitlines()[-1]
    final = run / "checkpoints" / "final"
    assert (final / "README.md").is_file()
    if status == 200:
        assert last == f"on the hub: {hub.address}/me/it"
        assert hub.files["README.md"] == (final / "README.md").read_bytes()
    else:
        assert last == (
            f"warning: the weights are not on the hub: me/it did not take it: 403 Forbidden; push "
            f"them with: repl-rl push {final} me/it"
        )


@pytest.mark.slow
def test_without_the_setting_nothing_is_asked(hub: PushHub, tmp_path: Path) -> None:
    from repl_rl.progress import SILENT
    from repl_rl.training.train import end

    run = ended_run(tmp_path / "run")
    end(run, ReportConfig(curve=False), SILENT, is_merged=False)
    assert hub.asked == []
