"""Fixtures of the chat tests."""

from __future__ import annotations

import pytest
import real_tokenizers as real

from samplekit.chat import ChatTemplate


@pytest.fixture(scope="session")
def sentencepiece_folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("sentencepiece"))


@pytest.fixture(scope="session")
def llama2(sentencepiece_folder) -> ChatTemplate:
    return ChatTemplate(real.sentencepiece(sentencepiece_folder, real.own_template("llama2")))


@pytest.fixture(scope="session")
def llama2_legacy(sentencepiece_folder) -> ChatTemplate:
    return ChatTemplate(real.sentencepiece(sentencepiece_folder, real.own_template("llama2"), legacy=True))


@pytest.fixture(scope="session")
def mistral_v1(sentencepiece_folder) -> ChatTemplate:
    return ChatTemplate(real.sentencepiece(sentencepiece_folder, real.own_template("mistral_v1")))


@pytest.fixture(scope="session")
def qwen3() -> ChatTemplate:
    return ChatTemplate(real.qwen3())


@pytest.fixture(scope="session")
def tiny() -> ChatTemplate:
    return ChatTemplate.load("samplekit/tiny", thinking=False)
