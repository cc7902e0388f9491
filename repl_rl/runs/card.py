"""The card of a run's weights: what they are, how they were trained, how well they did.

    RUN/config.toml, versions.json, metrics.jsonl, curve.png -> README.md, curve.png

Knows a run's folder. Does not know the hub. Whatever a run, a task or a model is called is quoted,
and of a folder the card says the last part alone: a card is made to be given away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repl_rl.config import Config
from repl_rl.disk import replace_file
from repl_rl.plugins import is_hub_name
from repl_rl.runs.folder import BEST, read_versions
from repl_rl.runs.metrics import Curve, Evaluation, read_curve
from repl_rl.runs.warm import WarmRecord, read_record
from repl_rl.settings import differences, read_config, resolve, toml_value
from repl_rl.terminal import one_row

CARD, PICTURE = "README.md", "curve.png"
TAG = "repl-rl"
"""Among the tags of every card that is written here."""
_TAGS = [TAG, "trl", "grpo", "reinforcement-learning"]
_WARM_TAGS = [TAG, "trl", "sft"]
_ADAPTER = "adapter_config.json"
_BASE = "base_model_name_or_path"

_OWN = ("model", "report.", "sampling.servers", "sampling.weights_dir", "sandbox.warmup")
"""Settings of one machine or one run, or the beginnings of their names: no card repeats them."""
_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/[^\s'\"]+")
"""In a longer text. Where a text is nothing but a path, blanks belong to it."""


def card_files(run: Path, checkpoint: Path) -> dict[str, bytes]:
    """The card of a checkpoint of `run` and the picture that it shows, by their names.

    Raises ConfigError for a run that cannot be read.
    """
    picture = run / PICTURE
    found = {PICTURE: picture.read_bytes()} if picture.is_file() else {}
    return {CARD: _Card.of(run, checkpoint).text(has_picture=bool(found)).encode(), **found}


def write_card(run: Path, checkpoint: Path) -> None:
    """Write these files into the checkpoint. Raises ConfigError, and StorageError."""
    for name, content in card_files(run, checkpoint).items():
        replace_file(checkpoint / name, content)


def has_card(checkpoint: Path) -> bool:
    """Whether it has a card of ours, as it was written or as somebody has changed it since."""
    from huggingface_hub import ModelCard

    try:
        text = (checkpoint / CARD).read_text()
        return TAG in (ModelCard(text, ignore_metadata_errors=True).data.get("tags") or [])
    except (OSError, ValueError):
        return False


def public_adapter_config(checkpoint: Path) -> dict[str, bytes]:
    """`adapter_config.json` without the folder of its model; nothing where it names none."""
    found = _adapter_config(checkpoint)
    base = str(found.get(_BASE, ""))
    if not found or is_hub_name(base):
        return {}
    return {_ADAPTER: json.dumps({**found, _BASE: _last_part(base)}, indent=2).encode()}


def _adapter_config(checkpoint: Path) -> dict[str, Any]:  # peft's
    try:
        found = json.loads((checkpoint / _ADAPTER).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """All that a card is made of."""

    name: str
    config: Config
    versions: Mapping[str, str]
    curve: Curve
    step: int
    """Updates behind the weights."""
    base: str
    """The model that they, or the adapter, belong to: `owner/name`, a folder, or empty."""
    is_adapter: bool
    warm: WarmRecord | None
    """Of a warm start, which is supervised; None for a run of GRPO."""

    @classmethod
    def of(cls, run: Path, checkpoint: Path) -> _Card:
        config = resolve(saved=read_config(run / "config.toml"))
        versions, curve = read_versions(run), read_curve(run)
        adapter = _adapter_config(checkpoint)
        warm = read_record(run)
        began = "" if config.model is None else versions.get("policy", config.model)
        return cls(
            name=(config.report.hub or run.resolve().name).rpartition("/")[2],
            config=config,
            versions=versions,
            curve=curve,
            step=_step_of(checkpoint, curve) if warm is None else warm.steps,
            base=str(adapter.get(_BASE) or began),
            is_adapter=bool(adapter),
            warm=warm,
        )

    def text(self, *, has_picture: bool) -> str:
        """Markdown below the front matter that the hub reads."""
        picture = [f"![Solve rate by step]({PICTURE})"] if has_picture else []
        parts = [
            f"---\n{self._front_matter()}\n---",
            f"# {_quoted(self.name)}",
            f"{'An adapter (LoRA)' if self.is_adapter else 'A language model'} that thinks in a "
            f"Python REPL: it writes a line, the line is run, and what the interpreter prints "
            f"comes back as text. It was trained by repl-rl {self._taught()}.",
            "## Training",
            _table(("", ""), self._training()),
            "## Held-out problems",
            self._measured(),
            *picture,
            "## Use",
            self._use(),
            "## Settings",
            "What differs from repl-rl's defaults:",
            f"```toml\n{''.join(self._settings())}```",
            "## Versions",
            _table(("", ""), self._made_with()),
            "## Papers",
            _PAPERS if self.warm is None else _TRL,
        ]
        return "\n\n".join(parts) + "\n"

    def _taught(self) -> str:
        if self.warm is None:
            return "with GRPO and a reward for each line"
        return "on transcripts whose every line was executed"

    def _front_matter(self) -> str:
        from huggingface_hub import ModelCardData

        return ModelCardData(
            base_model=self.base if is_hub_name(self.base) else None,
            library_name="peft" if self.is_adapter else "transformers",
            pipeline_tag="text-generation",
            tags=_TAGS if self.warm is None else _WARM_TAGS,
        ).to_yaml()

    def _training(self) -> Iterator[tuple[str, str]]:
        config, grpo = self.config, self.config.grpo
        starter = f"the starter policy of {_quoted(config.task.name)}"
        yield "task", _quoted(_public(config.task.name))
        yield "transcript", _quoted(_public(config.transcript))
        yield (
            ("adapter of" if self.is_adapter else "began as"),
            (_quoted(_last_part(self.base)) if self.base else starter),
        )
        if self.warm is not None:
            yield from self._shown(self.warm)
            return
        yield "steps", f"{self.step:,}"
        yield "problems per step", f"{grpo.problems_per_step:,}"
        yield "trajectories of a problem", f"{grpo.group_size:,}"
        yield "reward", _quoted(_public(config.reward.function))
        yield "credit", _quoted(_public(grpo.credit))
        yield "loss", _quoted(grpo.loss_type)
        yield "learning rate", f"{grpo.learning_rate:g}"
        if config.lora.rank:
            yield "LoRA", f"rank {config.lora.rank}, alpha {config.lora.alpha:g}"

    def _shown(self, warm: WarmRecord) -> Iterator[tuple[str, str]]:
        yield "steps", f"{warm.steps:,}"
        yield "transcripts", f"{warm.transcripts:,}"
        yield "transcripts of a step", f"{self.config.warmstart.transcripts_per_step:,}"
        on_all = self.config.warmstart.train_observations
        yield "trained on", "lines and what they answered" if on_all else "lines alone"
        yield "learning rate", f"{warm.learning_rate:g}"
        if rank := self.config.lora.rank:
            yield "LoRA, merged", f"rank {rank}, alpha {self.config.lora.alpha:g}"

    def _measured(self) -> str:
        if not self.curve.evaluations:
            return "Not measured."
        found = {one.place.step: one for one in self.curve.evaluations}
        wanted = {"before": 0, "after": self.step} if self.step else {"without training": 0}
        rows = [(name, *_rate(found.get(step))) for name, step in wanted.items()]
        table = _table(("", "solved", "95 % interval", "problems"), rows)
        temperature = self.config.sampling.temperature
        return (
            f"{table}\n\nOne attempt at each problem, at temperature {temperature:g}. An answer "
            f"that could not be graded counts as not solved."
        )

    def _use(self) -> str:
        model = self.config.report.hub or "MODEL"
        tokenizer = "AutoTokenizer"
        if self.is_adapter:
            kind = "AutoPeftModelForCausalLM"
            imports = f"from peft import {kind}\nfrom transformers import {tokenizer}"
        else:
            kind = "AutoModelForCausalLM"
            imports = f"from transformers import {kind}, {tokenizer}"
        where = "" if self.config.report.hub else "`MODEL` is this folder, or its name on the hub. "
        return (
            f"{where}With the settings below in `settings.toml`, the first command measures it, "
            f"and the second shows it at work:\n\n"
            f"    repl-rl eval {model} --config settings.toml\n"
            f"    repl-rl rollout --model {model} --config settings.toml\n\n"
            f"Its weights, without the loop that runs its lines:\n\n"
            f"```python\n"
            f"{imports}\n\n"
            f'model = {kind}.from_pretrained("{model}")\n'
            f'tokenizer = {tokenizer}.from_pretrained("{model}")\n'
            f"```"
        )

    def _settings(self) -> Iterator[str]:
        # What a rank implies is said where it is not so. No warm start reads it.
        rank = self.config.lora.rank if self.warm is None else 0
        bases = (Config(), resolve(flags={"model": "MODEL", "lora": {"rank": rank}}))
        found = {key: value for one in bases for key, _, value in differences(one, self.config)}
        for key, value in found.items():
            if not key.startswith(_OWN) and value != "null":  # TOML has no null
                yield f"{key} = {toml_value(_public(json.loads(value)))}\n"

    def _made_with(self) -> Iterator[tuple[str, str]]:
        for name, value in self.versions.items():
            if name != "policy":
                yield name.replace("|", " "), _quoted(_public(value))


_TRL = "- [TRL](https://github.com/huggingface/trl), which takes the update"
_PAPERS = f"""- GRPO: DeepSeekMath, [arXiv:2402.03300](https://arxiv.org/abs/2402.03300)
{_TRL}"""


def _step_of(checkpoint: Path, curve: Curve) -> int:
    """Updates behind a checkpoint's weights, which its name tells."""
    if numbered := re.fullmatch(r"checkpoint-(\d+)", checkpoint.name):
        return int(numbered[1])
    if checkpoint.name == BEST:  # the first that did best
        trained = [one for one in curve.evaluations if one.place.step]
        return max(trained, key=lambda one: one.rate).place.step if trained else 0
    return max((step.place.step for step in curve.steps), default=0)


def _rate(found: Evaluation | None) -> tuple[str, str, str]:
    """The cells of an evaluation."""
    if found is None or found.interval is None:
        return "not measured", "", ""
    low, high = found.interval
    return f"{100 * found.rate:.1f} %", f"{100 * low:.1f} % to {100 * high:.1f} %", str(found.total)


def _table(head: tuple[str, ...], rows: Any) -> str:
    """Of cells that are Markdown already."""
    ruled = [head, ("--",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ruled)


def _quoted(text: str) -> str:
    """A name as code of one row, which ends where it should, in a table, too."""
    return f"`{one_row(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _last_part(path: str) -> str:
    """`owner/name` as it is; of a folder its name, and for a checkpoint that of its run."""
    if is_hub_name(path):
        return path
    parts = Path(path).parts
    if parts[-2:-1] == ("checkpoints",):
        return f"{parts[-1]} of {parts[-3]}" if len(parts) > 2 else parts[-1]
    return Path(path).name


def _public(value: Any) -> Any:  # any value of a config
    """The same, with the last part of each path alone."""
    if isinstance(value, list):
        return [_public(one) for one in value]
    if not isinstance(value, str):
        return value
    if value.startswith(("/", "~/", "./", "../")):
        return Path(value).name
    return _PATH.sub(lambda found: Path(found[0]).name, value)
