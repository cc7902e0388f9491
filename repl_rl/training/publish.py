"""A run's weights for others: their card, may they go to the hub, and their way.

    RUN/config.toml, versions.json, metrics.jsonl, curve.png -> README.md, curve.png
    RUN/checkpoints/NAME -> what others need of it, with its card -> owner/name

`card.md.jinja` beside this file has the words of a card: what the weights are, how they were
trained, how well they did. It is made to be given away: names of runs, tasks and models are quoted,
and of a folder it says the last part alone. Knows folders and huggingface_hub. Does not know when a
run wants it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from repl_rl.base.disk import explained, replace_file
from repl_rl.base.plugins import is_hub_name
from repl_rl.base.terminal import one_row
from repl_rl.config import Config
from repl_rl.config.resolve import differences, read_config, resolve, toml_value
from repl_rl.errors import ConfigError, HubError
from repl_rl.models import hub
from repl_rl.runs.folder import (
    BEST,
    CURVES,
    newest_checkpoint,
    read_record,
    read_versions,
    updates_of,
)
from repl_rl.runs.metrics import Curve, EvaluationPoint, read_curve

CARD, PICTURE = "README.md", CURVES[0]
TAG = "repl-rl"
"""Among the tags of every card that is written here."""
_TAGS = [TAG, "trl", "grpo", "reinforcement-learning"]
_WARM_TAGS = [TAG, "trl", "sft"]
_ADAPTER = "adapter_config.json"
_BASE = "base_model_name_or_path"

_OWN = ("model", "report.", "sampling.servers", "sampling.weights_dir", "sandbox.warmup")
"""Settings of one machine or one run, or the beginnings of their names: no card repeats them."""
_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/[^\s'\"]+")
"""In a longer text. Where a text is nothing but a path, blanks belong to it."""
_TEMPLATE = Path(__file__).with_name("card.md.jinja")

MERGED = "merged"
"""Name of the checkpoint of a whole model, into which a run's adapter was merged."""
_KINDS = frozenset((".safetensors", ".json", ".jinja", ".txt", ".model", ".md", ".png", ".py"))
"""Files that others need. The state of an optimiser is not for them, and holds paths."""
_STATE = "trainer_state.json"
_SLOWEST_BYTES_PER_S = 100_000
_LEAST_S = 120.0


def check_push(name: str, *, say: Callable[[str], None]) -> None:
    """ConfigError unless the weights of a run can be pushed to `name`, which is made if need be.

    What is made is private: whoever wants to show a model decides that with its card at hand, and
    what was shown once cannot be taken back. A repository that is there stays as visible as it is.
    It is made this early because only that shows whether a token may write to it. `say` is called
    before the hub is asked.
    """
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise ConfigError(f"cannot push to {name!r}: HF_HUB_OFFLINE is set; unset it")
    if get_token() is None:
        raise _refusal(name, "nobody is logged in to the hub here")
    say(f"asking the hub for permission to push to {name}")
    failure = hub.within(2 * hub.PATIENCE_S, lambda: _ask(name))
    if isinstance(failure, ConfigError):
        raise failure
    if failure is not None:
        raise _refusal(name, f"the hub did not agree ({hub.status_of(failure)[1]})")


def push(run: Path, checkpoint: Path, name: str, *, say: Callable[[str], None]) -> str:
    """Push a checkpoint of `run` with its card to `name`, in one commit. Returns its address.

    A card that somebody has changed goes as it is. Raises ConfigError for a checkpoint without
    weights, and HubError where the hub does not take it.
    """
    from huggingface_hub import HfApi

    _check_weights(checkpoint)
    if public_adapter_config(checkpoint):
        say(
            f"the adapter belongs to a model in a folder here, which others lack; for a whole one: "
            f"repl-rl merge {checkpoint} --output {checkpoint.with_name(MERGED)}"
        )
    addresses = list[str]()

    def send() -> None:
        api = HfApi()
        addresses.append(str(api.create_repo(name, private=True, exist_ok=True)))
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Push from repl-rl")

    with _staged(run, checkpoint) as folder:
        num_bytes = sum(file.stat().st_size for file in folder.iterdir())
        say(f"pushing {num_bytes / 1e6:,.1f} MB of {checkpoint} to {name}")
        patience_s = _LEAST_S + num_bytes / _SLOWEST_BYTES_PER_S
        failure = hub.within(patience_s, send)
    if failure is not None:
        raise HubError(f"{name} did not take it: {hub.status_of(failure)[1]}") from failure
    return addresses[0]


