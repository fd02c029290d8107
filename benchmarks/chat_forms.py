"""How conversations become training tokens: ours, and the peers' as their users write them.

Every form takes plain conversations and gives every assistant turn, prompt and completion, as token ids and a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from benchmarks.chats import Chat, Length, conversations, qwen3, qwen3_keeping_history
from benchmarks.meters import cpu_time
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer, require

RECIPE = "plain recipe"
TRL = "TRL"
TRL_CALLS = "TRL's calls alone"
TINKER = "tinker-cookbook"
RENDERERS = "renderers"
A_TURN_EACH = "ours, a sample a turn"
Masked: TypeAlias = tuple[list[int], list[int]]
"""One sequence: its ids, and 1 where they train."""


def forget(template: Any) -> None:
    """Empty a ChatTemplate's memory of encoded texts: a run must not find what the run before it encoded."""
    encoder = template.engine.encoder
    encoder._known.clear()  # noqa: SLF001 - nothing public empties it
    encoder._known_characters = 0  # noqa: SLF001


def ours(tokenizer: Any, chats: list[Chat], *, merge: bool) -> Work:
    """Give `SampleBuilder.build`; it renders every turn twice, and with merge proves that they join."""
    from samplekit.chat import ChatTemplate, SampleBuilder

    template = ChatTemplate(tokenizer)
    builder = SampleBuilder(template, merge=merge)
    rows = [{"messages": chat} for chat in chats]

    def work() -> list[Any]:
        forget(template)
        return builder.build(rows).samples

    return work


def encoded_once(tokenizer: Any, chats: list[Chat]) -> Work:
    """Give the floor: the conversations' full texts, rendered off the clock, through one encode_batch; no mask."""
    texts = [text_of(tokenizer, chat) for chat in chats]
    encode = tokenizer.backend_tokenizer.encode_batch
    return lambda: [encoding.ids for encoding in encode(texts, add_special_tokens=False)]


def text_of(tokenizer: Any, chat: Chat) -> str:
    """Render a conversation up to its last stop."""
    return cast("str", tokenizer.apply_chat_template(chat, tokenize=False)).rstrip("\n")


def turns_of(chats: Sequence[Chat]) -> Iterator[tuple[Chat, Chat]]:
    """Yield what is before every reply, and the same with it."""
    for chat in chats:
        for place, message in enumerate(chat):
            if message["role"] == "assistant":
                yield chat[:place], chat[: place + 1]


def recipe(tokenizer: Any, chats: list[Chat]) -> Work:
    """Give what a training script writes by hand, for each turn: both texts rendered and encoded, the prompt masked."""
    stop = tokenizer.eos_token_id

    def one(before: Chat, after: Chat) -> Masked:
        prompt = tokenizer.apply_chat_template(before, add_generation_prompt=True, return_dict=False)
        full = tokenizer.apply_chat_template(after, return_dict=False)
        if full[: len(prompt)] != prompt:
            raise ValueError("the prompt is no prefix")
        while full[-1] != stop:  # the line break after it
            full.pop()
        return full, [0] * len(prompt) + [1] * (len(full) - len(prompt))

    return lambda: [one(before, after) for before, after in turns_of(chats)]


def trl_trainer(tokenizer: Any, chats: list[Chat]) -> Work:
    """Give the preparation of SFTTrainer with ``assistant_only_loss``, as it runs, on a streamed data set.

    No truncation and no shuffling are asked for; a data set in memory would also pickle the tokenizer to fingerprint
    it, which costs more than the work. One render and one encoding with offsets: no turn is compared with the prompt
    that is served before it.
    """
    require("trl", "datasets")
    import datasets
    from trl import SFTConfig, SFTTrainer
    from trl.chat_template_utils import get_training_chat_template

    template = get_training_chat_template(tokenizer) or tokenizer.chat_template
    trainer = SimpleNamespace(completion_only_loss=False, chat_template=template, _tokenizer=tokenizer)
    with TemporaryDirectory() as folder:
        settings = SFTConfig(
            folder, assistant_only_loss=True, max_length=None, shuffle_dataset=False, use_cpu=True, bf16=False
        )
    table = datasets.Dataset.from_list([{"messages": chat} for chat in chats]).to_iterable_dataset()
    prepare: Any = SFTTrainer._prepare_dataset  # noqa: SLF001 - what its constructor calls
    options: dict[str, Any] = {"packing": False, "formatting_func": None, "dataset_name": ""}
    return lambda: list(prepare(trainer, table, tokenizer, settings, **options))


