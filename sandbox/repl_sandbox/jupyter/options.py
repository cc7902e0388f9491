"""What the commands of this folder are told about their kernels.

argv -> Configuration

Knows words of a command line. Does not know what a command does.
"""

from __future__ import annotations

import argparse
from dataclasses import fields

from repl_sandbox.jupyter.configuration import Configuration, names_in
from repl_sandbox.types import Isolation


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is not given is None."""
    parser.add_argument("--isolation", type=Isolation, choices=list(Isolation))
    for name in ("preload", "packages"):
        parser.add_argument(f"--{name}", type=names_in, metavar="NAME,...")
    parser.add_argument("--memory-mib", type=int)


def configured(asked: argparse.Namespace) -> Configuration:
    """What the options say, and the usual where they say nothing."""
    names = {field.name for field in fields(Configuration)}
    given = {name: value for name, value in vars(asked).items() if name in names}
    return Configuration(**{name: value for name, value in given.items() if value is not None})