def write_folder(run: Path, checkpoint: Path, folder: Path) -> None:
    """Write what `push` would push into `folder`, which is made.

    Raises ConfigError for a checkpoint without weights, and StorageError.
    """
    _check_weights(checkpoint)
    with _staged(run, checkpoint) as staged, explained(folder):
        shutil.copytree(staged, folder)  # what links lead to


def _check_weights(checkpoint: Path) -> None:
    if not any(checkpoint.glob("*.safetensors")):
        raise ConfigError(f"{str(checkpoint)!r} holds no weights; expected a checkpoint of a run")


def pushed_of(run: Path) -> Path:
    """The weights of a run that are pushed: a merged model of the newest ones, or these.

    Raises ConfigError where there are none.
    """
    newest = newest_checkpoint(run)
    merged = newest.with_name(MERGED)
    return merged if _written(merged) > _written(newest) else newest


def card_files(run: Path, checkpoint: Path) -> dict[str, bytes]:
    """The card of a checkpoint of `run` and the picture that it shows, by their names.

    Raises ConfigError for a run that cannot be read.
    """
    picture = run / PICTURE
    files = {PICTURE: picture.read_bytes()} if picture.is_file() else {}
    return {CARD: _text(run, checkpoint, picture=next(iter(files), None)).encode(), **files}


def write_card(run: Path, checkpoint: Path) -> None:
    """Write these files into the checkpoint. Raises ConfigError, and StorageError."""
    for name, content in card_files(run, checkpoint).items():
        replace_file(checkpoint / name, content)


def has_card(checkpoint: Path) -> bool:
    """Say whether it has a card of ours, as it was written or as somebody has changed it since."""
    from huggingface_hub import ModelCard

    try:
        text = (checkpoint / CARD).read_text()
        return TAG in (ModelCard(text, ignore_metadata_errors=True).data.get("tags") or [])
    except (OSError, ValueError):
        return False


def public_adapter_config(checkpoint: Path) -> dict[str, bytes]:
    """`adapter_config.json` without the folder of its model; nothing where it names none."""
    adapter = _adapter_config(checkpoint)
    base = str(adapter.get(_BASE, ""))
    if not adapter or is_hub_name(base):
        return {}
    return {_ADAPTER: json.dumps({**adapter, _BASE: _last_part(base)}, indent=2).encode()}


