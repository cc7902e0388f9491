"""The kernel shows what `python -i` shows, character for character."""

import os
import re
import subprocess
import sys

import pytest

from sandbox.render import number_addresses
from sandbox.types import ExecStatus

pytestmark = pytest.mark.kernel

# One source per entry; each is one statement, so that one prompt follows it.
SESSION = (
    "x = 2",
    "x + 1",
    "_ * 2",
    "None",
    "'text'",
    "print('a', 'b', sep='-')",
    "import sys; print('err', file=sys.stderr)",
    "1; 2",
    "x = 3; x",
    "[i for i in range(3)]",
    "{'b': 1, 'a': 2}",
    "1.5e300 * 1e300",
    "10 ** 20",
    "'\\u00e9\\u4e2d'",
    "print('\u4e2d')",
    "\u03b1 = 1",
    "\u03b1",
    "for i in range(3): print(i)\n",
    "for i in range(2):\n    i\n",
    "if x:\n    print('yes')\nelse:\n    print('no')\n",
    "def f(n):\n    return 1 / n\n",
    "f(0)",
    "def g():\n    return f(0)\n",
    "g()",
    "class A:\n    def __repr__(self):\n        return 'A!'\n",
    "A()",
    "class B: pass\n",
    "B",
    "B().missing",
    "@staticmethod\ndef h():\n    return 5\n",
    "h()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print('caught', e)\n",
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k')\n",
    "raise ValueError('a') from TypeError('b')",
    "undefined_name",
    "1 +",
    "    y = 1",
    "x = = 2",
    "print 'old'",
    "return 1",
    "'unterminated",
    "def broken(:",
    "(1,\n 2)",
    "'''a\nb'''",
    "1 + \\\n2",
    "f'{x!r:>5}'",
    "lambda: 0",
    "raise KeyboardInterrupt",
    "raise BaseException('b')",
    "raise ExceptionGroup('g', [ValueError(1), TypeError('t')])",
    "assert x == 0, 'message'",
    "int('z')",
    "str(10 ** 5000)",
    "1 is 1",
    "exec('1/0')",
    "exec('1+')",
    "__name__",
    "while True:\n    break\n",
    "with open('/nonexistent') as f:\n    pass\n",
    "del x",
    "x",
    "object()",
    "_",
    "sys.displayhook",
    "x: int = 5",
    "__annotations__",
    "from __future__ import annotations",
    "print('no newline', end='')",
    "async def co():\n    pass\n",
    "await co()",
    "exit",
    "sorted(globals())[:3]",
)
PS1, PS2 = "\x01", "\x02"


def real_outputs(*sources: str) -> list[str]:
    typed = f"import sys; sys.ps1, sys.ps2 = {PS1!r}, {PS2!r}; del sys\n"
    typed += "".join(source + "\n" for source in sources)
    shown = subprocess.run(
        [sys.executable, "-i", "-q", "-u"],
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env=dict(os.environ, PYTHONHASHSEED="0", LANG="C.UTF-8"),
        check=False,
    ).stdout
    outputs = shown.replace(PS2, "").split(PS1)[1 : len(sources) + 1]
    ordinals: dict[str, str] = {}
    return [number_addresses(output, ordinals) for output in outputs]


def test_outputs_are_those_of_python_dash_i(run_all):
    expected = real_outputs(*SESSION)
    shown = [execution.output for execution in run_all(*SESSION)]
    expected = [text if text.endswith("\n") or not text else text + "\n" for text in expected]
    for source, theirs, ours in zip(SESSION, expected, shown, strict=True):
        assert (source, ours) == (source, theirs)


def test_input_meets_the_end_of_the_file(run_all):
    (expected,) = real_outputs("input()")
    (execution,) = run_all("input()")
    assert execution.output == expected


@pytest.mark.parametrize("source", ["exit()", "import sys; sys.exit(1)", "raise SystemExit"])
def test_an_exit_is_an_error_and_the_kernel_stays(run_all, source):
    first, second = run_all(source, "1 + 1")
    assert (first.status, first.error_type) == (ExecStatus.ERROR, "SystemExit")
    assert second.output == "2\n"


INCOMPLETE = (
    "for i in range(3): print(i)",
    "if x:",
    "if x:\n    y = 1",
    "(1,",
    "'''a",
    "1 + \\",
    "@decorator",
    "def f():\n    # comment",
    "try:\n    pass\nexcept E: pass",
)


def test_an_unfinished_statement_is_incomplete(run_all):
    statuses = {execution.status for execution in run_all(*INCOMPLETE)}
    assert statuses == {ExecStatus.INCOMPLETE}


def test_nothing_of_an_incomplete_source_runs_and_nothing_is_kept(run_all):
    _, incomplete, after = run_all("n = 0", "n += 1\nprint(n)\nif n:", "n")
    assert (incomplete.status, incomplete.output) == (ExecStatus.INCOMPLETE, "")
    assert after.output == "0\n"


def test_an_incomplete_future_import_changes_nothing(run_all):
    outputs = run_all(
        "from __future__ import annotations\nif 1:",
        "def f(a: missing): pass\n",
    )
    assert outputs[1].error_type == "NameError"


def test_statements_of_one_source_run_once_and_in_order_past_an_error(run_all):
    (execution,) = run_all("a = 1\nprint(a)\n1/0\nb\nprint(a + 1)")
    assert execution.error_type == "ZeroDivisionError"
    assert re.findall(r"^(?:\d|\w+Error)", execution.output, re.M) == [
        "1",
        "ZeroDivisionError",
        "NameError",
        "2",
    ]


@pytest.mark.parametrize("source", ["(\n" * 70, "x = (" + "1 + " * 1200])
def test_a_source_over_the_cap_is_run_as_it_is(run_all, source):
    (execution,) = run_all(source)
    assert (execution.status, execution.error_type) == (ExecStatus.ERROR, "SyntaxError")


def test_comments_and_blank_lines_are_silent(run_all):
    for execution in run_all("", "# comment", "\n\n", "   # indented"):
        assert (execution.status, execution.output) == (ExecStatus.OK, "")


def test_sources_that_cannot_be_text_are_syntax_errors_or_value_errors(run_all):
    for execution in run_all("x = '\0'", "x = '\ud800'", "(" * 3000 + ")" * 3000):
        assert execution.status is ExecStatus.ERROR


def test_evaluate_hands_over_the_repr(with_kernel):
    async def use(kernel):
        await kernel.run("x = 3")
        return await kernel.evaluate(" [x, 'a']"), await kernel.evaluate("x +")

    good, bad = with_kernel(use)
    assert (good.status, good.value, good.output) == (ExecStatus.OK, "[3, 'a']", "")
    assert (bad.status, bad.value, bad.error_type) == (ExecStatus.ERROR, None, "SyntaxError")


def test_evaluate_refuses_a_value_that_is_too_long(with_kernel):
    execution = with_kernel(lambda kernel: kernel.evaluate("'a' * 5000"))
    assert (execution.value, execution.error_type) == (None, "OutputLimit")


def test_a_value_is_rendered_as_output_is(with_kernel):
    """A repr is what a class of the policy says: it must fit into a file and on a screen."""

    async def use(kernel):
        await kernel.run(
            "class A:\n    def __repr__(self): return chr(0xd800) + chr(27) + '[31mx'\n"
        )
        return await kernel.evaluate("A()")

    execution = with_kernel(use)
    assert (execution.status, execution.value) == (ExecStatus.OK, "\ufffdx")