def trl_masks(tokenizer: Any, chats: list[Chat]) -> Work:
    """Give the calls alone that SFTTrainer makes for each row, without its table and its labels."""
    require("trl")
    from trl.chat_template_utils import get_training_chat_template

    template = get_training_chat_template(tokenizer) or tokenizer.chat_template

    def one(chat: Chat) -> Masked:
        found = tokenizer.apply_chat_template(
            chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, chat_template=template
        )
        return found["input_ids"], found["assistant_masks"]

    return lambda: [one(chat) for chat in chats]


def trl_completions(tokenizer: Any, chats: list[Chat]) -> Work:
    """Give what SFTTrainer does to a row of prompt and completion, a row a turn; its Arrow table is left out."""
    require("trl")
    from trl.data_utils import common_prefix_length

    def one(before: Chat, after: Chat) -> Masked:
        prompt = tokenizer.apply_chat_template(before, tokenize=True, return_dict=True, add_generation_prompt=True)
        full = tokenizer.apply_chat_template(after, tokenize=True, return_dict=True)["input_ids"]
        shared = common_prefix_length(prompt["input_ids"], full)
        return full, [0] * shared + [1] * (len(full) - shared)

    return lambda: [one(before, after) for before, after in turns_of(chats)]


def tinker_cookbook(tokenizer: Any, chats: list[Chat], *, keep: bool) -> Work:
    """Give its Qwen3 renderer, which writes the template over in Python and encodes message by message."""
    require("tinker_cookbook.renderers.qwen3")
    from tinker_cookbook.renderers import TrainOnWhat
    from tinker_cookbook.renderers.qwen3 import Qwen3Renderer

    renderer = Qwen3Renderer(tokenizer, strip_thinking_from_history=not keep)
    given: list[Any] = [[_in_parts(message) for message in chat] for chat in chats]
    everything = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    return lambda: [found for chat in given for found in renderer.build_supervised_examples(chat, everything)]


def _in_parts(message: dict[str, str]) -> dict[str, Any]:
    if "reasoning_content" not in message:
        return dict(message)
    thought = {"type": "thinking", "thinking": message["reasoning_content"]}
    return {"role": message["role"], "content": [thought, {"type": "text", "text": message["content"]}]}


def renderers_package(tokenizer: Any, chats: list[Chat], *, keep: bool) -> Work:
    """Give its Qwen3 renderer, likewise; where history is rewritten it has to be asked once a turn."""
    require("renderers.qwen3")
    package: Any = import_module("renderers")  # it has no types
    config = package.Qwen3RendererConfig(enable_thinking=not keep)
    renderer = import_module("renderers.qwen3").Qwen3Renderer(tokenizer, config)
    build_training_sample = package.build_training_sample
    given: list[list[Any]] = [list(chat) for chat in chats]
    if keep:
        return lambda: [build_training_sample(renderer, chat) for chat in given]

    def one(messages: list[Any]) -> Any:
        wanted = [False] * (len(messages) - 1) + [True]
        return build_training_sample(renderer, messages, message_loss_mask=wanted)

    return lambda: [one(list(after)) for _, after in turns_of(chats)]


def masked(name: str, result: Any) -> list[Masked]:
    """Read any form's sequences as lists, up to the last stop."""
    return [_trimmed(*_lists(name, item)) for item in result]


def _lists(name: str, item: Any) -> Masked:
    if name in (OURS, A_TURN_EACH):
        return item.tokens.tolist(), [int(value) for value in item.loss_mask]
    if isinstance(item, dict):  # a row of TRL's trainer
        return list(item["input_ids"]), [int(label != -100) for label in item["labels"]]
    if name == TINKER:
        return item[0].to_ints(), [int(value) for value in item[1].tolist()]
    if name == RENDERERS:
        return list(item.token_ids), [int(value) for value in item.loss_mask]
    return list(item[0]), list(item[1])


def _trimmed(ids: list[int], mask: list[int]) -> Masked:
    stop = qwen3().eos_token_id
    mask = [value if place == 0 or ids[place - 1] != stop else 0 for place, value in enumerate(mask)]
    end = len(ids) - ids[::-1].index(stop)
    return ids[:end], mask[:end]


