"""What answers differently from run to run: the clock, chance, the process, the system.

Knows Python's names. Does not know what a line binds or calls: `volatile` follows that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

CLOCK = "reads the clock"
CHANCE = "draws unseeded randomness"
PLACE = "shows where things lie in memory"
USAGE = "counts what its process uses"
SYSTEM = "asks the system"
THREADS = "depends on the timing of threads"
COMPUTED = "runs code that is not known beforehand"
UNREAD = "is too long to be read"


_NAMED: Mapping[str, Mapping[str, str]] = {
    CLOCK: {
        "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time "
        "process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns ctime gmtime "
        "localtime asctime strftime",
        "datetime.datetime": "now utcnow today",
        "datetime.date": "today",
        "timeit": "timeit repeat default_timer Timer",
        "os": "times",
        "cProfile": "run runctx Profile",
        "sympy": "timed",
    },
    CHANCE: {
        "secrets": "choice randbelow randbits token_bytes token_hex token_urlsafe SystemRandom",
        "uuid": "uuid1 uuid4 getnode",
        "os": "urandom getrandom",
        "random": "SystemRandom Random seed",
        "tempfile": "mktemp mkstemp mkdtemp NamedTemporaryFile TemporaryDirectory",
        "sympy": "randMatrix",
        "sympy.core.random": "seed",
    },
    PLACE: {"builtins": "id"},
    USAGE: {
        "sys": "getrefcount getallocatedblocks",
        "gc": "collect get_count get_stats get_objects get_referrers",
        "resource": "getrusage",
        "tracemalloc": "get_traced_memory take_snapshot get_tracemalloc_memory",
        "psutil": "Process cpu_percent cpu_times virtual_memory pids",
    },
    SYSTEM: {
        "os": "getpid getppid getloadavg cpu_count sched_getaffinity uname stat listdir scandir",
        "platform": "node platform processor release uname version",
        "threading": "get_ident get_native_id",
    },
    THREADS: {
        "threading": "Thread Timer",
        "concurrent.futures": "ThreadPoolExecutor ProcessPoolExecutor",
        "signal": "alarm setitimer",
    },
}
SOURCES = {
    f"{module}.{name}": why
    for why, modules in _NAMED.items()
    for module, names in modules.items()
    for name in names.split()
}
_DRAWN = "choice choices gauss getrandbits randint random randrange sample shuffle uniform"
_DRAWS = tuple(f"random.{name}" for name in _DRAWN.split())
GENERATORS = {"random.seed": "random.", "sympy.core.random.seed": "sympy.core.random."}
"""What seeds a generator, and the prefix of the names that draw from it."""
SETTLED_BY: Mapping[str, tuple[int, str]] = {
    "time.ctime": (1, ""),
    "time.gmtime": (1, ""),
    "time.localtime": (1, ""),
    "time.asctime": (1, ""),
    "time.strftime": (2, ""),
    "random.Random": (1, "x"),
    "random.seed": (1, "a"),
    "sympy.core.random.seed": (1, "a"),
    "sympy.randMatrix": (5, "seed prng"),
}
"""Which argument, by place or by keyword, makes a call the same each time."""

# `os` and `random` are no hint: most of what they hold is the same each time.
MODULES = frozenset(path.rpartition(".")[0] for path in SOURCES) - {
    *("builtins", "sys", "random", "sympy", "sympy.core.random")
}
MARKERS = frozenset(module.partition(".")[0] for module in MODULES) - {"os", "signal"}

_MATERIAL = re.compile(r"/proc\b|/sys/|/dev/u?random")
WORD = re.compile(r"[^\W\d]\w*")


def imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(name, what it means); `*` brings the names that matter here."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            head = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (head, head)
        elif alias.name != "*":
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        else:
            prefix = f"{node.module}."
            found = (path for path in (*SOURCES, *_DRAWS) if path.startswith(prefix))
            for name in {path.removeprefix(prefix).partition(".")[0] for path in found}:
                yield name, prefix + name


def is_settled(node: ast.Call, path: str) -> bool:
    place, keywords = SETTLED_BY[path]
    given = [*node.args[place - 1 : place]]
    given += [keyword.value for keyword in node.keywords if keyword.arg in keywords.split()]
    return any(not (isinstance(item, ast.Constant) and item.value is None) for item in given)


def is_material(node: ast.AST) -> bool:
    """True for a path under which the system describes itself."""
    match node:
        case ast.Constant(value=str() as text):
            return _MATERIAL.match(text) is not None
    return False


def names_a_marker(node: ast.AST) -> bool:
    """True where an import or a text names a module whose answers vary."""
    for part in ast.walk(node):
        match part:
            case ast.Import() | ast.ImportFrom():
                if any(path.partition(".")[0] in MARKERS for _, path in imports(part)):
                    return True
            case ast.Constant(value=str() as text):
                if not MARKERS.isdisjoint(WORD.findall(text)):
                    return True
    return False
