"""Groups laid out flat: every completion beside the group it is compared in."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from samplekit.rollouts.completion import Completion
from samplekit.rollouts.group import Group
from samplekit.rollouts.listed import several


@dataclass(frozen=True)
class Member:
    """One completion and where it stands.

    Attributes:
        group: the Group that holds it.
        completion: what was sampled.
        key: what it is compared by: the group's id, or one of its own where it has none.
        number: of the Group in the input.
        index: of the completion in the Group.
    """

    group: Group
    completion: Completion
    key: Hashable
    number: int
    index: int

    @property
    def source(self) -> str:
        """Where it stands in the input, such as ``"groups[3].completions[1]"``."""
        return f"groups[{self.number}].completions[{self.index}]"

    @property
    def place(self) -> str:
        """The same with the group's id, for errors."""
        return self.source if self.group.id is None else f"{self.source} (group {self.group.id!r})"


def members_of(groups: Iterable[Group]) -> list[Member]:
    """Lay groups out flat: completions of one id are compared however many Groups hold them.

    Raises:
        SampleError: groups is something else than several Groups.
    """
    found: list[Member] = []
    for number, group in enumerate(several(groups, Group, "groups")):
        key: Hashable = object() if group.id is None else group.id
        found += [Member(group, item, key, number, index) for index, item in enumerate(group.completions)]
    return found
