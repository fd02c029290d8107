"""Settings of an optimizer step, held to names and ranges before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from samplekit.client.settings import number, shown, whole_number
from samplekit.errors import SampleError
from samplekit.sample.kinds import is_mapping
from samplekit.wire.names import LARGEST_SETTING, MAX_NEWTON_SCHULZ_STEPS, SMALLEST_EPSILON

_below_one = partial(number, below=1.0)
_bounded = partial(number, most=LARGEST_SETTING)
_ADAM: Mapping[str, Callable[[str, object], float]] = {
    "learning_rate": _bounded,
    "beta1": _below_one,
    "beta2": _below_one,
    "eps": partial(_bounded, least=SMALLEST_EPSILON),
    "weight_decay": _bounded,
    "grad_clip_norm": _bounded,
}
_MUON: Mapping[str, Callable[[str, object], float]] = {
    "learning_rate": _bounded,
    "momentum": _below_one,
    "newton_schulz_steps": partial(whole_number, least=1, most=MAX_NEWTON_SCHULZ_STEPS),
    "weight_decay": _bounded,
    "grad_clip_norm": _bounded,
}


def step_settings(adam: Mapping[str, float | None], muon: object) -> dict[str, Any]:
    """Give the members of an optim-step body.

    Args:
        adam: Adam's settings by name; None leaves one to the service.
        muon: None, or a mapping of Muon's settings, with Adam's (for what Muon does not train) under ``"adam"``.

    Raises:
        SampleError: a setting is unknown or out of range, or Adam's settings are given beside muon.
    """
    given = _settings("", adam, _ADAM)
    if muon is None:
        return {"adam_params": given or None}
    if not is_mapping(muon):
        raise SampleError(f"muon is {shown(muon)}, expected a mapping of Muon's settings")
    if given:
        raise SampleError(f"optim_step got muon and {', '.join(given)}: put Adam's settings in muon['adam']")
    beside = muon.get("adam")
    if beside is not None and not is_mapping(beside):
        raise SampleError(f"muon['adam'] is {shown(beside)}, expected a mapping of Adam's settings")
    own = _settings("muon", {name: value for name, value in muon.items() if name != "adam"}, _MUON)
    return {"muon_params": {**own, "adam": None if beside is None else _settings("muon['adam']", beside, _ADAM)}}


def _settings(
    where: str, given: Mapping[str, object], known: Mapping[str, Callable[[str, object], float]]
) -> dict[str, float]:
    """Take the settings that are not None, each by the rule of its name."""
    taken: dict[str, float] = {}
    for name, value in given.items():
        shown_as = f"{where}[{name!r}]" if where else name
        if name not in known:
            raise SampleError(f"{shown_as} is no setting, expected one of {', '.join(known)}")
        if value is not None:
            taken[name] = known[name](shown_as, value)
    return taken
