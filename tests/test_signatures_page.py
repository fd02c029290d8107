"""The package keeps what the signatures page promises: tests generated from the page itself (tests/data/signatures.md)."""

import ast
import importlib
import inspect
import re

import pytest
from signatures_page import PAGE, Promise, promises

import samplekit as sk

PROMISES = promises()
ASYNC = {"Client": "AsyncClient", "Session": "AsyncSession", "Operation": "AsyncOperation"}
CALLS = [item for item in PROMISES if item.arguments is not None]
AWAITED = [item for item in CALLS if item.module == "samplekit.client" and (item.owner or item.name) in ASYNC]
# Arguments that the page does not have, added on purpose, and why; all have a default.
_FULL = "what does not fit or trains nothing is refused, dropped or cut as in pack"
_SESSION = "all that the wire's lora_config and session take"
_LAYOUT = "the trainer decides layout and dtype"
ADDED = {
    "samplekit.SampleBuilder.build": {"progress": "long builds show how far they are"},
    "samplekit.Group": {"prompt_logprobs": "the service gives them with a group"},
    "samplekit.build_grpo_samples": {"advantages": "given ones are taken, as build_trajectory_samples does"},
    "samplekit.build_trajectory_samples": {"overlong": "as in build_grpo_samples"},
    "samplekit.read_chats": {
        "format": "files name their columns in many ways",
        "on_fault": "a broken line may be skipped",
    },
    "samplekit.Record.from_sample": {"id": "a record's name, as the constructor takes it"},
    "samplekit.plan_packing": {"oversize": _FULL},
    "samplekit.pack": {"max_items": "as in plan_packing", "groups": "as in plan_packing", "untrained": _FULL},
    "samplekit.unpack": {"shifted": "what is read may lack the last token", "pad_to_multiple_of": "as in to_training"},
    "samplekit.batch": {"max_tokens": "batches may be bounded by tokens"},
    "samplekit.SampleBatch.to_training": {"options": "batching.md's options, spelled out: tests/batching holds them"},
    "samplekit.SampleBatch.to_framework": {"dtype": _LAYOUT},
    "samplekit.StreamingPacker": {"oversize": _FULL, "untrained": _FULL},
    "samplekit.training.PackingCollator": {"pad_to_multiple_of": _LAYOUT, "padding_side": _LAYOUT, "oversize": _FULL},
    "samplekit.client.Client": {"max_answer_bytes": "sizes of answers are bounded"},
    "samplekit.client.Client.session": dict.fromkeys(
        ("lora_dropout", "lora_train_unembed", "metadata", "load_optimizer"), _SESSION
    ),
    **{
        f"samplekit.client.Session.{name}": {"idempotency_key": "a call without an answer is gone on with"}
        for name in (
            "forward",
            "forward_backward",
            "custom_forward_backward",
            "optim_step",
            "weights_sync",
            "save_inference_checkpoint",
            "save_training_checkpoint",
        )
    },
    "samplekit.client.Session.generate": {
        **dict.fromkeys(
            ("topk_prompt_logprobs", "return_routed_experts"), "all that the wire's sample operation takes"
        ),
        "idempotency_key": "a call without an answer is gone on with",
    },
    "samplekit.client.Session.operation": {"prompts": "groups of an operation that is picked up again hold them"},
}
MADE = {"SampleBatch": lambda: sk.SampleBatch([])}  # attributes that no class shows
# What the page says of results in comments.
IN_COMMENTS = {
    "Plan": ".num_rows .order .offsets .utilization .lower_bound .num_dropped .num_truncated",
    "Report": ".errors .warnings",
    "LossOutput": ".loss .metrics .token_losses",
}
LOSSES = (sk.CrossEntropy, sk.ImportanceSampling, sk.PPO, sk.GRPO, sk.CISPO, sk.DPPO, sk.DRO)


def find(item, names=None):
    module = importlib.import_module(item.module)
    owner = (names or {}).get(item.owner, item.owner)
    name = item.name if item.owner else (names or {}).get(item.name, item.name)
    return getattr(getattr(module, owner) if owner else module, name)


def parameters_of(found):
    """Parameters without self, by name; a class has those that make it."""
    return {name: item for name, item in inspect.signature(found).parameters.items() if name not in ("self", "cls")}


def spelled_out(item):
    """Whether the page's ``**options`` stand one by one in the package."""
    arguments = item.parameters()
    return arguments.kwarg is not None and arguments.kwarg.arg in ADDED.get(item.label, {})


def promised(item):
    """Name -> (kind, default) of the page, in order; the default is `inspect.Parameter.empty` where it has none."""
    arguments = item.parameters()
    kind, empty = inspect.Parameter, inspect.Parameter.empty
    plain = [empty] * (len(arguments.args) - len(arguments.defaults))
    plain += [ast.literal_eval(value) for value in arguments.defaults]
    found = {arg.arg: (kind.POSITIONAL_OR_KEYWORD, value) for arg, value in zip(arguments.args, plain, strict=True)}
    for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found[arg.arg] = (kind.KEYWORD_ONLY, empty if value is None else ast.literal_eval(value))
    if arguments.kwarg is not None and not spelled_out(item):
        found[arguments.kwarg.arg] = (kind.VAR_KEYWORD, empty)
    return found


