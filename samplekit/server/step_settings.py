"""The body of an optimizer step -> complete settings for the optimizer that the session has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from samplekit.server.bodies import AdamBody, MuonBody, OptimizerConfig, OptimStepBody
from samplekit.server.optimizers import HAS_MUON
from samplekit.server.refusals import invalid
from samplekit.server.settings import AdamSettings, MuonSettings

if TYPE_CHECKING:
    from samplekit.server.records import Resources

_SCALINGS = {"MUON_SCALING_STRATEGY_MATCH_ADAM": "match_rms_adamw"}


def refuse_optimizer(config: OptimizerConfig) -> None:
    """Refuse resources whose optimizer cannot be made.

    Raises:
        Refusal: both optimizers are asked for, or Muon of a torch that has none (400).
    """
    if config.adam is not None and config.muon is not None:
        raise invalid("optimizer_config holds adam and muon, expected one: muon trains by Adam what it does not train")
    if config.muon is not None and not HAS_MUON:
        raise invalid("optimizer_config.muon needs torch 2.9 or newer here: upgrade torch, or train by adam")


def muon_scaling(resources: Resources) -> str | None:
    """Give how Muon scales its step, as torch spells it; None where sessions train by Adam alone."""
    config = resources.optimizer_config.get("muon")
    if not isinstance(config, Mapping):
        return None
    return _SCALINGS.get(str(cast("Mapping[str, Any]", config).get("scaling_strategy")), "original")


def step_settings(body: OptimStepBody, resources: Resources) -> AdamSettings | MuonSettings:
    """Settle one step.

    Raises:
        Refusal: the settings are of the other optimizer, or a learning rate is missing (400).
    """
    if muon_scaling(resources) is not None:
        return _muon(body)
    if body.muon_params is not None:
        raise invalid(
            "muon_params were sent for resources that train by Adam: create resources with optimizer_config "
            '{"muon": {}}'
        )
    configured = resources.optimizer_config.get("adam")
    rate = cast("Mapping[str, Any]", configured).get("learning_rate") if isinstance(configured, Mapping) else None
    return _adam(body.adam_params or AdamBody(), "adam_params", rate)


def _muon(body: OptimStepBody) -> MuonSettings:
    if body.adam_params is not None:
        raise invalid("adam_params were sent for resources that train by Muon: send muon_params, Adam's as their adam")
    given = body.muon_params or MuonBody()
    if given.learning_rate is None:
        raise invalid("muon_params holds no learning_rate, which has no default: send one with every optim-step")
    adam = _adam(given.adam, "muon_params.adam", None)
    return MuonSettings(adam=adam, **given.model_dump(exclude={"adam"}))


def _adam(given: AdamBody, where: str, configured: float | None) -> AdamSettings:
    settings = given.model_dump()
    rate = settings.pop("learning_rate")
    rate = configured if rate is None else rate
    if rate is None:
        raise invalid(f"{where} holds no learning_rate, which has no default: send one with every optim-step")
    return AdamSettings(learning_rate=float(rate), **settings)
