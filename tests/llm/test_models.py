from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ada_bandit.errors import InputError
from llm.config import ModelConfig
from llm.models import choose_device, encode, encode_all, load_model, load_tokenizer, new_directory
from llm.types import Prompt

pytestmark = pytest.mark.torch
CONFIG = ModelConfig(path="unused")


def prompt(text: str, id_: int = 0) -> Prompt:
    return Prompt(id_, f"p/{id_}", text, "", "")


@pytest.fixture
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(tiny_model_dir)


def test_prompts_are_encoded_character_by_character(tokenizer: Any) -> None:
    words = ["<pad>", "<eos>", "<unk>", *"0123456789+-*=<> ,?m"]
    wanted = [words.index(each) for each in "12+7="]
    assert encode(tokenizer, prompt("12+7=")) == wanted
    kept, encoded = encode_all(tokenizer, [prompt("12+7="), prompt("3", 1)], CONFIG)
    assert [each.id for each in kept] == [0, 1]
    assert encoded == [wanted, [words.index("3")]]
    assert encode_all(tokenizer, [], CONFIG) == ([], [])


def test_a_chat_template_is_used_where_there_is_one(tokenizer: Any) -> None:
    with pytest.raises(InputError, match="no chat template; set chat = 'never'"):
        encode(tokenizer, prompt("1"), chat="always")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<' + m['content'] + '>' }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    plain = {
        chat: tokenizer.decode(encode(tokenizer, prompt("1+1"), chat=chat)) for chat in ("auto", "never", "always")
    }
    assert plain == {"auto": "<1+1>=", "never": "1+1", "always": "<1+1>="}
    assert tokenizer.decode(encode(tokenizer, prompt("1+1"), system="m")) == "<m><1+1>="


def test_prompts_that_do_not_fit_or_are_empty(tokenizer: Any) -> None:
    some = [prompt("1+1="), prompt("1+1=2+2=", 1), prompt("3", 2)]
    with pytest.raises(InputError, match=r"'p/1' has 8 tokens, more than the 5 .*task.overlong = 'skip'"):
        encode_all(tokenizer, some, CONFIG, longest=5)
    kept, encoded = encode_all(tokenizer, some, CONFIG, longest=5, overlong="skip")
    assert [each.id for each in kept] == [0, 2]
    assert [len(each) for each in encoded] == [4, 1]
    with pytest.raises(InputError, match="'p/0' has no tokens"):
        encode(tokenizer, prompt(""))


def test_directories_that_hold_no_model(tmp_path: Path, tiny_model_dir: Path) -> None:
    with pytest.raises(InputError, match=r"does not exist.*make-tiny"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no config.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}), encoding="utf-8")
    with pytest.raises(InputError, match="can't be loaded"):
        load_model(tmp_path)
    with pytest.raises(InputError, match=r"tokenizer in .* can't be loaded"):
        load_tokenizer(tmp_path)
    with pytest.raises(InputError, match=r"the device 'cuda' is not there; this machine has .*cpu"):
        choose_device("cuda")
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize("name", ["file", "dangling", "missing/../file"])
def test_a_new_directory_takes_the_place_of_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="is there already; remove it"), new_directory(tmp_path / name):
        pass
    assert sorted(tmp_path.iterdir()) == before
