"""`repl-rl merge`: an adapter merged into the model that it belongs to."""

from __future__ import annotations

from pathlib import Path

import click

from repl_rl.base.plugins import resolve_model
from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import check_output


@click.command()
@click.argument("run_or_model", type=Path)
@click.option("--output", type=Path, metavar="DIR", required=True, help="Folder for the model.")
def merge(run_or_model: Path, output: Path) -> None:
    """Merge an adapter into its model.

    RUN_OR_MODEL is a run, one of its checkpoints, or a folder with a peft adapter. The merged model
    is in float32, and transformers loads it without peft.
    """
    if output.exists():
        raise ConfigError(f"{str(output)!r} is there already; give another --output")
    check_output(output)
    model = shared.named_model(str(run_or_model))
    folder = Path(resolve_model(model))
    if folder.is_dir() and not (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{str(run_or_model)!r} holds no adapter to merge")
    shared.before_libraries(model)
    from repl_rl.training.train import merge as write  # torch: seconds

    write(model, output)
    click.echo(f"model: {output}")
