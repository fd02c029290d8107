"""What only a whole batch of rollouts shows: groups that teach nothing, and completions that stand alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from samplekit.checks.read import Arrays
from samplekit.checks.report import Finding
from samplekit.losses import DRO, GRPO, Loss
from samplekit.sample.kinds import is_group_id, is_whole_number, shown


@dataclass
class _Group:
    """What was seen of one group.

    Attributes:
        first: the first of its samples.
        size: how many completions were compared, as info tells; None where it does not.
        num_samples: how many of its samples the batch holds.
        moved: an advantage of it is not 0.
    """

    first: int
    size: int | None
    num_samples: int = 0
    moved: bool = False


@dataclass
class GroupWatch:
    """Looks at the advantages of sample after sample; a group is what shares ``info["group"]``.

    Attributes:
        reads_advantages: the loss reads advantages, or is not known.
        penalised: the loss has a penalty, which trains where advantages do not.
    """

    reads_advantages: bool
    penalised: bool = False
    _groups: dict[Hashable, _Group] = field(default_factory=dict[Hashable, _Group])
    _num_seen: int = 0
    _moved: bool = False

    @classmethod
    def of(cls, loss: Loss | None) -> GroupWatch:
        """Watch what a loss reads."""
        penalised = isinstance(loss, DRO | GRPO) and loss.beta > 0
        return cls(loss is None or "advantages" in loss.required_inputs(), penalised)

    def see(self, index: int, arrays: Arrays) -> None:
        """Take note of one sample."""
        name = arrays.info.get("group")
        named = is_group_id(name)
        if self._moved and not named:
            return  # nothing more to learn of it
        advantages = arrays.inputs.get("advantages") if self.reads_advantages else None
        if advantages is None or len(advantages) != len(arrays.trained) or not arrays.num_trained:
            return
        self._num_seen += 1
        moved = bool(advantages.any()) and bool(advantages[arrays.trained].any())
        self._moved |= moved
        if named:
            size = arrays.info.get("group_size")
            group = self._groups.setdefault(name, _Group(index, size if is_whole_number(size) else None))
            group.num_samples += 1
            group.moved |= moved

    def findings(self) -> Iterator[Finding]:
        """Yield what the whole batch shows."""
        for name, group in self._groups.items():
            if (group.num_samples if group.size is None else group.size) == 1:
                yield _single(name, group)
        if self._num_seen and not self._moved:
            left = "only the penalty trains" if self.penalised else "the policy gradient is 0"
            text = f"samples hold no advantage but 0 where they train, so {left}: skip the step, or look at the rewards"
            yield Finding("zero_advantages", "samples", text)
            return
        for name, group in self._groups.items():
            if not group.moved and group.num_samples >= max(2, group.size or 2):
                yield _constant(name, group)


def _path(group: _Group) -> str:
    return f"samples[{group.first}].info['group']"


def _single(name: Hashable, group: _Group) -> Finding:
    text = (
        f"is {shown(name)}, a group of one, expected two or more to compare: "
        "generate several completions of every prompt"
    )
    return Finding("single_completion", _path(group), f"{_path(group)} {text}")


def _constant(name: Hashable, group: _Group) -> Finding:
    text = (
        f"is {shown(name)}, and all its {group.num_samples} samples have advantages of 0 only: leave the group out "
        "(drop_degenerate=True)"
    )
    return Finding("constant_group", _path(group), f"{_path(group)} {text}")
