"""Encoding sampled text again: where it drifts, told and never acted on."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_tokenizers import toy, toy_ids
from tokenizers import Tokenizer

import samplekit as sk
from samplekit.chat import ChatTemplate

TINY = ChatTemplate.load("samplekit/tiny")
TOY = toy(merges=True)  # TOK-M: ".m" is one token, 50
SPLIT = toy_ids(["a", ".", "m"])
KINDS = {
    "template": lambda: TINY,
    "transformers": lambda: TINY.tokenizer,
    "tokenizers": lambda: TINY.tokenizer.backend_tokenizer,
}


def test_a_token_that_was_sampled_in_two_parts_is_found():
    drift = sk.encoding_drift("a.m", SPLIT, TOY)
    assert (drift.index, drift.sampled, drift.encoded) == (1, 3, 2)
    assert (drift.sampled_context, drift.encoded_context) == (("a", ".", "m"), ("a", ".m"))
    assert "token 1" in str(drift)
    assert "'.m'" in str(drift)
    assert sk.encoding_drift("a.m", [SPLIT[0], 50], TOY) is None


@pytest.mark.parametrize("place", [0, 1, 7, 40])
@pytest.mark.parametrize(
    "cast", [list, tuple, lambda ids: [str(token) for token in ids]], ids=["list", "tuple", "decimals"]
)
def test_the_first_difference_is_found_wherever_it_is(place, cast):
    text = "a" * place + ".m" + "a" * 9
    ids = toy_ids([*text])
    drift = sk.encoding_drift(text, cast(ids), TOY)
    assert drift.index == place
    assert "".join(drift.sampled_context) in text
    assert len(drift.sampled_context) == min(place, 5) + 6


@pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "text", ["Hello, world.", "<|im_start|>user\nA<|im_end|>", "", "déjà vu \u2014 \U0001f600"], ids=str
)
def test_every_kind_of_tokenizer_puts_nothing_in_front_and_leaves_nothing_out(tokenizer, text):
    tokenizer = tokenizer()
    ids = TINY.encode(text)
    assert sk.encoding_drift(text, ids, tokenizer) is None
    drift = sk.encoding_drift(text, [*ids, TINY.stop_ids[0]], tokenizer)
    assert drift.index == len(ids)
    assert drift.sampled_context[-1] == TINY.decode(TINY.stop_ids[:1])


@given(st.text(alphabet="am.", max_size=20))
def test_none_means_that_the_ids_are_the_same(text):
    drift = sk.encoding_drift(text, toy_ids([*text]), TOY)
    assert (drift is None) == (".m" not in text)
    if drift:
        assert drift.index == text.index(".m")


@pytest.mark.parametrize(
    ("text", "ids", "tokenizer", "words"),
    [
        (None, [1], TOY, "text is None"), ("a", ["x"], TOY, "ids holds 'x'"), ("a", [1.5], TOY, "ids holds 1.5"),
        ("a", [1], object(), "tokenizer is an object"), ("a", [1], None, "tokenizer is None"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(text, ids, tokenizer, words):
    with pytest.raises(sk.SampleError, match=words):
        sk.encoding_drift(text, ids, tokenizer)


class Loose:
    """Takes any option, as a wrapper does, and hands it on."""

    def encode(self, text, **options):
        return TINY.tokenizer.backend_tokenizer.encode("A" * options.get("add_special_tokens", True) + text)

    def decode(self, ids, **options):
        return TINY.tokenizer.decode(ids, skip_special_tokens=options.get("skip_special_tokens", True))


def test_a_tokenizer_that_takes_any_option_is_given_ours():
    stop = TINY.stop_ids[0]
    assert sk.encoding_drift("B", TINY.encode("B"), Loose()) is None
    drift = sk.encoding_drift("B", [*TINY.encode("B"), stop], Loose())
    assert drift.sampled_context[-1] == TINY.decode([stop])


def test_a_tokenizer_that_puts_something_in_front_is_asked_not_to():
    backend = Tokenizer.from_str(TINY.tokenizer.backend_tokenizer.to_str())
    from tokenizers.processors import TemplateProcessing

    stop = TINY.stop_ids[0]
    backend.post_processor = TemplateProcessing(single="<|im_end|> $A", special_tokens=[("<|im_end|>", stop)])
    assert backend.encode("A").ids[0] == stop
    assert sk.encoding_drift("A", TINY.encode("A"), backend) is None


@pytest.mark.parametrize("kind", ["transformers", "tokenizers"])
def test_an_id_that_gives_no_text_is_shown_as_the_number_it_is(kind):
    assert sk.encoding_drift("ab", [10**9], KINDS[kind]()).sampled_context == ("<id 1000000000>",)


@pytest.mark.parametrize(("kind", "token"), [("template", 10**9), *((kind, 2**40) for kind in KINDS)])
def test_an_id_that_cannot_be_decoded_is_named(kind, token):
    with pytest.raises(sk.SampleError, match=str(token)):
        sk.encoding_drift("ab", [token], KINDS[kind]())


class Failing:
    def __init__(self, failing):
        self.failing = failing

    def encode(self, text):
        return TINY.encode(text) if self.failing != "encode" else 1 // 0

    def decode(self, ids):
        return TINY.decode(ids) if self.failing != "decode" else 1 // 0


@pytest.mark.parametrize("name", ["encode", "decode"])
def test_a_tokenizer_that_fails_is_named(name):
    with pytest.raises(sk.SampleError, match=rf"tokenizer\.{name}\(.* failed \(ZeroDivisionError: "):
        sk.encoding_drift("ab", [5], Failing(name))


def test_a_tokenizer_of_builtins_tells_no_options_and_is_called_without():
    builtins = SimpleNamespace(encode=str, decode=bytes)
    with pytest.raises(sk.SampleError, match=r"tokenizer\.encode\(text\) is a str"):
        sk.encoding_drift("ab", [5], builtins)
