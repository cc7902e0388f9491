"""Front ends of Jupyter, for whoever starts a fork server whose kernels clients may reach.

LINES -> `lines.make_lines_kernel`, CELLS -> `cells.make_notebook_kernel`

The trusted side: imports nothing of Jupyter. Knows what the fork server must be told. Does not know
what a kernel does with a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repl_sandbox.host.front_end import Provision
from repl_sandbox.host.started_kernel import Newborn
from repl_sandbox.jupyter.console import write_connection_file
from repl_sandbox.jupyter.fonts import FOLDER, VARIABLE, offer_fonts, system_fonts

DISTRIBUTIONS = ("ipykernel", "jupyter-client", "pyzmq", "tornado", "traitlets")


@dataclass(frozen=True, slots=True)
class LinesFrontEnd:
    """The REPL line by line, behind Jupyter's messages."""

    endpoint: str = "repl_sandbox.jupyter.lines:make_lines_kernel"
    distributions: tuple[str, ...] = DISTRIBUTIONS

    def provide(self, runtime: Path, environment: Mapping[str, str]) -> Provision:
        return Provision()

    def write_connection(self, newborn: Newborn) -> Path:
        return write_connection_file(newborn)


@dataclass(frozen=True, slots=True)
class CellsFrontEnd(LinesFrontEnd):
    """IPython's cells, with fonts for figures."""

    endpoint: str = "repl_sandbox.jupyter.cells:make_notebook_kernel"

    def provide(self, runtime: Path, environment: Mapping[str, str]) -> Provision:
        own = offer_fonts(runtime, environment)
        variables = {VARIABLE: str(runtime / FOLDER)}
        return Provision(shown=system_fonts(), own=own, environment=variables)


LINES = LinesFrontEnd()
CELLS = CellsFrontEnd()
