"""No short line makes the errors of the lines after it look like successes.

A line bends what it can name. The lines after it fail: the kernel must report that, or end.
"""

import pytest

from kernel_uses import RunAll
from repl_sandbox.types import ExecStatus

pytestmark = pytest.mark.kernel

CAUGHT = {ExecStatus.ERROR, ExecStatus.DIED, ExecStatus.KILLED}
# Modules of the library that all lines share with what answers for them.
SHARED = {
    "the encoder of json": (
        "import json; json.JSONEncoder.iterencode = (lambda o: lambda s, d, _one_shot=False: "
        "o(s, {'status': 'ok', 'payload': [{**d['payload'][0], 'status': 'ok', "
        "'error_type': None}]} if 'payload' in d else d, _one_shot))(json.JSONEncoder.iterencode)"
    ),
    "all of json": (
        "import json, json.encoder, json.decoder\n"
        "json.dumps = json.encoder.encode_basestring_ascii = lambda *a, **k: 'null'\n"
        "json.JSONEncoder.encode = lambda self, o: '{}'\n"
        "json.encoder.c_make_encoder = json.decoder.scanstring = None\n"
        "json.JSONDecoder.raw_decode = lambda self, s, idx=0: ({}, len(s))\n"
    ),
    "what the decoder makes of a source": (
        "import json; json.JSONDecoder.raw_decode = lambda self, s, idx=0: "
        "({'msg_type': 'execute_request', 'code': '1', 'silent': True}, len(s))"
    ),
    "a copy of a dataclass": (
        "import dataclasses; dataclasses.replace.__code__ = "
        "(lambda obj, /, **changes: type(obj)(head=changes['head'])).__code__"
    ),
    "regular expressions": (
        "import re; re.sub = re.compile = re.match = lambda *a: 1 / 0\n"
        "re._compile = re.template = None\n"
    ),
    "builtins, while a traceback is made": (
        "class E(Exception):\n"
        "    def __str__(self):\n"
        "        import builtins\n"
        "        builtins.type = builtins.isinstance = builtins.str = lambda *a: None\n"
        "        builtins.exec = builtins.len = lambda *a: None\n"
        "        return ''\n\n"
    ),
    "builtins, while memory is tidied": (
        "import builtins, gc; gc.set_threshold(1)\n"
        "gc.callbacks.append(lambda *a: setattr(builtins, 'exec', lambda *a: None))\n"
        "gc.callbacks.append(lambda *a: setattr(builtins, 'compile', lambda *a, **k: eval))\n"
    ),
    "builtins, while the last error dies": (
        "class E(Exception):\n"
        "    def __del__(self): __import__('builtins').exec = lambda *a: None\n\n"
    ),
    "the streams": (
        "import io, sys; sys.stdout.buffer.raw.write = lambda b: len(b)\n"
        "sys.stderr.flush = sys.stdout.flush = lambda: None\n"
    ),
    "the hooks that show an error": (
        "import sys, traceback\n"
        "sys.excepthook = sys.__excepthook__ = lambda *a: None\n"
        "traceback.print_exception = traceback.format_exception = None\n"
        "traceback.TracebackException = traceback._print_exception_bltin = lambda *a, **k: 1 / 0\n"
    ),
    "what a context manager swallows": (
        "import contextlib; contextlib.suppress.__exit__ = lambda *a: True\n"
        "contextlib._GeneratorContextManager.__exit__ = lambda self, *a: True\n"
    ),
    "signals": (
        "import _signal\n_signal.signal = _signal.pthread_sigmask = lambda *a: None\n"
        "_signal.setitimer = lambda *a: None\n"
    ),
    "sockets": (
        "import socket, struct, hmac\n"
        "socket.socket.sendall = socket.socket.send = lambda self, data, *a: None\n"
        "socket.socket.recv = lambda *a: b''\n"
        "struct.pack = struct.Struct = hmac.new = hmac.HMAC.digest = None\n"
    ),
    "time": "import time, datetime, uuid; time.time = uuid.uuid4 = datetime.datetime = None",
}
# The names of what answers, found from a line in a way that needs no luck.
OWN = {
    "modules by name": (
        "import sys\n"
        "for m in list(sys.modules):\n"
        "    if 'repl_sandbox' in m: sys.modules[m].Repl._failed = lambda self, e: 1 / 0\n\n"
    ),
    "a class among all classes": (
        "for c in object.__subclasses__():\n"
        "    if c.__name__ == 'Repl':\n"
        "        c._execute = lambda self, statement: None\n"
        "        c._failed = lambda self, e: self._evaluate('1')\n\n"
    ),
    "a kernel among the kernels": (
        "import ipykernel.kernelbase as k\n"
        "for c in k.Kernel.__subclasses__(): c._answer = c.serve = c.repl = None\n\n"
    ),
    "a method of the frame below": (
        "import sys; type(sys._getframe(1).f_locals['self'])._failed = "
        "lambda self, e: self._evaluate('1')"
    ),
    "the object of the frame below": (
        "import sys; sys._getframe(1).f_locals['self']._failed = lambda e: None"
    ),
    "the class of the object below": (
        "import sys; r = sys._getframe(1).f_locals['self']\n"
        "class Mine(type(r)):\n    __slots__ = ()\n    def _execute(self, statement): pass\n\n"
        "r.__class__ = Mine\n"
    ),
    "a name of the frame below": (
        "import sys; sys._getframe(1).f_globals['exec'] = lambda *a: None"
    ),
    "a table of the frame below": (
        "import sys; sys._getframe(1).f_globals['ORIGINAL_BUILTINS']['exec'] = lambda *a: None"
    ),
    "the code of a function": (
        "import gc; gc.unfreeze()\n"
        "for o in gc.get_objects():\n"
        "    if getattr(o, '__qualname__', '') == 'Repl._execute' and hasattr(o, '__code__'):\n"
        "        o.__code__ = (lambda self, statement: None).__code__\n\n"
    ),
    "the local names of the generator that answers": (
        "import ctypes, sys\n"
        'def ok(answer, _): return (f\'[{answer[0]},"ok","","",0,null,null]\',)\n\n'
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    known = frame.f_locals\n"
        "    known |= {name: ok for name in ('encode', 'ENCODE') if name in known}\n"
        "    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 0)\n"
        "    frame = frame.f_back\n\n"
    ),
    "the constants of the generator that answers": (
        "import gc; gc.unfreeze()\n"
        "for o in gc.get_objects():\n"
        "    if type(o).__name__ == 'function' and o.__name__ in ('_loop', '_answer'):\n"
        "        o.__code__ = (lambda *given: ('ok', '', '', 0, None, None)).__code__\n"
        "\n"
    ),
    "the names of the module that lines are": (
        "import __main__\n"
        "class Names(dict):\n"
        "    def __missing__(self, name): return 0\n\n"
        "class Main(type(__main__)):\n"
        "    __dict__ = property(lambda self: NAMES)\n\n"
        "NAMES = Names(globals())\n"
        "__main__.__class__ = Main\n"
        "E = KeyError\n"
    ),
    "the builtins of the module that lines are": (
        "class Names(dict):\n"
        "    def __missing__(self, name): return 0\n\n"
        "__builtins__ = Names(vars(__builtins__))\n"
        "E = KeyError\n"
    ),
    "an audit hook": (
        "import sys\n"
        "def trace(frame, event, given): return trace\n\n"
        "def hook(event, given):\n"
        "    if event == 'exec': raise RuntimeError('not run')\n\n"
        "sys.addaudithook(hook)\n"
    ),
    "a trace function that is set while a traceback is made": (
        "import io, sys\n"
        "def trace(frame, event, given):\n"
        "    known = frame.f_locals\n"
        "    if 'run' in frame.f_code.co_name: known |= {'failed': OK, 'answer': OK}\n"
        "    return trace\n\n"
        "class Ok:\n"
        "    status, error_type, head, tail, num_omitted, value = 'ok', None, '', '', 0, None\n\n"
        "OK = Ok()\n"
        "def spy(*given, **named):\n"
        "    frame = sys._getframe(1)\n"
        "    while frame: frame.f_trace, frame = trace, frame.f_back\n"
        "    sys.settrace(trace)\n"
        "    raise OSError\n\n"
        "io.open = spy\n"
        "import traceback; traceback._print_exception_bltin = spy\n"
        "E = KeyError\n"
    ),
    "a trace function that is set while builtins are put back": (
        "import builtins, sys\n"
        "def trace(frame, event, given):\n"
        "    known = frame.f_locals\n"
        "    if 'run' in frame.f_code.co_name: known |= {'error': None}\n"
        "    return trace\n\n"
        "class Planted:\n"
        "    def __del__(self):\n"
        "        frame = sys._getframe(1)\n"
        "        while frame: frame.f_trace, frame = trace, frame.f_back\n"
        "        builtins.len = Planted()\n"
        "        sys.settrace(trace)\n\n"
        "builtins.len = Planted()\n"
    ),
    "what compiles a line": (
        "import sys; r = sys._getframe(1).f_locals['self']\n"
        "r._compiler = type('C', (), {'statements': lambda *a: []})()\n"
    ),
    "a timer of its own": (
        "import builtins, signal\n"
        "signal.signal(signal.SIGPROF, lambda *a: setattr(builtins, 'exec', lambda *a: None))\n"
        "signal.setitimer(signal.ITIMER_PROF, 1e-4, 1e-4)\n"
    ),
}
ERRORS = (
    *("1 / 0", "raise E", "undefined", "int('x')", "raise MemoryError"),
    "__import__('statistics').mean([])",
)


