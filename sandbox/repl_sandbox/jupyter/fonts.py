"""A folder in which matplotlib finds its list of fonts: no sealed kernel can write one.

    matplotlib, once, with nobody's code -> the user's cache -> a folder that kernels may read

matplotlib takes its folder if the user may write there, which is asked of permissions. Landlock
refuses to write all the same. Knows matplotlib's habits. Does not know kernels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "MPLCONFIGDIR"
FOLDER = "matplotlib"
SYSTEM_FONTS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
LIST = "fontlist-*.json"
READ = ("matplotlibrc", "stylelib")
"""What matplotlib reads there if it is there: a file, and a folder."""
TIMEOUT_S = 60.0


def system_fonts() -> list[Path]:
    """Where Linux keeps them, beside those that matplotlib brings."""
    return [path for path in SYSTEM_FONTS if path.is_dir()]


def offer_fonts(runtime: Path, environment: Mapping[str, str]) -> list[Path]:
    """Make the folder in `runtime`, and return it for kernels to read. Without matplotlib, nothing.

    environment: that of a process which knows nothing of the user.
    """
    if find_spec("matplotlib") is None:
        return []
    kept = user_cache_path("repl-rl") / FOLDER
    folder = runtime / FOLDER
    folder.mkdir()
    if os.geteuid() == 0:
        _open_to_all(folder)
        runtime.chmod(0o711)
    if not any(kept.glob(LIST)):
        _make_list(kept, environment)
    for path in kept.glob(LIST):
        shutil.copyfile(path, folder / path.name)
        (folder / path.name).chmod(0o644)
    return [folder]


def _open_to_all(folder: Path) -> None:
    """Root's kernels may be other users, and so may others of this machine: nobody but root may
    change what matplotlib reads, of which a fork server may be the first reader.
    """
    file, styles = (folder / name for name in READ)
    file.touch(mode=0o644)
    styles.mkdir(mode=0o755)
    folder.chmod(0o1777)


def _make_list(folder: Path, environment: Mapping[str, str]) -> None:
    """Without a list, each kernel makes its own and says so."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", "import matplotlib.font_manager"],
            env={**environment, VARIABLE: str(folder)},
            timeout=TIMEOUT_S,
            check=False,
            capture_output=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass
