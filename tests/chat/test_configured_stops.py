"""The stops of generation_config.json: beside the tokenizer, or in the cache of what was downloaded before."""

import json

import pytest

from samplekit.chat import ChatTemplate
from samplekit.chat.load import configured_stop_ids, packaged_model
from samplekit.errors import TemplateError


def written(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "generation_config.json").write_text(content)
    return str(folder)


@pytest.mark.parametrize(
    ("content", "ids"),
    [('{"eos_token_id": 5}', [5]), ('{"eos_token_id": [5, 6]}', [5, 6]), ('{"eos_token_id": null}', []), ("{}", [])],
)
def test_ids_are_read_from_a_folder(tmp_path, content, ids):
    assert configured_stop_ids(written(tmp_path, content)) == ids


@pytest.mark.parametrize("name", ["", "nope/nope", "/nowhere/at/all", "any name: at all?", "a/b/c", "samplekit/nope"])
def test_where_there_is_no_file_there_are_no_ids(name):
    assert configured_stop_ids(name) == []


def test_ids_are_read_from_the_cache_of_a_name(tmp_path, monkeypatch):
    cached = tmp_path / "models--org--name"
    written(cached / "snapshots" / "abc", '{"eos_token_id": [3]}')
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert configured_stop_ids("org/name") == [3]


@pytest.mark.parametrize("content", ["{", "[1]", '{"eos_token_id": "</s>"}', '{"eos_token_id": [true]}', "\udcff"])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "generation_config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(TemplateError) as caught:
        configured_stop_ids(str(tmp_path))
    assert caught.value.code == "load_failed"
    assert str(tmp_path / "generation_config.json") in str(caught.value)


def test_a_template_whose_folder_holds_a_broken_file_says_so(tmp_path):
    ChatTemplate.load("samplekit/tiny").tokenizer.save_pretrained(tmp_path)
    written(tmp_path, "{")
    with pytest.raises(TemplateError, match=r"generation_config\.json"):
        ChatTemplate.load(str(tmp_path))


def test_the_packaged_model_stops_where_its_file_says():
    template = ChatTemplate.load("samplekit/tiny")
    listed = json.loads((packaged_model("samplekit/tiny") / "generation_config.json").read_text())["eos_token_id"]
    assert set(listed) <= set(template.stop_ids)
