"""The plan for a model that is named alone: a run brings its own settings.

    run | checkpoint | folder | FILE.gguf | owner/name, settings -> Plan

Knows names. Loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repl_rl.config.resolve import read_config, resolve, toml_value
from repl_rl.plugins import resolve_model
from repl_rl.rollout.plan import Plan, make_plan
from repl_rl.runs.folder import model_of, run_of


def plan_of_model(name: str, given: Mapping[str, Any]) -> Plan:
    """The plan of a model, under settings by their full names; of a run its newest checkpoint.

    Raises ConfigError for a model or a setting that is not there, and as `make_plan`.

        >>> plan_of_model("MODEL", {"sampling.max_lines": 12}).config.sampling.max_lines
        12
    """
    path = Path(name).expanduser()
    run = run_of(path)
    config = resolve(
        saved="" if run is None else read_config(run / "config.toml"),
        flags={"model": name if run is None else str(model_of(path))},
        overrides=[f"{key}={toml_value(value)}" for key, value in given.items()],
    )
    assert config.model is not None
    resolve_model(config.model)
    return make_plan(config)
