"""The attack table of the IPython kernel: what is there beside a REPL, and how it must end.

Data alone. `cell_lab` runs it, `test_sealing` asserts each row.
"""

from __future__ import annotations

from attacks import DENIED, HIDDEN, OVER, Attack

TRIES = """
import os, socket, subprocess, threading

def tries():
    return {{name for name, do in WAYS.items() if not refused(do)}}

def refused(do):
    try:
        do()
    except (OSError, RuntimeError):
        return True

WAYS = {{
    'read': lambda: open({decoy!r}),
    'write': lambda: open({decoy!r}, 'a'),
    'fork': os.fork,
    'run': lambda: subprocess.run(['true']),
    'connect': socket.socket,
    'kill': lambda: os.kill({victim}, 9),
    'thread': threading.Thread(target=int).start,
}}
"""
"""`tries()` is the set of ways out that are open to who calls it."""
KERNEL = "import zmq; kernel = get_ipython().kernel; new = kernel.shell_stream.context.socket"
FORGE = """
forged = dict(code="state = 'harmed'", silent=False, user_expressions={{}}, allow_stdin=False)
_ = kernel.session.send(back, 'execute_request', forged)
"""
SHOWN = ("error:OSError", *DENIED)
BROKEN = ("ok", "timeout", "error:AttributeError", *OVER)
"""What breaks a kernel's own Python may leave it well, silent or dead."""


def magic(line: str, *ends: str) -> Attack:
    return Attack(line.partition("\n")[0], ("x = 1", line), ends)


def broken(name: str, line: str) -> Attack:
    return Attack(name, (f"{line}\ndisplay(1)",), BROKEN)


