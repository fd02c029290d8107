"""docs/service.md: its program runs as printed, with the vendor's own SDK."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/service.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_what_the_vendors_sdk_samples_trains_as_groups():
    (block,) = BLOCKS
    names = {}
    exec(block, names)
    (group,) = names["groups"]
    assert (group.id, group.prompt.tolist(), len(group)) == ("task 1", [100, 101, 102], 4)
    assert [sample.tokens.tolist()[3:] for sample in names["samples"]] == [
        completion.tokens.tolist() for completion in group.completions
    ]
    assert len(names["result"].sequences) == 4
