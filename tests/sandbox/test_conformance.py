"""Jupyter's own conformance suite, on the kernelspec `repl-rl`, by provisioner and by `argv`."""

import tempfile
from pathlib import Path

import jupyter_kernel_test
import pytest

from jupyter_kernels import use_plain_specs

pytestmark = pytest.mark.kernel


class Conformance(jupyter_kernel_test.KernelTests):  # type: ignore[misc]  # untyped
    """What a Python kernel is to be tried with."""

    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = ({"text": "zi", "matches": {"zip"}},)
    complete_code_samples = (
        "1",
        "print('a')",
        "def f():\n  return 1\n\n",
    )
    incomplete_code_samples = (
        "print('''a",
        "def f():\n  x = 1",
    )
    invalid_code_samples = (
        "import = 7",
        "a b",
    )
    code_page_something = "zip?"
    code_generate_error = "raise ValueError"
    code_execute_result = ({"code": "1+2+3", "result": "6"},)
    code_display_data = (
        {"code": "from IPython.display import HTML, display; display(HTML('<b>a</b>'))",
         "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('x'))",
         "mime": "text/latex"},
    )  # fmt: skip
    code_history_pattern = "1?2*"
    # As in the suite's own test of ipykernel: IPython calls the session of a range 0.
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


class TestByProvisioner(Conformance):
    kernel_name = "repl-rl"


class TestByCommand(Conformance):
    kernel_name = "repl-rl-plain"

    @classmethod
    def setUpClass(cls) -> None:
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        use_plain_specs(Path(folder), cls.enterClassContext(pytest.MonkeyPatch.context()))
        super().setUpClass()


del Conformance
