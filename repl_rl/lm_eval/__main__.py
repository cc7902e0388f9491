"""`python -m repl_rl.lm_eval`: the command `lm_eval`, word for word, with the model `repl-rl`.

The harness finds models in a table of its own and looks for no others among what is installed.
"""

from __future__ import annotations

import sys

import click
from lm_eval.__main__ import cli_evaluate

import repl_rl.lm_eval.model  # noqa: F401  # registers the model
from repl_rl.base.terminal import forget_odd_size, one_row
from repl_rl.errors import ConfigError

if __name__ == "__main__":
    forget_odd_size()
    try:
        cli_evaluate()
    except ConfigError as error:
        click.echo(f"repl-rl: {one_row(str(error))}", err=True)
        sys.exit(2)
