"""Load the model that a service trains: the package's own, or any Hugging Face causal model."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from samplekit.chat.load import TINY, configured_stop_ids, first_line, local_folder, packaged_model
from samplekit.errors import SampleError
from samplekit.server.quiet import without_bars

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TINY_SEED = 20_240_607
# Where a configuration does not say how much context its model has.
FALLBACK_CONTEXT = 4096

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A base model, frozen: sessions copy it or hang adapters on it, and never change it.

    Attributes:
        name: as clients spell it.
        module: the network, float32, in evaluation mode, no parameter wants a gradient.
        tokenizer: None where the folder has none; then stop strings cannot be watched for.
        vocab_size: ids from here on are refused.
        context_length: tokens of prompt and completion together, and positions of a sample.
        stop_ids: tokens that end a completion.
    """

    name: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    vocab_size: int
    context_length: int
    stop_ids: frozenset[int]


def load_model(name: str = TINY) -> LoadedModel:
    """Load a model once for the whole service.

    Args:
        name: ``samplekit/tiny``, whose weights are drawn from a fixed seed, or a Hugging Face path or id.

    Raises:
        SampleError: there is no such model, or its files are not whole; the message names it.
    """
    started = time.perf_counter()
    source = str(local_folder(name) or name)
    try:
        module = _draw_weights(source) if packaged_model(name) else _load_weights(source)
        tokenizer = _load_tokenizer(source)
    except Exception as error:
        raise SampleError(
            f"the model {name!r} cannot be loaded ({first_line(error)}): check the spelling, the network and your "
            "access, or pass a folder that holds config.json and the weights"
        ) from error
    text_config: Any = module.config.get_text_config()
    embeddings: Any = module.get_input_embeddings()
    logger.info("loaded %s in %.1f s: %d parameters", name, time.perf_counter() - started, module.num_parameters())
    return LoadedModel(
        name,
        module,
        tokenizer,
        int(embeddings.weight.shape[0]),
        int(getattr(text_config, "max_position_embeddings", None) or FALLBACK_CONTEXT),
        _stop_ids(name, text_config, tokenizer),
    )


def _load_weights(source: str) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM  # its class methods are untyped
    with without_bars():
        return _frozen(auto.from_pretrained(source, dtype=torch.float32))


def _draw_weights(source: str) -> PreTrainedModel:
    """Make the packaged model, which comes without weights: a fixed seed gives the same ones every time."""
    from transformers import AutoConfig, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    config = AutoConfig.from_pretrained(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TINY_SEED)
        return _frozen(auto.from_config(config, dtype=torch.float32))


def _frozen(module: torch.nn.Module) -> PreTrainedModel:
    return cast("PreTrainedModel", module.eval().requires_grad_(requires_grad=False))


def _load_tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    from transformers import AutoTokenizer

    found: Any = None
    try:
        found = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        logger.warning("the tokenizer of %s cannot be read: %s", source, error)
    # From a folder without tokenizer files transformers makes one that knows its added tokens only.
    if found is None or len(found) <= len(found.added_tokens_decoder):
        logger.warning("no tokenizer in %s: stop strings will be refused", source)
        return None
    return cast("PreTrainedTokenizerBase", found)


def _stop_ids(name: str, config: Any, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:  # noqa: ANN401
    """Collect what ends a completion: the generation config's ids, the model's and the tokenizer's eos."""
    found = set(configured_stop_ids(name))
    for ids in (getattr(config, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)):
        if isinstance(ids, int):
            found.add(ids)
        elif isinstance(ids, Iterable):
            found.update(int(item) for item in cast("Iterable[int]", ids))
    return frozenset(found)