def broken(item, parameters):
    """Yield where parameters do not keep a promise."""
    page = promised(item)
    names = list(parameters)
    positional = [name for name, (kind, _) in page.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    for at, name in enumerate(positional):
        if name != "_choice" and names[at : at + 1] != [name]:
            yield f"argument {at} is {names[at : at + 1]}, promised {name}"
    keywords = [name for name in page if name not in positional]
    if [name for name in names if name in keywords] != keywords:
        yield f"keywords {names}, promised {keywords}"
    for name, (kind, default) in page.items():
        have = parameters.get(name)
        if have is None:
            continue  # said above
        if have.kind is not kind:
            yield f"{name} is {have.kind.description}, promised {kind.description}"
        if have.default != default or type(have.default) is not type(default):
            yield f"{name}={have.default!r}, promised {default!r}"
    for name in names[len(positional) :]:
        if name not in page:
            yield from added(item, parameters[name])


def added(item, parameter):
    """Yield why an argument that the page does not have may not be there."""
    if parameter.name not in ADDED.get(item.label, {}) and not spelled_out(item):
        yield f"{parameter.name} is not on the page: say why in ADDED"
    if parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
        yield f"{parameter.name} has no default"


@pytest.mark.parametrize("item", PROMISES, ids=lambda item: item.label)
def test_every_name_of_the_page_is_there(item):
    owner = item.owner and getattr(importlib.import_module(item.module), item.owner)
    fields = {*getattr(owner, "model_fields", {}), *getattr(owner, "__dataclass_fields__", {})}
    made = MADE[item.owner]() if item.owner in MADE else None
    assert item.name in fields or hasattr(made, item.name) or find(item) is not None


@pytest.mark.parametrize("item", CALLS, ids=lambda item: item.label)
def test_arguments_order_and_defaults_are_those_of_the_page(item):
    assert list(broken(item, parameters_of(find(item)))) == []


@pytest.mark.parametrize("item", AWAITED, ids=lambda item: item.label)
def test_the_async_side_takes_the_same(item):
    assert list(broken(item, parameters_of(find(item, ASYNC)))) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_what_the_page_gives_the_last_of_them(loss):
    methods = [item.name for item in PROMISES if item.owner == "DRO"]
    assert methods == ["to_wire", "required_inputs", "optional_inputs"]
    assert all(not parameters_of(getattr(loss, name)) for name in methods)


@pytest.mark.parametrize("name", IN_COMMENTS)
def test_results_have_what_the_page_says_in_comments(name):
    assert IN_COMMENTS[name] in PAGE.read_text()
    owner = getattr(sk, name, None) or getattr(importlib.import_module("samplekit.training"), name)
    fields = {*getattr(owner, "model_fields", {}), *getattr(owner, "__dataclass_fields__", {})}
    wanted = {item.removeprefix(".") for item in IN_COMMENTS[name].split()}
    assert {item for item in wanted if item not in fields and not hasattr(owner, item)} == set()


def test_the_page_is_read_whole():
    """Every call that the page shows in its first blocks is among the promises: counted by another reading."""
    text = PAGE.read_text().partition("## The loops these names must allow")[0]
    code = " ".join(line.partition("#")[0] for block in text.split("```")[1::2] for line in block.splitlines())
    calls = re.findall(r"[.\w]+\((?!\.)", code)
    assert len(calls) == len([item for item in PROMISES if item.arguments is not None])
    assert len(PROMISES) == 116


def test_every_added_argument_is_there_and_not_on_the_page():
    labels = {item.label: item for item in CALLS}
    for label, names in ADDED.items():
        have = parameters_of(find(labels[label]))
        assert spelled_out(labels[label]) or set(names) <= set(have), label
        assert not set(names) & set(promised(labels[label])), label


def promise(arguments):
    return Promise("samplekit", "", "f", arguments)


def test_a_broken_promise_is_noticed():
    def f(a, b=1, *, c="x", d=None): ...

    have = parameters_of(f)
    assert list(broken(promise("a, b=1, *, c='x', d=None"), have)) == []
    faults = {
        "b, a=1, *, c='x', d=None": "argument 0 is ['a'], promised b",
        "a, b=2, *, c='x', d=None": "b=1, promised 2",
        "a, b=1.0, *, c='x', d=None": "b=1, promised 1.0",
        "a, b, *, c='x', d=None": "b=1, promised <class 'inspect._empty'>",
        "a, b=1, *, d=None, c='x'": "keywords ['a', 'b', 'c', 'd'], promised ['d', 'c']",
        "a, b=1, c='x', *, d=None": "c is keyword-only, promised positional or keyword",
        "a, b=1, *, c='x', d=None, e=1": "keywords ['a', 'b', 'c', 'd'], promised ['c', 'd', 'e']",
        "a, b=1, *, c='x'": "d is not on the page: say why in ADDED",
    }
    for arguments, fault in faults.items():
        assert fault in list(broken(promise(arguments), have)), arguments


def test_a_page_is_read_as_people_read_it():
    page = """## samplekit (ground)

```python
A(x, *, y=(1, 2)) ; .z .w(v) -> list[int]   B.make(t) -> B   # .not_this(1)
    .more(
      a, b) -> Found(.one .two)
Bare .only
```
## Who refuses what
"""
    found = [(item.owner, item.name, item.arguments) for item in promises(page)]
    assert found == [
        ("", "A", "x, *, y=(1, 2)"), ("A", "z", None), ("A", "w", "v"), ("B", "make", "t"), ("B", "more", "a, b"),
        ("Found", "one", None), ("Found", "two", None), ("", "Bare", None), ("Bare", "only", None),
    ]  # fmt: skip
