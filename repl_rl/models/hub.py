"""Look for a model on the hub: asked once, before anything heavy is imported.

Knows names and one address. Does not know models: whoever loads one fetches it, with the patience
that gigabytes take.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from repl_rl.errors import ConfigError

PATIENCE_S = 5.0
"""Time for an answer, in all: a host may have a dozen addresses, and each would get as long."""

_FILE = "config.json"


def check(name: str, *, say: Callable[[str], None]) -> None:
    """ConfigError unless `owner/name` is in the hub's cache here, or the hub says that it has it.

    `say` is called before the hub is asked.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    cache = constants.HF_HUB_CACHE
    if isinstance(try_to_load_from_cache(name, _FILE, cache_dir=cache), str):
        return
    if constants.HF_HUB_OFFLINE:
        raise ConfigError(
            f"there is no folder {name!r}, the hub's cache has no model of that name, and "
            f"HF_HUB_OFFLINE is set; give --model the path of a model's folder"
        )
    say(f"asking the hub for {name}")
    # One request, without the client's usual retries.
    address = hf_hub_url(name, _FILE)
    failure = within(PATIENCE_S, lambda: get_hf_file_metadata(address, timeout=PATIENCE_S))
    if failure is not None:
        raise _refusal(name, failure)


def within(patience_s: float, ask: Callable[[], object]) -> Exception | None:
    """Return the error that `ask` raises, or a TimeoutError where it takes longer; else None."""
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            ask()
        # Errors of the client and of sockets share no type.
        except Exception as error:  # noqa: BLE001
            answers.put(error)
        else:
            answers.put(None)

    # In a thread: no timeout of a client bounds the search for a host's addresses.
    threading.Thread(target=run, daemon=True).start()
    try:
        return answers.get(timeout=patience_s)
    except queue.Empty:
        return TimeoutError(f"no answer in {patience_s:g} s")


def status_of(failure: Exception) -> tuple[int, str]:
    """The hub's status, 0 where it gave none, and what went wrong in a few words."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(failure, HfHubHTTPError):
        status = failure.response.status_code
        return status, f"{status} {failure.response.reason_phrase}"
    return 0, str(failure).strip().partition("\n")[0] or type(failure).__name__


def _refusal(name: str, failure: Exception) -> ConfigError:
    from huggingface_hub.errors import HFValidationError

    status, reason = status_of(failure)
    if status in (401, 403, 404) or isinstance(failure, HFValidationError):
        return ConfigError(
            f"the hub has no model {name!r}, or none that it shows you, and no folder here has "
            f"that name; give --model another name, or the path of a model's folder"
        )
    return ConfigError(
        f"the hub did not answer for {name!r} ({reason}), and no folder here has that name; give "
        f"--model the path of a model's folder"
    )