def _adapter_config(checkpoint: Path) -> dict[str, Any]:  # peft's
    try:
        loaded = json.loads((checkpoint / _ADAPTER).read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _text(run: Path, checkpoint: Path, *, picture: str | None) -> str:
    from huggingface_hub import ModelCard, ModelCardData

    config = resolve(saved=read_config(run / "config.toml"))
    versions, curve, warm = read_versions(run), read_curve(run), read_record(run)
    adapter = _adapter_config(checkpoint)
    # The model that the weights, or the adapter, belong to: `owner/name`, a folder, or empty.
    began = "" if config.model is None else versions.get("policy", config.model)
    base = str(adapter.get(_BASE) or began)
    step = _step_of(checkpoint, curve) if warm is None else warm.steps
    card = ModelCard.from_template(
        ModelCardData(
            base_model=base if is_hub_name(base) else None,
            library_name="peft" if adapter else "transformers",
            pipeline_tag="text-generation",
            tags=_TAGS if warm is None else _WARM_TAGS,
        ),
        template_path=str(_TEMPLATE),
        code=_code,
        public=_public,
        name=(config.report.hub or run.resolve().name).rpartition("/")[2],
        model=config.report.hub or "MODEL",
        origin=_last_part(base),
        is_adapter=bool(adapter),
        config=config,
        step=step,
        warm=warm,
        rates=_rates(curve, step),
        picture=picture,
        # What a rank implies is said where it is not so. No warm start reads it.
        settings=_settings(config, rank=config.lora.rank if warm is None else 0),
        versions=versions,
    )
    return f"{card}\n"


def _rates(curve: Curve, step: int) -> dict[str, str]:
    """The cells of each row of the table; no row where nothing was measured."""
    if not curve.evaluations:
        return {}
    evaluations = {one.step: one for one in curve.evaluations}
    rows = {"before": 0, "after": step} if step else {"without training": 0}
    return {name: _cells(evaluations.get(at)) for name, at in rows.items()}


def _cells(evaluation: EvaluationPoint | None) -> str:
    if evaluation is None or evaluation.interval is None:
        return "not measured |  | "
    low, high = evaluation.interval
    cells = f"{evaluation.rate:.1%} | {low:.1%} to {high:.1%} | {evaluation.total}"
    return cells.replace("%", " %")


def _settings(config: Config, *, rank: int) -> Iterator[tuple[str, str]]:
    bases = (Config(), resolve(flags={"model": "MODEL", "lora": {"rank": rank}}))
    changed = {key: value for one in bases for key, _, value in differences(one, config)}
    for key, value in changed.items():
        if not key.startswith(_OWN) and value != "null":  # TOML has no null
            yield key, toml_value(_public(json.loads(value)))


def _step_of(checkpoint: Path, curve: Curve) -> int:
    """Updates behind a checkpoint's weights, which its name tells."""
    if numbered := re.fullmatch(r"checkpoint-(\d+)", checkpoint.name):
        return int(numbered[1])
    if (kept := updates_of(checkpoint)) is not None:
        return kept
    if checkpoint.name == BEST:  # the first that did best
        trained = [one for one in curve.evaluations if one.step]
        return max(trained, key=lambda one: one.rate).step if trained else 0
    return max((step.step for step in curve.steps), default=0)


def _code(text: str) -> str:
    """A name as code of one row, which ends where it should, in a table, too."""
    return f"`{one_row(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _last_part(path: str) -> str:
    """`owner/name` as it is; of a folder its name, and for a checkpoint that of its run."""
    if is_hub_name(path):
        return path
    parts = Path(path).parts
    if parts[-2:-1] == ("checkpoints",):
        return f"{parts[-1]} of {parts[-3]}" if len(parts) > 2 else parts[-1]
    return Path(path).name


def _public(value: Any) -> Any:  # any value of a config
    """Keep the last part of each path alone, and all else as it is."""
    if isinstance(value, list):
        return [_public(one) for one in value]
    if not isinstance(value, str):
        return value
    if value.startswith(("/", "~/", "./", "../")):
        return Path(value).name
    return _PATH.sub(lambda match: Path(match[0]).name, value)


def _refusal(name: str, reason: str) -> ConfigError:
    return ConfigError(f"cannot push to {name!r}: {reason}; log in with `hf auth login`")


def _ask(name: str) -> None:
    """Two requests. Raises ConfigError where the answer is no, and what the client raises."""
    from huggingface_hub import HfApi

    api = HfApi()
    user: dict[str, Any] = api.whoami()
    owner = name.partition("/")[0]
    own = [user["name"], *(one["name"] for one in user.get("orgs", ()))]
    if owner.lower() not in map(str.lower, own):
        raise _refusal(name, f"the token here is for {', '.join(own)}")
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise _refusal(name, "the token here may only read")
    api.create_repo(name, private=True, exist_ok=True)


def _written(checkpoint: Path) -> float:
    return max((file.stat().st_mtime for file in checkpoint.glob("*.safetensors")), default=0.0)


@contextlib.contextmanager
def _staged(run: Path, checkpoint: Path) -> Iterator[Path]:
    """A folder of what is pushed. The run's own stays as it is: a reader may have it open."""
    made = {} if has_card(checkpoint) else card_files(run, checkpoint)
    made |= public_adapter_config(checkpoint)
    with tempfile.TemporaryDirectory(prefix="repl-rl-push-") as path:
        folder = Path(path)
        with explained(folder):
            for file in checkpoint.iterdir():
                if file.suffix in _KINDS and file.name not in {*made, _STATE}:
                    (folder / file.name).symlink_to(file.resolve())
            for name, content in made.items():
                (folder / name).write_bytes(content)
        yield folder
