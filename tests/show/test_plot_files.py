"""Laws of pictures as files: the same for the same numbers, readable, refused in one line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib
import pytest
from PIL import Image

from curve_kit import a_step, curve, of, rows, texts, write
from repl_rl.runs.metrics import Curve
from repl_rl.runs.plot import figure, names_of, save_curve, saved_bytes

pytestmark = pytest.mark.slow


def picture(curves: Mapping[str, Curve], suffix: str) -> bytes:
    return saved_bytes(lambda: figure(curves), suffix)


Called = tuple[int, str, str]
Call = Callable[..., Called]


@pytest.mark.slow
def test_the_same_numbers_make_the_same_file_whatever_else_is_set() -> None:
    first = {suffix: picture({"mine": curve(20)}, suffix) for suffix in (".png", ".svg")}
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.hashsalt": "x", "font.size": 30}):
        before = dict(matplotlib.rcParams)
        again = {suffix: picture({"mine": curve(20)}, suffix) for suffix in (".png", ".svg")}
        assert dict(matplotlib.rcParams) == before
    assert again == first


def test_a_png_is_a_picture_of_twice_the_width_at_which_it_can_be_read() -> None:
    with Image.open(io.BytesIO(picture({"a": curve(3), "b": curve(4)}, ".png"))) as image:
        assert (image.format, image.width) == ("PNG", 1600)
        image.load()


def test_an_svg_says_what_it_shows_in_texts() -> None:
    found = texts(picture({"mine": curve(20)}, ".svg"))
    for text in ("mine", "Solve rate", "step", "Outcomes of lines", "name_error", "Time of a step"):
        assert text in found
    assert "held-out problems, 95 % interval" in found


@pytest.mark.slow
def test_any_name_of_a_folder_is_a_name_in_the_picture(tmp_path: Path) -> None:
    given = ("$x_{", "_hidden", "a\x1b[31m\nb", "<&>\"'", "\u4e2d\U0001f600", "plain")
    names = names_of([tmp_path / name for name in given])
    assert names[:2] == ["$x_{", "./_hidden"]
    several = {name: curve(2) for name in names}
    assert set(names) <= set(texts(picture(several, ".svg")))
    assert picture(several, ".png")
    for name in names[:2]:
        assert name in texts(picture({name: curve(2)}, ".svg"))


def test_names_are_as_long_as_tells_them_apart(tmp_path: Path) -> None:
    assert names_of([tmp_path / "one" / "run"]) == ["run"]
    assert names_of([tmp_path / "one" / "run", tmp_path / "two" / "run"]) == ["one/run", "two/run"]
    assert names_of([tmp_path / "one", tmp_path / "two"]) == ["one", "two"]


def test_names_that_are_too_long_keep_their_ends_or_are_numbered(tmp_path: Path) -> None:
    one, two = names_of([tmp_path / ("a" * 100), tmp_path / ("b" * 99 + "c")])
    assert (one, two) == ("..." + "a" * 57, "..." + "b" * 56 + "c")
    same = names_of([tmp_path / ("a" + "c" * 99), tmp_path / ("b" + "c" * 99)])
    assert same == ["1: ..." + "c" * 57, "2: ..." + "c" * 57]


@pytest.mark.slow
def test_a_long_run_is_no_large_file() -> None:
    drawn = picture({"long": of([a_step(step) for step in range(1, 5_001)])}, ".svg")
    assert len(drawn) < 400_000


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 2])
def test_the_shortest_runs_can_be_drawn(num_steps: int) -> None:
    assert picture({"short": curve(num_steps)}, ".png")
    assert picture({"short": curve(num_steps), "other": curve(1)}, ".png")


@pytest.mark.slow
def test_rows_that_are_broken_do_not_break_the_picture(tmp_path: Path) -> None:
    run = write(tmp_path / "run", rows(3))
    broken = {"step": 4, "solve_rate": None, "line/cut/share": float("nan"), "num_tokens": "x"}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(broken) + "\n" + '{"step": 5, "solve_')
    assert [path.name for path in save_curve(run)] == ["curve.png", "curve.svg"]


def test_a_run_that_took_no_step_has_no_curve(tmp_path: Path) -> None:
    run = write(tmp_path / "run", rows(0))
    assert save_curve(run) == []
    assert sorted(path.name for path in run.iterdir()) == ["metrics.jsonl"]


@pytest.mark.slow
def test_pictures_are_drawn_without_a_display_or_a_window_library(tmp_path: Path) -> None:
    run = write(tmp_path / "run", rows(2))
    program = (
        "import sys; from pathlib import Path; from repl_rl.runs.plot import save_curve\n"
        f"save_curve(Path({str(run)!r}))\n"
        "print({'matplotlib.pyplot', 'torch', 'tkinter'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


# The command


def test_one_run_is_drawn_into_its_folder(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a", rows(3))
    assert call("plot", "runs/a") == (0, "runs/a/curve.png\nruns/a/curve.svg\n", "")
    assert (tmp_path / "runs/a/curve.png").read_bytes().startswith(b"\x89PNG")
    assert "a" in texts((tmp_path / "runs/a/curve.svg").read_bytes())


def test_several_runs_are_drawn_into_the_current_folder(call: Call, tmp_path: Path) -> None:
    for name in ("a/run", "b/run"):
        write(tmp_path / name, rows(3))
    assert call("plot", "a/run", "b/run") == (0, "curves.png\ncurves.svg\n", "")
    assert {"a/run", "b/run"} <= set(texts((tmp_path / "curves.svg").read_bytes()))


def test_a_run_that_is_named_twice_is_drawn_once(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "a", rows(2))
    assert call("plot", "a", "./a/", "--output", "x.SVG") == (0, "x.SVG\n", "")
    assert "Outcomes of lines" in texts((tmp_path / "x.SVG").read_bytes())


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "repl_rl.runs.plot", raising=False)


@pytest.mark.usefixtures("without_matplotlib")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-run",), "no such run folder: 'no-run'"),
        (("empty",), "'empty' holds no metrics.jsonl; expected the folder of a run"),
        (("run", "evaluation"), "'evaluation' has nothing to plot: no step of training is on "),
        (
            ("run", "--output", "x.pdf"),
            "'x.pdf' is no picture; expected a name that ends in .png",
        ),
        (("run", "--output", "no/x.png"), "'no/x.png': there is no folder 'no'"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_before_anything_is_loaded(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "run", rows(2))
    write(tmp_path / "evaluation", [{"step": 0, "eval/solve_rate": 0.5, "eval/total": 20}])
    code, out, err = call("plot", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"repl-rl: {message}")


def test_more_runs_than_a_picture_holds_are_one_line(call: Call, tmp_path: Path) -> None:
    names = [write(tmp_path / str(number), rows(1)).name for number in range(36)]
    refusal = "repl-rl: 36 runs are given; a picture holds 35 at most\n"
    assert call("plot", *names) == (2, "", refusal)


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_it_says_what_installs_it(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "run", rows(2))
    code, _, err = call("plot", "run")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("repl-rl: matplotlib is not installed")


def test_a_disk_that_refuses_is_one_line(call: Call, tmp_path: Path) -> None:
    (write(tmp_path / "run", rows(2)) / "curve.png").mkdir()
    code, out, err = call("plot", "run")
    assert (code, out) == (1, "")
    assert err == "repl-rl: cannot write 'run/curve.png': Is a directory\n"