CELL_ATTACKS = (
    # Code that runs beside cells, between them or at the end
    Attack("the thread that sends",
           (TRIES, "class Own:\n    def flush(self): ways.append((threading.current_thread().name,"
            " tries()))\nways = []", "import time; kernel = get_ipython().kernel\n"
            "kernel.printed.put(Own()); time.sleep(1); ways"), ("ok",), "[('IOPub', set())]\n"),
    Attack("the thread that sends, between cells",
           (TRIES, "import time\nclass Own:\n    def flush(self): time.sleep(0.3);"
            " ways.append(tries())\nways = []", "get_ipython().kernel.printed.put(Own())",
            "time.sleep(1); ways"), ("ok",), "[set()]\n"),
    Attack("the thread that sends, without end",
           ("class Own:\n    def flush(self):\n        while True: pass",
            "get_ipython().kernel.printed.put(Own())", "print('on')"), ("ok",), "on\n"),
    Attack("a comm that is called after its cell",
           (TRIES, "import comm; ways = []; own = comm.create_comm(target_name='t')\n"
            "own.on_msg(lambda _: ways.append(tries()))", "ways"), ("ok",), "[set()]\n"),
    Attack("a loop in a comm", ("import comm; own = comm.create_comm(target_name='t')\n"
           "def loop(_):\n    while True: pass\nown.on_msg(loop)", "1"), BROKEN),
    Attack("a callback of IPython's",
           (TRIES, "ways = []; get_ipython().events.register("
            "'post_run_cell', lambda result: ways.append(tries()))", "ways"), ("ok",), "[set()]\n"),
    Attack("the end of the process",
           ("import atexit; _ = atexit.register(lambda: open({decoy!r}, 'w'))",
            "get_ipython().kernel.is_stopped = True"), BROKEN),
    Attack("an interrupt ignored by hooks",
           ("import signal; kernel = get_ipython().kernel\nkernel.pre_handler_hook = lambda:"
            " signal.signal(signal.SIGINT, signal.SIG_IGN)", "while True: pass"), ("killed",)),
    # Its own parts, replaced
    broken("a session of its own", "get_ipython().kernel.session = None"),
    broken("a socket of its own", "get_ipython().kernel.iopub_socket = None"),
    broken("a display of its own", "get_ipython().display_pub = None"),
    broken("a turn that nobody gets", "kernel = get_ipython().kernel\nimport threading\n"
           "kernel.turn = threading.Semaphore(0)"),
    broken("handlers of its own", "get_ipython().kernel.shell_handlers.clear()"),
    broken("garbage on all its sockets", "import os\nfor fd in range(3, 64):\n"
           "    try: os.write(fd, bytes(64))\n    except OSError: pass"),
    # Magics
    magic("%history -f {decoy}", *HIDDEN),
    magic("%save -f {decoy} 1", *HIDDEN),
    Attack("%store x > {decoy}", ("x = 1\n%load_ext storemagic", "%store x > {decoy}"), HIDDEN),
    Attack("%store x", ("x = 1\n%load_ext storemagic", "%store x"), DENIED),
    magic("%run {decoy}", "ok", "error:Exception", *HIDDEN),
    magic("%load {decoy}", "error:ValueError", *HIDDEN),
    magic("%prun -D {decoy} x", *HIDDEN),
    magic("%%writefile {decoy}\nx", *HIDDEN),
    magic("%logstart {decoy} append", "ok"),
    magic("%load_ext {decoy}", "error:ModuleNotFoundError"),
    magic("%%script python\n1", "error:RuntimeError"),
    magic("%%bash --bg\ntrue", "error:RuntimeError"),
    magic("%pip --version", *SHOWN),
    magic("%sx true", *DENIED),
    magic("!true", *SHOWN),
    magic("get_ipython().system('true')", *SHOWN),
    magic("get_ipython().getoutput('true')", *DENIED),
    # Files that IPython and matplotlib have
    Attack("list the profile", ("import os", "os.listdir(get_ipython().profile_dir.location)"),
           DENIED),
    Attack("write to the profile", ("place = get_ipython().profile_dir.startup_dir",
           "open(place + '/x.py', 'w')"), DENIED),
    Attack("write where fonts are listed", ("import os", "open({folder!r} + '/matplotlib/x', 'w')"),
           HIDDEN),
    Attack("a history in a file", ("from IPython.core.history import HistoryManager",
           "HistoryManager(shell=get_ipython(), hist_file={decoy!r})"),
           ("error:AttributeError", "error:OperationalError", *HIDDEN)),
    Attack("attach a file to its history", ("past = get_ipython().history_manager.db",
           "past.execute('attach database ? as d', ({decoy!r},))"), ("error:OperationalError",)),
    # Processes and the network by way of asyncio, zmq and the debugger
    Attack("a process of asyncio's",
           ("import asyncio", "await asyncio.create_subprocess_exec('true')"), DENIED),
    Attack("a thread of asyncio's", ("import asyncio", "await asyncio.to_thread(int)"),
           ("error:RuntimeError",)),
    Attack("a connection of asyncio's",
           ("import asyncio", "await asyncio.open_unix_connection({door!r})"), DENIED),
    Attack("zmq of its own", ("import zmq", "zmq.Context().socket(zmq.DEALER)"), OVER),
    Attack("forge a message to the victim",
           (KERNEL, "back = new(zmq.DEALER); _ = back.connect('ipc://' + {door!r})", FORGE,
            "back.poll(1000)"), ("ok",), "0\n"),
    Attack("connect from zmq's thread",
           (KERNEL, "back = new(zmq.REQ); _ = back.connect('tcp://127.0.0.1:{port}'); "
            "back.send(b'x')", "back.poll(1000)"), ("ok",), "0\n"),
    Attack("listen in zmq's thread",
           (KERNEL, "back = new(zmq.ROUTER)", "back.bind('ipc://' + {folder!r} + '/x')"),
           ("error:ZMQError",)),
    Attack("listen for a debugger", ("import debugpy", "debugpy.listen(0)"),
           ("error:RuntimeError", *DENIED)),
    Attack("a shell beside its own", ("from ipykernel.thread import BaseThread",
           "BaseThread(name='s').start()"), ("error:RuntimeError",)),
    # What it shows
    Attack("a huge display", ("display({{'text/plain': 'x' * (1 << 30)}}, raw=True)",),
           ("error:MemoryError",)),
    Attack("many big displays", ("for _ in range(50): display({{'text/plain': 'x' * (8 << 20)}},"
           " raw=True)",), (*BROKEN, "error:MemoryError")),
)  # fmt: skip
