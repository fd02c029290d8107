"""Settings of the functions here, refused by name where they are none."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from samplekit.errors import SampleError
from samplekit.sample.kinds import is_number, is_whole_number, shown

Scale: TypeAlias = Literal["std", "none"]
Baseline: TypeAlias = Literal["mean", "leave_one_out"]
Overlong: TypeAlias = Literal["keep", "mask", "drop"]


def refuse_settings(scale: object, baseline: object, ddof: object = 1, floor: object = 1e-6) -> None:
    """Refuse settings that group_advantages does not know.

    Raises:
        SampleError: naming the setting and what it may be.
    """
    _refuse_unknown("scale", scale, get_args(Scale))
    _refuse_unknown("baseline", baseline, get_args(Baseline))
    if not is_whole_number(ddof) or ddof not in (0, 1):
        raise SampleError(f"ddof is {shown(ddof)}, expected 0 or 1: choose one")
    if not is_number(floor) or floor < 0:
        raise SampleError(f"floor is {shown(floor)}, expected a finite number of 0 or more: it is what std is at least")


def refuse_overlong(overlong: object) -> None:
    """Refuse an overlong that is none.

    Raises:
        SampleError: saying what it may be.
    """
    _refuse_unknown("overlong", overlong, get_args(Overlong))


def refuse_builder_settings(
    scale: object, baseline: object, overlong: object, max_length: object, drop_degenerate: object
) -> None:
    """Refuse settings that the builders of samples do not know.

    Raises:
        SampleError: naming the setting and what it may be.
    """
    refuse_settings(scale, baseline)
    refuse_length(max_length)
    refuse_overlong(overlong)
    refuse_no_flag(drop_degenerate, "drop_degenerate")


def refuse_length(max_length: object) -> None:
    """Refuse a max_length that is none.

    Raises:
        SampleError: it is no whole number of 2 or more.
    """
    if max_length is not None and not (is_whole_number(max_length) and max_length >= 2):
        raise SampleError(
            f"max_length is {shown(max_length)}, expected a whole number of 2 or more: count full sequences"
        )


def refuse_no_flag(value: object, name: str) -> None:
    """Refuse what is neither True nor False: "no" would read as yes.

    Raises:
        SampleError: naming the setting.
    """
    if not isinstance(value, bool):
        raise SampleError(f"{name} is {shown(value)}, expected True or False")


def _refuse_unknown(name: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise SampleError(f"{name} is {shown(value)}, expected one of {', '.join(known)}: choose one")
