"""Index of packages on loopback: it serves folders, and keeps the names it was asked for.

pip --index-url http://127.0.0.1:PORT/simple -> a page for a name -> files

Pages are those of PEP 503. A name that no folder has a file of is not there, as on any index. Knows
names of files. Does not know what is in them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit


def bare_environment() -> dict[str, str]:
    """Variables of this process without pip's settings, nor those of the machine's files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return kept


def normalised(name: str) -> str:
    """A project's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def project_of(file: Path) -> str:
    """The project that a wheel or an sdist is of, by its name."""
    stem = file.name.removesuffix(".tar.gz")
    return normalised(stem.rpartition("-")[0] if stem != file.name else stem.split("-")[0])


@dataclass
class LoopbackIndex:
    """Packages that are served, and names that were asked for."""

    files: Mapping[str, Path]
    url: str = ""
    requested: list[str] = field(default_factory=list)
    """Projects whose pages were asked for, in order."""
    num_bytes: int = 0
    """Sum of the sizes of all files that were sent."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which pip has its own defaults and this index alone."""
        return {**bare_environment(), "PIP_INDEX_URL": self.url}


class Answers(BaseHTTPRequestHandler):
    """One request for a page or for a file."""

    def __init__(self, index: LoopbackIndex, *given: object) -> None:
        self.index = index
        super().__init__(*given)  # type: ignore[arg-type]  # as http.server calls it

    def do_GET(self) -> None:
        kind, _, name = unquote(urlsplit(self.path).path).strip("/").partition("/")
        if kind == "simple":
            self._page(name)
        elif kind == "files" and name in self.index.files:
            self._file(self.index.files[name])
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _page(self, name: str) -> None:
        self.index.requested.append(name)
        names = sorted(one for one, path in self.index.files.items() if project_of(path) == name)
        if not names:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        links = [f'<a href="/files/{escape(one)}">{escape(one)}</a><br>' for one in names]
        page = "\n".join(["<!DOCTYPE html>", "<html><body>", *links, "</body></html>"]).encode()
        self._head("text/html", len(page))
        self.wfile.write(page)

    def _file(self, path: Path) -> None:
        size = path.stat().st_size
        self.index.num_bytes += size
        self._head("application/octet-stream", size)
        with path.open("rb") as file:
            shutil.copyfileobj(file, self.wfile)

    def _head(self, kind: str, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def serve(folders: Sequence[Path]) -> Iterator[LoopbackIndex]:
    """Serve the files of `folders` until the block ends."""
    index = LoopbackIndex({path.name: path for one in folders for path in one.iterdir()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Answers, index))
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
