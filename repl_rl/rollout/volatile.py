"""Which lines of a trajectory may print something else when they run again, and why.

    sources -> ["reads the clock", None, "depends on a line that reads the clock (line 1)"]

Reads syntax, runs nothing. A kernel's generators start from the trajectory's seed, hashes of text
are fixed and addresses are shown as ordinals, so none of these is an excuse. What a name is bound
to decides what it means: neither `import time` nor `time = Symbol("time")` excuses anything.
Knows Python. Does not know outcomes: `compare` finds out whether a line did differ.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from repl_rl.rollout.names import NOTHING, NOWHERE, Known, Locals, Names, own_names
from repl_rl.rollout.syntax import (
    ASSIGNED,
    WITHOUT_VALUE,
    Comprehension,
    Loop,
    Scope,
    TooLongError,
    assigned_in_texts,
    blocks,
    called,
    heads,
    is_jump,
    runs_at_once,
    statements,
    stored,
)
from repl_rl.rollout.variation import (
    COMPUTED,
    GENERATORS,
    MARKERS,
    MODULES,
    PLACE,
    SETTLED_BY,
    SOURCES,
    SYSTEM,
    UNREAD,
    WORD,
    imports,
    is_material,
    is_settled,
    names_a_marker,
)
from repl_rl.transcript.format import strip_line
from repl_rl.types import LineOutcome, OutcomeKind

_MAX_OPEN_CHARS = 1 << 15
MAX_TEXTS = 20
"""Calls of `exec` and `eval` that are followed from one line: texts may run texts."""


_MAX_NODES = 20_000
"""Of syntax, that are looked at for one line: what functions and texts hold counts wherever they
are used."""


class _Taint(NamedTuple):
    """Why a value may be another each time, and the line (from 1) where that began."""

    why: str
    line: int

    def seen_from(self, line: int) -> str:
        if self.line == line:
            return self.why
        place = f"line {self.line}" if self.line else "setup"
        return f"depends on a line that {self.why} ({place})"


class _RanLine(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def outcome(self) -> LineOutcome: ...


def kernel_sources(lines: Sequence[_RanLine]) -> list[str]:
    """What a kernel got with each line, [L]: the end of the open lines before it, then the line."""
    sources: list[str] = []
    pending = ""
    for line in lines:
        sources.append(pending + strip_line(line.source))
        is_open = line.outcome.kind is OutcomeKind.INCOMPLETE
        # Uncut, each of thousands of open lines would hold all before it: gigabytes.
        pending = f"{sources[-1]}\n"[-_MAX_OPEN_CHARS:] if is_open else ""
    return sources


def volatile_lines(sources: Sequence[str], *, setup: Iterable[str] = ()) -> list[str | None]:
    """For each line why its output may differ when it runs again; None where it must not.

    `sources` are what the kernel got. A line of an open statement comes with the open lines before
    it, so the last line stands for the whole statement and the others ran nothing. `setup` ran
    before the first line. The reasons count lines from 1.
    """
    flow = _Flow()
    for source in setup:
        flow.take(0, source)
    following = [*sources[1:], ""]
    return [
        None if source and after.startswith(f"{source}\n") else flow.take(number, source)
        for number, (source, after) in enumerate(zip(sources, following, strict=False), 1)
    ]


class _Flow:
    """What names mean and which are tainted, carried from line to line."""

    def __init__(self) -> None:
        self._taints: dict[str, _Taint] = {}
        """By name; the taint of a generator by the prefix of its functions, such as `random.`."""
        self._names = Names(self._taints)
        self._line = 0
        self._found: _Taint | None = None
        self._num_texts = 0
        self._num_nodes = 0
        self._is_in_loop = False
        self._bodies: dict[int, _Taint | None] = {}
        """Of functions that the statement at hand uses, by identity of their syntax."""
        self._has_markers = False
        """True once a line has named a module whose answers vary."""

    def take(self, line: int, source: str) -> str | None:
        """Why `source` is volatile, None if it is not. Records what names mean after it."""
        self._line, self._found, self._is_in_loop = line, None, False
        self._num_texts = self._num_nodes = 0
        try:
            for statement in statements(source):
                self._visit(statement, None)
        except (TooLongError, RecursionError):
            self._line = line
            self._take_unread(source)
        return None if self._found is None else self._found.seen_from(line)

    def _take_unread(self, source: str) -> None:
        words = WORD.findall(source)
        taint = next((self._taints[word] for word in words if word in self._taints), None)
        if taint is None and not MARKERS.isdisjoint(words):
            taint = _Taint(UNREAD, self._line)
        self._note(taint, ASSIGNED.findall(source))

    def _note(self, taint: _Taint | None, names: Iterable[str] = ()) -> None:
        """Mark the line as volatile by `taint`, and `names` from here on."""
        if taint is None:
            return
        self._found = self._found or taint
        for name in names:
            self._taints[name] = taint
            self._names.known.pop(name, None)

    def _bind(self, name: str, known: Known = NOTHING) -> None:
        self._names.known[name] = known
        self._taints.pop(name, None)

    # Statements. `control` taints whether they run, or how often.

    def _visit(self, node: ast.stmt, control: _Taint | None) -> None:
        self._bodies.clear()
        self._has_markers = self._has_markers or names_a_marker(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                taint = self._first(runs_at_once(node)) or control
                self._bind(node.name, Known(body=node, line=self._line))
                self._note(taint, [node.name])
            case ast.Import() | ast.ImportFrom():
                for name, path in imports(node):
                    self._bind(name, Known(path=path))
            case _ if blocks(node):
                self._compound(node, control)
            case _:
                self._simple(node, control)

    def _compound(self, node: ast.stmt, control: _Taint | None) -> None:
        # A loop is read twice, to see what it carries over; a loop inside another is read once, or
        # time would double with each level.
        num_passes = 2 if isinstance(node, Loop) and not self._is_in_loop else 1
        was_in_loop, self._is_in_loop = self._is_in_loop, self._is_in_loop or num_passes == 2
        before = dict(self._taints)
        for _ in range(num_passes):
            self._pass(node, control)
            # A name that a block clears stays tainted behind it: the block may not have run.
            for name in before.keys() - self._taints.keys():
                self._taints[name] = before[name]
                self._names.known.pop(name, None)
        self._is_in_loop = was_in_loop

    def _pass(self, node: ast.stmt, control: _Taint | None) -> None:
        head = self._first(heads(node))
        inner = control or self._control(node, head)
        for name in stored(heads(node)):
            self._bind(name)
        self._note(head or inner, stored(heads(node)))
        for part in blocks(node):
            self._visit(part, inner)

    def _control(self, node: ast.stmt, head: _Taint | None) -> _Taint | None:
        """What taints whether the blocks of a statement run, and whether they run to their end."""
        match node:
            case ast.With() | ast.AsyncWith():
                return None
            case ast.Try() | ast.TryStar():
                return self._first(blocks(node))
            case ast.For() | ast.AsyncFor() | ast.While() if any(map(is_jump, ast.walk(node))):
                return head or self._first(blocks(node))
        return head

    def _simple(self, node: ast.stmt, control: _Taint | None) -> None:
        taint = self._read(node)
        self._note(taint)
        if isinstance(node, ast.Expr):
            self._run_text(node.value, control or taint)
        if taint := taint or control:
            self._note(taint, [*self._changed(node)])
        else:
            self._rebind(node)
        if isinstance(node, ast.Expr) and called(node.value) not in WITHOUT_VALUE:
            self._bind("_")
            self._note(taint, ["_"])

    def _read(self, node: ast.stmt) -> _Taint | None:
        """What taints a statement. A function that is shown or gets a name is not called."""
        match node:
            case (
                ast.Expr(value=value)
                | ast.Assign(value=value)
                | ast.AnnAssign(value=ast.expr() as value)
            ) if self._names.alias(value, line=self._line) is not None:
                return self._first(part for part in ast.iter_child_nodes(node) if part is not value)
            case ast.AugAssign(target=ast.Name(id=name)):
                return self._name(name, {}) or self._reason(node, {})
        return self._reason(node, {})

    def _changed(self, node: ast.stmt) -> Iterator[str]:
        """Names and generators that a statement leaves in another state, through functions too."""
        yield from stored([node])
        for part in ast.walk(node):
            self._count(1)
            match part:
                case ast.Call(func=func) if (path := self._names.path(func, {})) in GENERATORS:
                    yield GENERATORS[path or ""]
                case ast.Name(id=name) if body := self._names.known.get(name, NOTHING).body:
                    self._count(sum(1 for _ in ast.walk(body)))
                    inside = own_names(body)
                    within = stored(ast.iter_child_nodes(body))
                    yield from (name for name in within if name not in inside)

    def _rebind(self, node: ast.stmt) -> None:
        """Record what a statement without a taint makes of the names and generators it sets."""
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                self._bind(name, self._names.alias(value, line=self._line) or NOTHING)
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                for target in targets:
                    for part in ast.walk(target):
                        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                            self._bind(part.id)
            case ast.AugAssign(target=ast.Name(id=name)):
                self._bind(name)
            case ast.Expr(value=ast.Call(func=func)):
                self._taints.pop(GENERATORS.get(self._names.path(func, {}) or "", ""), None)

    def _run_text(self, shown: ast.expr, control: _Taint | None) -> None:
        """Visit the text of an `exec`: its line binds what the text binds."""
        if not isinstance(shown, ast.Call) or self._names.path(shown.func, {}) != "builtins.exec":
            return
        text = self._names.text(shown.args[0], {}) if shown.args else None
        if text is not None:
            for statement in self._opened(text):
                self._visit(statement, control)
        elif control is not None:
            self._note(control, assigned_in_texts(shown))

    def _count(self, nodes: int) -> None:
        self._num_nodes += nodes
        if self._num_nodes > _MAX_NODES:
            raise TooLongError

    def _opened(self, text: str) -> list[ast.stmt]:
        self._num_texts += 1
        if self._num_texts > MAX_TEXTS:
            raise TooLongError
        return statements(text.strip())

    # Expressions. `local` holds the names of functions and comprehensions around them.

    def _first(self, nodes: Iterable[ast.AST], local: Locals = NOWHERE) -> _Taint | None:
        for node in nodes:
            if taint := self._reason(node, local):
                return taint
        return None

    def _reason(self, node: ast.AST, local: Locals) -> _Taint | None:
        """What taints the value of `node`: the first that is found in it."""
        self._count(1)
        match node:
            case ast.Call():
                return self._call(node, local)
            case ast.Name(id=name, ctx=ast.Load()):
                return self._name(name, local)
            case ast.Attribute() if path := self._names.path(node, local):
                return self._mention(path)
        parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, Comprehension):
            first = node.generators[0]
            if outer := self._reason(first.iter, local):  # `[x for x in x]`
                return outer
            # Each part once: one that is looked into twice at each depth takes 2 ** depth.
            parts = (part for part in parts if part is not first)
            parts = itertools.chain(parts, (first.target, *first.ifs))
        if isinstance(node, Comprehension | Scope):
            local = {**local, **own_names(node)}
        return self._first(parts, local)

    def _name(self, name: str, local: Locals) -> _Taint | None:
        if name not in local and name in self._taints:
            return self._taints[name]
        known = self._names.known.get(name, NOTHING)
        if name not in local and known.body is not None:
            return self._body(known.body, known.line)
        return self._mention(self._names.path(ast.Name(id=name), local))

    def _body(self, body: Scope, line: int) -> _Taint | None:
        """What taints a call of a function, or an instance of a class. Read once a statement."""
        if id(body) not in self._bodies:
            self._bodies[id(body)] = None  # where it calls itself
            at, self._line = self._line, line
            self._bodies[id(body)] = self._reason(body, {})
            self._line = at
        return self._bodies[id(body)]

    def _mention(self, path: str | None) -> _Taint | None:
        """A function that is passed on counts as called, unless arguments may settle it."""
        if path is None or path in SETTLED_BY:
            return None
        if path in SOURCES:
            return _Taint(SOURCES[path], self._line)
        if path.endswith(".__dict__") and path.removesuffix(".__dict__") in MODULES:
            return _Taint(COMPUTED, self._line)
        drawn = [self._taints[g] for g in GENERATORS.values() if g in self._taints]
        return drawn[0] if drawn and path.startswith(tuple(GENERATORS.values())) else None

    def _call(self, node: ast.Call, local: Locals) -> _Taint | None:
        path = self._names.path(node.func, local)
        if taint := self._first([*node.args, *node.keywords], local):
            return taint
        if path is None:
            return self._reason(node.func, local)
        if path in SETTLED_BY:
            return None if is_settled(node, path) else _Taint(SOURCES[path], self._line)
        if any(map(is_material, node.args)):
            return _Taint(SYSTEM, self._line)
        return self._mention(path) or self._dynamic(path, node, local)

    def _dynamic(self, path: str, node: ast.Call, local: Locals) -> _Taint | None:
        """Calls that reach what no name in the source shows."""
        match path.removeprefix("builtins."):
            case "hash" if any(self._names.hashes_by_place(item) for item in node.args):
                return _Taint(PLACE, self._line)
            case "globals" | "locals" | "vars" if not node.args:
                return next(iter(self._taints.values()), None)
            case "getattr" | "vars" if node.args:
                if found := self._names.path(node, local):
                    return self._mention(found)
                is_open = self._names.path(node.args[0], local) in MODULES
                return _Taint(COMPUTED, self._line) if is_open else None
            case "eval" | "exec" | "__import__" | "importlib.import_module" if node.args:
                return self._text_of(path, node.args[0], local)
        return None

    def _text_of(self, path: str, code: ast.expr, local: Locals) -> _Taint | None:
        """Code that is put together at run time could do anything, but seldom does. It counts as
        volatile only after a line has named a module that would make it so."""
        text = self._names.text(code, local)
        if text is None:
            return _Taint(COMPUTED, self._line) if self._has_markers else None
        is_run = path in ("builtins.eval", "builtins.exec")
        return self._first(self._opened(text), local) if is_run else None
