"""Text and ids that name something: kept as plain values that JSON gives back as they were."""

from __future__ import annotations

from samplekit.errors import SampleError
from samplekit.sample.kinds import is_group_id, shown


def text_or_none(value: object, name: str) -> str | None:
    """Give text as a plain str; None stays None.

    Raises:
        SampleError: it is something else, or no UTF-8 can say it.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise SampleError(f"{name} is {shown(value)}, expected text or None: pass its name")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SampleError(
            f"{name} is {shown(value)}, expected text that UTF-8 can say: take out what stands at index {error.start}"
        ) from error
    return str.__str__(value)  # an Enum's or numpy's text as itself


def group_id(value: object, name: str) -> str | int | None:
    """Give a group's id as plain text or a whole number; None stays None.

    Raises:
        SampleError: it is something else: a bool and a float would be one with the number they equal, and a list or a
            tensor would not come back from a file as it went.
    """
    if value is None or isinstance(value, str):
        return text_or_none(value, name)
    if not is_group_id(value):
        raise SampleError(f"{name} is {shown(value)}, expected text or a whole number of 64 bits: pass str(...) of it")
    return int(value)
