"""Notebooks as people write them: the sealed kernel shows what the stock one shows."""

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

pytestmark = pytest.mark.kernel
KERNELS = ("python3", "repl-rl")

MATHEMATICS = (
    "from sympy import *\ninit_printing()\nx, y, z = symbols('x y z')",
    "expr = (x + 1)**3\nexpand(expr)",
    "# a function with a blank line in it\ndef newton(f, at):\n    df = f.diff(x)\n\n"
    "    for _ in range(5):\n        at = at - (f / df).subs(x, at)\n    return at.evalf(10)\n\n"
    "newton(x**2 - 2, Integer(1))",
    "Matrix([[1, x], [y, 2]]).inv()",
    "for n in range(3):\n    display(Integral(x**n, x))",
    "Eq(Integral(exp(-x**2), (x, -oo, oo)), integrate(exp(-x**2), (x, -oo, oo)))",
    "solve(x**2 + y, x), print('both');",
    "%%latex\n$e^{i\\pi} + 1 = 0$",
    "_ + 1 if isinstance(_, int) else 'none'",
    "from IPython.display import Math\nMath(latex(sin(x) / y))",
)
TABLES = (
    "%matplotlib inline\nimport numpy as np\nimport pandas as pd\nimport matplotlib.pyplot as plt",
    "t = pd.DataFrame({'n': range(6), 'square': [n**2 for n in range(6)]})\nt",
    "t.describe()",
    "t.groupby(t.n % 2).square.sum()",
    "fig, ax = plt.subplots(figsize=(3, 2))\nax.plot(t.n, t.square, marker='o')\n"
    "ax.set_title('$n^2$')\nplt.show()",
    "t.plot.bar(x='n');",
    "np.linalg.svd(np.eye(3))[1]",
    "plt.hist(np.random.default_rng(0).normal(size=100))[0]",
    "t.style.highlight_max()._repr_html_().count('<td')",
)
ERRORS = (
    "import sys",
    "print('before')\n1 / 0\nprint('after')",
    "def broken(:\n    pass",
    "print('to stderr', file=sys.stderr)",
    "try:\n    {}['k']\nexcept KeyError as error:\n    raise ValueError('chained') from error",
    "class Odd(Exception):\n    def __str__(self): return 'odd'\nraise Odd",
    "undefined",
    "%%time_is_no_magic\n1",
    "?len",
    "import warnings\nwarnings.warn('careful')",
    "'still here'",
)


@pytest.fixture(autouse=True)
def quiet_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    # The stock kernel runs on this machine as it is; the sealed one has one thread.
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))


def notebook(*sources: str) -> nbformat.NotebookNode:
    made: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources],
        metadata={"language_info": {"name": "python"}},
    )
    return made


def outputs(kernel: str, sources: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    """What each cell left in the notebook, without what differs from process to process."""
    made = notebook(*sources)
    NotebookClient(made, kernel_name=kernel, timeout=60, allow_errors=True).execute()
    return [[_plain(output) for output in cell.outputs] for cell in made.cells]


def _plain(output: Any) -> Any:
    match output:
        case str():
            text = re.sub(
                r"0x[0-9a-f]+", "0x", re.sub(r"/\S*/ipykernel_\d+/\d+.py", "CELL", output)
            )
            return text.replace(f"~{os.sep}", os.sep)
        case list():
            return [_plain(one) for one in output]
        case dict():
            return {key: _plain(one) for key, one in output.items()}
        case _:
            return output


@pytest.mark.parametrize(
    "sources",
    [MATHEMATICS, TABLES, ERRORS],
    ids=["mathematics", "tables", "errors"],
)
def test_it_shows_what_stock_shows(sources: tuple[str, ...]) -> None:
    stock, sealed = (outputs(kernel, sources) for kernel in KERNELS)
    for source, theirs, ours in zip(sources, stock, sealed, strict=True):
        assert ours == theirs, source


def test_a_cell_over_its_time_is_interrupted_and_the_next_ones_run() -> None:
    made = notebook("x = 1", "while True: pass", "x")
    client = NotebookClient(
        made, kernel_name="repl-rl", timeout=5, interrupt_on_timeout=True, allow_errors=True
    )
    client.execute()
    assert made.cells[1].outputs[0].ename == "KeyboardInterrupt"
    assert made.cells[2].outputs[0].data == {"text/plain": "1"}


def test_a_cell_over_its_time_may_end_it_all() -> None:
    made = notebook("while True: pass")
    with pytest.raises(CellTimeoutError):
        NotebookClient(made, kernel_name="repl-rl", timeout=5).execute()


def by_papermill(kernel: str, folder: Path) -> list[list[dict[str, Any]]]:
    """What each cell of a notebook with parameters left, one that failed at its end."""
    source, done = folder / f"{kernel}.ipynb", folder / f"{kernel}-done.ipynb"
    made = notebook("n = 1", "print(n)\nn * 7", "{'a': n}['b']")
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, source)
    with pytest.raises(papermill.PapermillExecutionError, match="KeyError: 'b'"):
        papermill.execute_notebook(
            source, done, parameters={"n": 6}, kernel_name=kernel, progress_bar=False
        )
    # One cell says that it failed, one more holds the parameters.
    left = nbformat.read(done, as_version=4).cells
    return [[_plain(output) for output in cell.get("outputs", [])] for cell in left]


def test_papermill_passes_parameters_and_says_what_failed(tmp_path: Path) -> None:
    stock, sealed = (by_papermill(kernel, tmp_path) for kernel in KERNELS)
    results = [one["data"] for cell in sealed for one in cell if "data" in one]
    assert {"text/plain": "42"} in results
    assert sealed == stock


def test_nbclient_stops_at_the_cell_that_failed() -> None:
    with pytest.raises(CellExecutionError, match="NameError"):
        NotebookClient(notebook("y", "1"), kernel_name="repl-rl", timeout=30).execute()
