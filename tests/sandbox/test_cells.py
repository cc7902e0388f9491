"""The kernelspec `repl-rl`: IPython's cells behind the walls, as a stock client sees them."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager

from jupyter_kernels import TIMEOUT_S, Session, session

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One for all tests of this file: none looks at what another has left."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name))
        with session("repl-rl") as made:
            yield made


def test_both_kernelspecs_are_installed_with_the_package() -> None:
    for name in ("repl-rl", "repl-rl-lines"):
        spec = KernelSpecManager().get_kernel_spec(name)
        assert spec.metadata["kernel_provisioner"]["provisioner_name"] == "repl-rl-provisioner"
        assert Path(spec.resource_dir).is_relative_to(sys.prefix)


def test_a_cell_is_one_program(kernel: Session) -> None:
    shown = kernel.cell("def f(a):\n    return a\nf(3)")
    assert shown.kinds == ["execute_result"]
    assert shown.data() == {"text/plain": "3"}
    source = "class A:\n    def m(self): return 1\n\n    def n(self): return 2\n\nA().n()"
    assert kernel.cell(source).data() == {"text/plain": "2"}


def test_a_cell_ends_at_its_first_error_and_says_it_once(kernel: Session) -> None:
    shown = kernel.cell("{'a': 1}['b']\nprint('went on')")
    ((kind, error),) = shown.outputs
    assert kind == "error"
    assert (error["ename"], error["evalue"]) == ("KeyError", "'b'")
    assert any("went on" in part for part in error["traceback"])  # the source is shown
    assert shown.reply["ename"] == "KeyError"


def test_streams_are_told_apart(kernel: Session) -> None:
    shown = kernel.cell("import sys; print('out'); print('err', file=sys.stderr)")
    assert (shown.text(), shown.text("stderr")) == ("out\n", "err\n")


@pytest.mark.parametrize("how", ["print('begun')", "print('begun', end='')", "print('a\\nbegun')"])
def test_what_is_printed_arrives_while_the_cell_runs(kernel: Session, how: str) -> None:
    asked = kernel.client.execute(f"x = 5\n{how}\nwhile True: pass")
    assert "begun" in kernel.until("stream")["text"]
    kernel.manager.interrupt_kernel()
    assert kernel.until("error")["ename"] == "KeyboardInterrupt"
    assert kernel.reply(asked)["ename"] == "KeyboardInterrupt"
    assert kernel.cell("x").data() == {"text/plain": "5"}


def test_a_flood_arrives_whole_and_in_order(kernel: Session) -> None:
    shown = kernel.cell("for i in range(20_000): print(i)")
    assert shown.text() == "".join(f"{i}\n" for i in range(20_000))
    assert len(shown.outputs) < 2_000
    shown = kernel.cell("for i in range(3_000): print(i, flush=True)")
    assert shown.text() == "".join(f"{i}\n" for i in range(3_000))


def test_what_is_written_past_the_streams_is_shown(kernel: Session) -> None:
    shown = kernel.cell("import os; print('a'); os.write(1, b'1\\n'); print('b'); 1 / 0")
    assert shown.text() == "a\n1\nb\n"


def test_a_silent_cell_says_nothing_and_ends(kernel: Session) -> None:
    assert kernel.cell("1 + 1", silent=True).outputs == []
    assert kernel.cell("print('b')", store_history=False).text() == "b\n"


def test_cells_that_wait_are_dropped_after_an_error(kernel: Session) -> None:
    codes = ("import time; time.sleep(2); 1/0", "print('ran')")
    asked = [kernel.client.execute(code) for code in codes]
    statuses = [kernel.reply(one)["status"] for one in asked]
    assert statuses == ["error", "aborted"]
    assert kernel.cell("'and then'").data() == {"text/plain": "'and then'"}


def test_mathematics_is_typeset(kernel: Session) -> None:
    data = kernel.cell("from sympy import *; Symbol('x')**2 / 2").data()
    assert data["text/plain"] == "x**2/2"
    assert data["text/latex"] == r"$\displaystyle \frac{x^{2}}{2}$"


def test_a_figure_reaches_the_notebook(kernel: Session) -> None:
    source = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);"
    shown = kernel.cell(source)
    assert shown.kinds == ["display_data"]
    assert set(shown.data()) == {"text/plain", "image/png"}
    again = kernel.cell("%matplotlib inline\nplt.figure().add_subplot(projection='3d')\nplt.show()")
    assert "image/png" in again.data()
    window = kernel.cell("%matplotlib qt")
    assert window.kinds == ["error"]


def test_a_table_is_html(kernel: Session) -> None:
    data = kernel.cell("import pandas as pd; pd.DataFrame({'a': [1, 2]})").data()
    assert "<table" in data["text/html"]


def test_scipy_is_there_where_it_is_installed(kernel: Session) -> None:
    pytest.importorskip("scipy")
    solved = kernel.cell("from scipy.linalg import solve; solve([[2, 0], [0, 4]], [2, 2]).tolist()")
    assert solved.data() == {"text/plain": "[1.0, 0.5]"}
    found = kernel.cell(
        "from scipy.optimize import brentq; round(brentq(lambda x: x - 3, 0, 9), 6)"
    )
    assert found.data() == {"text/plain": "3.0"}


def test_a_display_can_be_changed(kernel: Session) -> None:
    shown = kernel.cell("h = display('one', display_id='d'); h.update('two')")
    assert shown.kinds == ["display_data", "update_display_data"]


def test_widgets_have_their_comms(kernel: Session) -> None:
    shown = kernel.cell("import comm; c = comm.create_comm(target_name='t', data={'n': 1})")
    assert shown.kinds == ["comm_open"]


def test_await_at_the_top_of_a_cell(kernel: Session) -> None:
    shown = kernel.cell(
        "import asyncio\nawait asyncio.sleep(0.01)\nasync def f(): return 7\nawait f()"
    )
    assert shown.data() == {"text/plain": "7"}


RUN = "import asyncio\nasync def f(): return 7\n"


@pytest.mark.parametrize(
    "cell",
    [
        RUN + "asyncio.run(f())",
        RUN + "asyncio.run(f()); asyncio.run(f())",
        RUN + "await f()",
        "import asyncio; asyncio.set_event_loop(None)",
        "import asyncio; asyncio.get_event_loop().close()",
        "import asyncio; l = asyncio.new_event_loop(); asyncio.set_event_loop(l); l.close()",
        "import asyncio; asyncio.set_event_loop('no loop')",
        RUN + "asyncio.new_event_loop().run_until_complete(f())",
        RUN + "with asyncio.Runner() as r: r.run(f())",
        RUN + "asyncio.run(asyncio.wait_for(asyncio.sleep(9), 0.01))",
        "import asyncio; asyncio.events._set_running_loop(asyncio.new_event_loop())",
        "import asyncio; asyncio.get_event_loop().is_running = lambda: True",
        "import asyncio\nclass P(asyncio.DefaultEventLoopPolicy):\n"
        "    def get_event_loop(self): raise SystemError('none')\n"
        "asyncio.set_event_loop_policy(P())",
        "import asyncio; asyncio.set_event_loop_policy(None)",
        "import warnings; warnings.simplefilter('error')",
        "%autoawait asyncio",
        "%autoawait False",
    ],
)
def test_a_cell_is_answered_whatever_the_one_before_has_left(cell: str) -> None:
    with session("repl-rl") as own:
        for _ in range(2):
            own.cell(cell)
            assert own.cell("x = 6 * 7; assert x == 42").reply["status"] == "ok"


@pytest.mark.parametrize("stream", ["5", "None"])
def test_cells_are_answered_also_where_nothing_can_be_printed(stream: str) -> None:
    with session("repl-rl") as own:
        own.cell(f"import sys; sys.stdout = sys.stderr = {stream}")
        assert own.cell("6 * 7").reply["status"] in ("ok", "error")
        assert own.reply(own.client.kernel_info())["status"] == "ok"


def test_asyncio_runs_in_cell_after_cell(kernel: Session) -> None:
    for _ in range(30):
        assert kernel.cell(RUN + "asyncio.run(f())").data() == {"text/plain": "7"}
        assert kernel.cell("await f()").data() == {"text/plain": "7"}


RAISING: dict[str, Callable[[BlockingKernelClient], str]] = {
    "execute": lambda client: client.execute("1"),
    "complete": lambda client: client.complete("le"),
    "inspect": lambda client: client.inspect("len"),
    "history": lambda client: client.history(hist_access_type="tail", n=1),
    "is_complete": lambda client: client.is_complete("x"),
}


@pytest.mark.parametrize("error", ["ValueError('why')", "SystemExit", "GeneratorExit", "E"])
def test_a_request_whose_handler_raises_is_answered_with_the_error(error: str) -> None:
    with session("repl-rl") as own:
        own.cell("class E(BaseException):\n    def __str__(self): raise E\n")
        own.cell(f"def fail(*given, **named): raise {error}")
        own.cell(f"for n in {list(RAISING)}: setattr(get_ipython().kernel, 'do_' + n, fail)")
        for ask in RAISING.values():
            asked = ask(own.client)
            content = own.reply(asked)
            assert (content["status"], content["ename"]) == ("error", error.partition("(")[0])
            while own.until("status")["execution_state"] != "idle":
                pass


def test_a_message_for_a_part_of_the_kernel_that_is_not_there_ends_in_idle(
    kernel: Session,
) -> None:
    message = kernel.client.session.msg("execute_request", {"code": "1"})
    message["header"]["subshell_id"] = "none"
    kernel.client.shell_channel.send(message)
    while kernel.until("status")["execution_state"] != "idle":
        pass
    assert kernel.cell("6 * 7").data() == {"text/plain": "42"}


def test_nobody_is_asked_for_input(kernel: Session) -> None:
    shown = kernel.cell("input('name? ')")
    assert shown.reply["ename"] == "StdinNotImplementedError"
    assert "sealed kernel" in shown.reply["evalue"]


def test_a_client_completes_inspects_and_looks_back(kernel: Session) -> None:
    client, reply = kernel.client, kernel.reply
    kernel.cell("a_long_name = 41")
    assert reply(client.complete("a_lon"))["matches"] == ["a_long_name"]
    assert reply(client.inspect("len"))["found"] is True
    past = reply(client.history(hist_access_type="tail", n=1))["history"]
    assert isinstance(past, list)
    assert past[-1][2] == "a_long_name = 41"
    is_complete = reply(client.is_complete("for i in x:"))
    assert is_complete == {"status": "incomplete", "indent": "    "}
    assert reply(client.is_complete("import = 7"))["status"] == "invalid"


def test_it_says_what_it_is(kernel: Session) -> None:
    content = kernel.reply(kernel.client.kernel_info())
    assert content["implementation"] == "repl-rl"
    assert "sealed" in content["banner"]
    assert content["supported_features"] == []
    assert content["language_info"]["name"] == "python"
    json.dumps(content)


@pytest.mark.parametrize("asked", ["usage", "interrupt"])
def test_requests_on_the_control_channel_are_answered(kernel: Session, asked: str) -> None:
    channel = kernel.client.control_channel
    channel.send(kernel.client.session.msg(f"{asked}_request", {}))
    reply = channel.get_msg(timeout=TIMEOUT_S)
    assert reply["msg_type"] == f"{asked}_reply"
    assert reply["content"].get("status") != "error"


def test_two_kernels_draw_different_numbers(kernel: Session) -> None:
    source = "import random; random.random()"
    with session("repl-rl") as other:
        assert other.cell(source).data() != kernel.cell(source).data()


def test_a_lone_surrogate_stops_no_stream(kernel: Session) -> None:
    kernel.cell("import time; print('\\ud800'); time.sleep(0.5)")
    asked = kernel.client.execute("print('begun')\nwhile True: pass")
    while "begun" not in kernel.until("stream")["text"]:
        pass
    kernel.manager.interrupt_kernel()
    kernel.reply(asked)


def test_a_restart_forgets(kernel: Session) -> None:
    with session("repl-rl") as own:
        own.cell("x = 5")
        own.manager.restart_kernel(now=True)
        own.client.wait_for_ready(timeout=TIMEOUT_S)
        assert own.cell("x").reply["ename"] == "NameError"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("!ls", "OSError"),
        ("%%bash\nls", "RuntimeError"),
        ("%%writefile x\nhello", "PermissionError"),
        ("open('/proc/self/environ')", "PermissionError"),
        ("import subprocess; subprocess.run(['true'])", "PermissionError"),
        ("import socket; socket.socket()", "PermissionError"),
        ("import threading; threading.Thread(target=print).start()", "RuntimeError"),
        ("import repl_sandbox", "ModuleNotFoundError"),
    ],
)
def test_a_wall_is_an_error_of_the_cell(kernel: Session, cell: str, error: str) -> None:
    assert kernel.cell(cell).reply.get("ename") == error