@pytest.mark.parametrize("bent", [*SHARED, *OWN])
def test_an_error_stays_an_error_whatever_was_bent_before(run_all: RunAll, bent: str) -> None:
    _, *failed = run_all(SHARED.get(bent) or OWN[bent], "E", *ERRORS)
    assert {each.status for each in failed[1:]} <= CAUGHT, [each.status for each in failed]


@pytest.mark.parametrize("bent", SHARED)
def test_what_is_bent_in_the_library_ends_no_kernel(run_all: RunAll, bent: str) -> None:
    *_, after = run_all(SHARED[bent], *ERRORS, "6 * 7")
    assert after.status is ExecStatus.OK


@pytest.mark.parametrize(
    "line",
    [
        "import warnings; warnings.warn('mine', stacklevel=2)",
        "import warnings; warnings.warn('mine', stacklevel=5)",
        "globals().clear()",
        "import builtins; del builtins.len",
        "import gc; gc.unfreeze()",
        "import sys; sys.setrecursionlimit(200)",
        "import sys; sys.stdout = open('/dev/null')",
        "import builtins; builtins.mine = 5",
        "import unittest.mock as m; m.patch('builtins.exec').start(); 1",
    ],
)
def test_what_lines_commonly_do_is_no_forgery(run_all: RunAll, line: str) -> None:
    *_, after = run_all(line, "1 + 1", "6 * 7")
    assert after.output == "42\n"