def joined(sequences: Sequence[Masked]) -> list[Masked]:
    """Join each sequence with the ones after it that it begins."""
    found: list[Masked] = []
    for ids, mask in sequences:
        before = found.pop()[1] if found and ids[: len(found[-1][0])] == found[-1][0] else []
        before = before + [0] * (len(mask) - len(before))
        found.append((ids, [max(pair) for pair in zip(mask, before, strict=True)]))
    return found


def keeping_row(key: str, size_name: str, length: Length, peer: float, floor: float, *, bound: bool) -> Row:
    """Make a row "chat -> samples", one sample a conversation: the template renders a reply alike wherever it stands.

    Args:
        key: the row's.
        size_name: the size, for its title.
        length: of the conversations.
        peer: the gate against the plain recipe.
        floor: the gate against the floor.
        bound: whether the libraries are gates too: never slower.
    """

    def prepare(size: Size) -> Case:
        tokenizer = qwen3_keeping_history()
        chats = conversations(*length.at(size))
        contenders, skipped = offer({
            OURS: partial(ours, tokenizer, chats, merge=True),
            FLOOR: partial(encoded_once, tokenizer, chats),
            RECIPE: partial(recipe, tokenizer, chats),
            TRL: partial(trl_trainer, tokenizer, chats),
            TRL_CALLS: partial(trl_masks, tokenizer, chats),
            TINKER: partial(tinker_cookbook, tokenizer, chats, keep=True),
            RENDERERS: partial(renderers_package, tokenizer, chats, keep=True),
            A_TURN_EACH: partial(ours, tokenizer, chats, merge=False),
        })  # fmt: skip

        def normal(name: str, result: Any) -> list[Masked]:
            if name == FLOOR:  # it gives no mask: the recipe's is filled in
                masks = [mask for _, mask in joined(masked(RECIPE, contenders[RECIPE]()))]
                return list(zip(result, masks, strict=True))
            return joined(masked(name, result))

        return Case(contenders, normal, skipped)

    limit = 1.0 if bound else None
    gates = (
        Gate(RECIPE, peer), Gate(FLOOR, floor, "floor"), Gate(TRL, limit), Gate(TINKER, limit), Gate(RENDERERS, limit),
        Gate(TRL_CALLS), Gate(A_TURN_EACH, None, "floor"),
    )  # fmt: skip
    return Row(key, f"chat -> samples, {size_name} tokens", prepare, [Reading("CPU time", cpu_time, gates)])


def rewriting_row(key: str, size_name: str, length: Length, peer: float, floor: float, *, libraries: bool) -> Row:
    """Make a row "one sample a turn": the template drops earlier reasoning, so that no two turns share a sequence.

    Args:
        key: the row's.
        size_name: the size, for its title.
        length: of the conversations, their reasoning included.
        peer: the gate against the plain recipe.
        floor: the gate against every conversation, with all its reasoning, encoded once.
        libraries: whether TRL, tinker-cookbook and renderers are shown; they render every turn anew, which takes long.
    """

    def prepare(size: Size) -> Case:
        tokenizer = qwen3()
        chats = conversations(*length.at(size), reasoning=True)
        loads: dict[str, Callable[[], Work]] = {
            OURS: partial(ours, tokenizer, chats, merge=False),
            FLOOR: partial(encoded_once, qwen3_keeping_history(), chats),
            RECIPE: partial(recipe, tokenizer, chats),
        }
        if libraries:
            loads |= {
                TRL: partial(trl_completions, tokenizer, chats),
                TINKER: partial(tinker_cookbook, tokenizer, chats, keep=False),
                RENDERERS: partial(renderers_package, tokenizer, chats, keep=False),
            }
        contenders, skipped = offer(loads)

        def normal(name: str, result: Any) -> list[Masked]:
            # the floor has all the reasoning in one text, which is no sample: the recipe stands in for it
            return masked(RECIPE, contenders[RECIPE]()) if name == FLOOR else masked(name, result)

        return Case(contenders, normal, skipped)

    gates = [Gate(RECIPE, peer), Gate(FLOOR, floor, "floor")]
    gates += [Gate(TRL), Gate(TINKER), Gate(RENDERERS)] if libraries else []
    work = f"one sample a turn, history rewritten, {size_name} tokens"
    return Row(key, work, prepare, [Reading("CPU time", cpu_time, tuple(gates))])
