"""Compare a request body of ours with a recorded one, as the protocol's page allows: see `differences`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

# What we always send, so that no default of the service decides; recorded requests may leave it out.
ALWAYS_SENT = (
    r"loss\.\w+_params",
    r"loss\.\w+_params\.(clip_low_threshold|clip_high_threshold|beta|agg_type|ratio_type)",
    r"sampling_params",
    r"sampling_params\.(temperature|top_p|top_k)",
    r"num_samples",
    r"gradients\[\d+\]\.dtype",
)
# What recorded requests say although it is the default: we leave it out.
LEFT_OUT = (("return_routed_experts", False),)
_FLAGS = re.compile(r".*\.(weights|mask)$")


def differences(ours: Any, recorded: Any, path: str = "") -> Iterator[str]:
    """Yield where two bodies differ.

    Settings we always send may be missing from the recorded body; numbers are compared as float32; weights recorded as
    int64 may be float32 here. Everything else must be equal, in both directions.
    """
    if isinstance(ours, dict) and isinstance(recorded, dict):
        if _FLAGS.match(path) and recorded.get("dtype") == "int64":
            recorded = {**recorded, "dtype": "float32"}
        for name in sorted({*ours, *recorded}):
            inner = f"{path}.{name}" if path else name
            if name not in recorded:
                if not _listed(inner, ALWAYS_SENT):
                    yield f"{inner}: only in ours"
            elif name not in ours:
                if (inner, recorded[name]) not in LEFT_OUT:
                    yield f"{inner}: only in the recorded"
            else:
                yield from differences(ours[name], recorded[name], inner)
    elif isinstance(ours, list) and isinstance(recorded, list):
        if len(ours) != len(recorded):
            yield f"{path}: {len(ours)} items, recorded {len(recorded)}"
        for index, (one, other) in enumerate(zip(ours, recorded, strict=False)):
            yield from differences(one, other, f"{path}[{index}]")
    elif not _equal(ours, recorded):
        yield f"{path}: {ours!r}, recorded {recorded!r}"


def _listed(path: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in patterns)


def _equal(ours: Any, recorded: Any) -> bool:
    numbers = [isinstance(item, int | float) and not isinstance(item, bool) for item in (ours, recorded)]
    if all(numbers):
        return bool(np.float32(ours) == np.float32(recorded))
    return type(ours) is type(recorded) and ours == recorded
