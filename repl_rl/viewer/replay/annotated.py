"""One trajectory with all that is known about its tokens and lines, as views need it.

    StoredTrajectory, its siblings, a vocabulary, a model -> Annotated

Knows files and records. Does not know screens or pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repl_rl.config.sections import GRPOConfig, Scale
from repl_rl.credit.advantages import advantage_rows, batch_scale, load_credit
from repl_rl.credit.ledger import Ledger, ledgers
from repl_rl.credit.trees import Edge, tree_edges
from repl_rl.errors import ConfigError
from repl_rl.records import Reward, Scored, Trajectory
from repl_rl.rollout.builder import fault
from repl_rl.rollout.observations import Answers
from repl_rl.runs.trajectory_file import StoredTrajectory, changed, places
from repl_rl.transcript.tokens import Decode
from repl_rl.viewer.replay.scene import find_decode, token_texts

Score = Callable[[Trajectory], tuple[float, ...]]
"""Log-probabilities [T] of a completion by a model, nats."""

_MAX_ID = (1 << 31) - 1
_MAX_REWARD = 1e100
"""Its square, which a standard deviation needs, still fits into a float."""

# T completion tokens, L lines

_Member = tuple[Ledger, tuple[Edge, ...], str | None]
"""The parts that depend on the whole group of a trajectory: see `Annotated`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """Everything that a token view, a page or a notebook shows of one trajectory."""

    id: str
    """`FILE:NUMBER`, such as `step-000012:5`: its file's stem and its place in it, from 1."""
    ledger: Ledger
    """The trajectory, its rewards and its verdict (`ledger.scored`); reward, advantage of each
    token, and share of the group's gradient by line (`ledger.entries`, [L])."""
    siblings: tuple[str, ...]
    """Ids of its group in the file, its own among them, in order."""
    edges: tuple[Edge, ...] = ()  # [E]
    """Edges of its own lines, where its group branches."""
    left: str | None = None
    """Id of the one that it begins as, where its file has it."""
    token_texts: tuple[str, ...] | None = None  # [T]
    """Text that each token of the completion adds; None where no vocabulary is at hand. A token
    that ends inside a character adds nothing, the one that completes it adds it whole."""
    trainer_logprobs: tuple[float, ...] | None = None  # [T]
    """From one forward of a model over the whole sequence, nats; None where no model is given."""
    surprises: Mapping[int, float] = field(default_factory=dict)
    """Surprise of that model at what was answered to a line, by the line's index: nats a token."""


def read(stored: StoredTrajectory) -> Scored:
    """Read a record. Raises ConfigError where its lists do not agree."""
    scored = stored.read()
    _refuse(stored, fault(scored.trajectory) or _fault(scored))
    return scored


def _refuse(stored: StoredTrajectory, problem: str | None) -> None:
    if problem is not None:
        raise ConfigError(f"{stored.id} of {stored.path} is a trajectory with {problem}")


def _fault(scored: Scored) -> str | None:
    """Return the fault of a record beside its spans; None for one that repl-rl can have written."""
    trajectory, num_rewards = scored.trajectory, len(scored.reward.line_rewards)
    lines, ids = trajectory.lines, (*trajectory.prompt_ids, *trajectory.completion_ids)
    if not trajectory.prompt_ids:
        return "no prompt ids, so nothing stands before its first token"
    if num_rewards != len(lines):
        return f"{num_rewards} line rewards for {len(lines)} lines"
    if [line.index for line in lines] != list(range(len(lines))):
        return "lines that are not numbered in order"
    if any(line.start == line.stop for line in lines):
        return "a line without a token"
    if ids and not 0 <= min(ids) <= max(ids) <= _MAX_ID:
        return f"a token id that is not within 0 to {_MAX_ID}"
    if (left := trajectory.branch) is not None and not 1 <= left.num_lines <= len(lines):
        return f"{left.num_lines} copied lines of {len(lines)}"
    return _fault_of(scored.reward)


def _fault_of(reward: Reward) -> str | None:
    numbers = (reward.outcome_reward or 0.0, *reward.line_rewards, *reward.terms.values())
    # Not with `>`: NaN would pass.
    if not all(abs(number) <= _MAX_REWARD for number in numbers):
        return f"a reward that is not within {-_MAX_REWARD:g} to {_MAX_REWARD:g}"
    return None


