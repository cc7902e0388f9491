"""One trajectory with all that is known about its tokens and lines, as views need it.

    StoredTrajectory, its siblings, a vocabulary, a model -> Annotated

Knows files and records. Does not know screens or pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from repl_rl.config.sections import GRPOConfig, Scale
from repl_rl.credit.advantages import advantage_rows, batch_scale, load_credit
from repl_rl.credit.ledger import Ledger, ledgers
from repl_rl.credit.trees.edges import Edge, tree_edges
from repl_rl.errors import ConfigError
from repl_rl.records import Reward, Scored, Trajectory
from repl_rl.rollout.builder import fault
from repl_rl.runs.trajectory_file import StoredTrajectory, changed, places
from repl_rl.transcript.tokens import Decode
from repl_rl.viewer.replay.vocabulary import find_decode, token_texts

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


def read(place: StoredTrajectory) -> Scored:
    """Read a record. Raises ConfigError where its lists do not agree."""
    scored = place.read()
    _refuse(place, fault(scored.trajectory) or _fault(scored))
    return scored


def _refuse(place: StoredTrajectory, problem: str | None) -> None:
    if problem is not None:
        raise ConfigError(f"{place.id} of {place.path} is a trajectory with {problem}")


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
    wanted: Iterable[StoredTrajectory], config: GRPOConfig, *, score: Score | None = None
) -> Iterator[Annotated]:
    """Each trajectory with its advantages in the update of `config`, in the order given.

    Siblings come from the same file. One group is held in memory, a file is not. Raises
    ConfigError for what cannot be read.
    """
    files = _Files(config)
    for place in wanted:
        ledger, edges, left = files.member(place)
        trajectory = ledger.scored.trajectory
        decode = files.vocabulary(place)
        yield Annotated(
            id=place.id,
            ledger=ledger,
            edges=edges,
            left=left,
            siblings=tuple(one.id for one in files.members(place)),
            token_texts=None if decode is None else token_texts(trajectory, decode),
            trainer_logprobs=None if score is None else score(trajectory),
        )


class _Files:
    """Glances of files, each read when it is first needed, and one group in full."""

    def __init__(self, config: GRPOConfig) -> None:
        self._credit = load_credit(config)
        self._files: dict[Path, _File] = {}
        self._vocabularies: dict[object, Decode | None] = {}
        self._group: object = None
        self._found: dict[int, _Member] = {}

    def members(self, place: StoredTrajectory) -> list[StoredTrajectory]:
        """The siblings of a trajectory and itself, in order."""
        return self._file(place).members[place.group]

    def member(self, place: StoredTrajectory) -> _Member:
        if self._group != place.group:
            self._found = self._read_group(place)
            self._group = place.group
        return self._found[place.number]

    def vocabulary(self, place: StoredTrajectory) -> Decode | None:
        made_by = "unknown" if place.origin is None else (place.origin.tokenizer,)
        key = place.run, made_by
        if key not in self._vocabularies:
            self._vocabularies[key] = find_decode(place)
        return self._vocabularies[key]

    def _file(self, place: StoredTrajectory) -> _File:
        if place.path not in self._files:
            self._files[place.path] = _File.of(place.path, self._credit.config.scale)
        return self._files[place.path]

    def _read_group(self, place: StoredTrajectory) -> dict[int, _Member]:
        members = self.members(place)
        if place not in members:
            raise changed(place.path)
        scored = [read(one) for one in members]
        scale_by = self._file(place).scales[place.step]
        made = ledgers(scored, advantage_rows(scored, self._credit, scale_by=scale_by))
        branches = [one.trajectory.branch for one in scored]
        edges = tree_edges(scored) if any(branches) else [[] for _ in scored]
        ids = {
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
        for place in places(path):
            stored = place.glance.reward
            reward = Reward(line_rewards=stored.line_rewards, outcome_reward=stored.outcome_reward)
            _refuse(place, _fault_of(reward))
            members[place.group].append(place)
            rewards[place.step].append(reward)
        return cls(members, {step: batch_scale(found, scale) for step, found in rewards.items()})
