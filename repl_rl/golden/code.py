"""The reward function that a golden file names: who may have it loaded, and from where.

    path, RewardConfig -> RewardFunction

Knows modules and folders. Does not know transcripts, nor what a reward is worth.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from repl_rl.config.sections import RewardConfig
from repl_rl.credit.rewards import RewardFunction, load_reward
from repl_rl.errors import ConfigError

_OURS = RewardConfig().function


def reward_beside(
    path: Path, config: RewardConfig, *, is_named: bool, loads_code: bool
) -> RewardFunction:
    """The function of `config`; a module that lies beside `path` comes before any other.

    A file may come from elsewhere. By itself it can load only such a module, and only with
    `loads_code`, which means that somebody asked to run the file's own reward. With `is_named` a
    person named the function, and it may lie anywhere. A name without a colon is an installed entry
    point, not the file's code. Raises ConfigError for all else.
    """
    module, colon, _ = config.function.partition(":")
    if not colon or config.function == _OURS:
        return load_reward(config)
    name, folder = module.partition(".")[0], path.parent.resolve()
    found = _find(name, folder)
    if not is_named and (found is None or not loads_code):
        what = "code of its own" if found else "code that does not lie beside it"
        raise ConfigError(
            f"{path.name} names {what}, reward.function = {config.function!r}; if you trust it: "
            f"--set reward.function={config.function}"
        )
    if found is not None:
        _load(name, found, folder)
    return load_reward(config)


def _find(name: str, folder: Path) -> ModuleSpec | None:
    """A module or a package of that name in a folder; None where there is none. Runs nothing."""
    if not name.isidentifier():
        return None
    importlib.invalidate_caches()  # its file may be younger than the last look at the folder
    found = PathFinder.find_spec(name, [str(folder)])
    return found if found is not None and found.origin is not None else None


def _load(name: str, found: ModuleSpec, folder: Path) -> None:
    """Put it among the loaded modules, where `load_reward` finds it first."""
    assert found.loader is not None, "it has a file"
    known = getattr(sys.modules.get(name), "__spec__", None)
    if known is not None and known.origin != found.origin:
        raise ConfigError(
            f"two modules are called {name!r}: {found.origin} and {known.origin or 'a built-in'}; "
            f"rename the first"
        )
    if name in sys.modules:
        return
    # At the end, for its own imports: its neighbours must not hide the library's modules.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    module = sys.modules[name] = module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