def annotate(
    trajectories: Iterable[StoredTrajectory],
    config: GRPOConfig,
    *,
    score: Score | None = None,
    answers: Answers | None = None,
) -> Iterator[Annotated]:
    """Each trajectory with its advantages in the update of `config`, in the order given.

    `score` and `answers` are those of a model. Siblings come from the same file. One group is held
    in memory, a file is not. Raises ConfigError for what cannot be read.
    """
    files = _Files(config)
    for stored in trajectories:
        ledger, edges, left = files.member(stored)
        trajectory = ledger.scored.trajectory
        decode = files.vocabulary(stored)
        scores = None if score is None else score(trajectory)
        yield Annotated(
            id=stored.id,
            ledger=ledger,
            edges=edges,
            left=left,
            siblings=tuple(one.id for one in files.members(stored)),
            token_texts=None if decode is None else token_texts(trajectory, decode),
            trainer_logprobs=scores,
            surprises={}
            if answers is None or scores is None
            else answers.surprises(ledger.scored, scores),
        )


class _Files:
    """Glances of files, each read when it is first needed, and one group in full."""

    def __init__(self, config: GRPOConfig) -> None:
        self._credit = load_credit(config)
        self._files: dict[Path, _File] = {}
        self._vocabularies: dict[object, Decode | None] = {}
        self._group: object = None
        self._members: dict[int, _Member] = {}

    def members(self, stored: StoredTrajectory) -> list[StoredTrajectory]:
        """The siblings of a trajectory and itself, in order."""
        return self._file(stored).members[stored.group]

    def member(self, stored: StoredTrajectory) -> _Member:
        if self._group != stored.group:
            self._members = self._read_group(stored)
            self._group = stored.group
        return self._members[stored.number]

    def vocabulary(self, stored: StoredTrajectory) -> Decode | None:
        made_by = "unknown" if stored.origin is None else (stored.origin.tokenizer,)
        key = stored.run, made_by
        if key not in self._vocabularies:
            self._vocabularies[key] = find_decode(stored)
        return self._vocabularies[key]

    def _file(self, stored: StoredTrajectory) -> _File:
        if stored.path not in self._files:
            self._files[stored.path] = _File.of(stored.path, self._credit.config.scale)
        return self._files[stored.path]

    def _read_group(self, stored: StoredTrajectory) -> dict[int, _Member]:
        members = self.members(stored)
        if stored not in members:
            raise changed(stored.path)
        scored = [read(one) for one in members]
        scale_by = self._file(stored).scales[stored.step]
        made = ledgers(scored, advantage_rows(scored, self._credit, scale_by=scale_by))
        branches = [one.trajectory.branch for one in scored]
        is_tree = any(left and left.leaves_sibling for left in branches)
        edges = tree_edges(scored) if is_tree else [[] for _ in scored]
        ids: dict[int | None, str] = {
            one.trajectory.sibling_index: member.id
            for one, member in zip(scored, members, strict=True)
        }
        return {
            member.number: (ledger, tuple(own), ids.get(branch.sibling_index) if branch else None)
            for member, ledger, own, branch in zip(members, made, edges, branches, strict=True)
        }


@dataclass(frozen=True, slots=True)
class _File:
    """The groups of one file, and what divides the advantages of each step in it."""

    members: Mapping[object, list[StoredTrajectory]]
    scales: Mapping[object, float | None]

    @classmethod
    def of(cls, path: Path, scale: Scale) -> _File:
        members: defaultdict[object, list[StoredTrajectory]] = defaultdict(list)
        rewards: defaultdict[object, list[Reward]] = defaultdict(list)
        for stored in places(path):
            glance = stored.glance.reward
            reward = Reward(line_rewards=glance.line_rewards, outcome_reward=glance.outcome_reward)
            _refuse(stored, _fault_of(reward))
            members[stored.group].append(stored)
            rewards[stored.step].append(reward)
        return cls(members, {step: batch_scale(one, scale) for step, one in rewards.items()})
