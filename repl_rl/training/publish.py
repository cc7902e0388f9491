"""A run's weights on the hub: may they go there, and their way.

    RUN/checkpoints/NAME -> what others need of it, with its card -> owner/name

Knows folders and huggingface_hub. Does not know when a run wants it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from repl_rl.base.disk import explained
from repl_rl.errors import ConfigError, HubError
from repl_rl.models import hub
from repl_rl.runs.card import card_files, has_card, public_adapter_config
from repl_rl.runs.folder import newest_checkpoint

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
    say(f"asking the hub for leave to push to {name}")
    failure = hub.within(2 * hub.PATIENCE_S, lambda: _ask(name))
    if isinstance(failure, ConfigError):
        raise failure
    if failure is not None:
        raise _refusal(name, f"the hub did not agree ({hub.status_of(failure)[1]})")


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


def pushed_of(run: Path) -> Path:
    """The weights of a run that are pushed: a merged model of the newest ones, or these.

    Raises ConfigError where there are none.
    """
    newest = newest_checkpoint(run)
    merged = newest.with_name(MERGED)
    return merged if _written(merged) > _written(newest) else newest


def _written(checkpoint: Path) -> float:
    return max((file.stat().st_mtime for file in checkpoint.glob("*.safetensors")), default=0.0)


def push(run: Path, checkpoint: Path, name: str, *, say: Callable[[str], None]) -> str:
    """Push a checkpoint of `run` with its card to `name`, in one commit. Returns its address.

    A card that somebody has changed goes as it is. Raises ConfigError for a checkpoint without
    weights, and HubError where the hub does not take it.
    """
    from huggingface_hub import HfApi

    if not any(checkpoint.glob("*.safetensors")):
        raise ConfigError(f"{str(checkpoint)!r} holds no weights; expected a checkpoint of a run")
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
