"""Data sets on the hub: `hf:owner/name[@revision]`, read by the library `datasets`.

    name, DataConfig -> the rows of its splits, each with the split that it is of

Only data is loaded: a data set that asks for code of its own is refused by the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from repl_rl.config.sections import DataConfig
from repl_rl.errors import ConfigError, how_to_install
from repl_rl.tasks.data.names import split_hub_name
from repl_rl.tasks.data.reading import Source
from repl_rl.tasks.data.rows import Row


def source(name: str, data: DataConfig) -> Callable[[], Source]:
    """What loads the data set when it is needed; a wrong name is a ConfigError at once."""
    repository, revision = split_hub_name(name)

    def load() -> Source:
        splits = _splits(name, repository, revision, data.config)
        return Source(name=name, place=name, rows=_rows(repository, splits), has_splits=True)

    return load


def _splits(
    name: str, repository: str, revision: str | None, config: str | None
) -> Mapping[str, Any]:  # of rows, a type of the library's
    """Every split by its name."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise ConfigError(
            f"{name!r}: reading the hub takes the package datasets, which is not installed; "
            f"{how_to_install('data')}"
        ) from None
    try:
        found = datasets.load_dataset(repository, config, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"{name!r} cannot be loaded: {_first_line(error)}; it takes the hub, or a copy that "
            f"was loaded here before (--set data.config=NAME chooses a configuration)"
        ) from None
    splits: Mapping[str, Any] = found
    return splits


def _rows(repository: str, splits: Mapping[str, Any]) -> Iterator[Row]:
    for split, table in splits.items():
        for number, values in enumerate(table, 1):
            texts = _as_text(values)
            where = f"{repository} {split}: row {number}"
            yield Row(where, {"split": split, **texts})


def _as_text(value: Any) -> Any:
    """Numbers as text, as they are in files."""
    if isinstance(value, Mapping):
        return {key: _as_text(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else value


def _first_line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:200].rstrip(".")
