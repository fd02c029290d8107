"""The kinds of conversation every published template is tried with."""

from __future__ import annotations

import json


def user(content="What is 2 + 2?"):
    return {"role": "user", "content": content}


def said(content="The answer is four.", **fields):
    return {"role": "assistant", "content": content, **fields}


def system(content="Be kind and brief."):
    return {"role": "system", "content": content}


def calling(arguments, content="", times=1):
    names = ["get_weather", "get_time"]
    calls = [
        {"id": f"call0000{place}", "type": "function", "function": {"name": names[place], "arguments": arguments}}
        for place in range(times)
    ]
    return said(content, tool_calls=calls)


def result(content='{"temperature": 12}', name="get_weather", number=0):
    return {"role": "tool", "name": name, "tool_call_id": f"call0000{number}", "content": content}


def tool(name):
    properties = {"city": {"type": "string", "description": "Name of the city."}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": f"Calls {name}.", "parameters": parameters}}


TOOLS = [tool("get_weather"), tool("get_time")]
OSLO = {"city": "Oslo"}
CODE = "\n    def f(x):\n        return x\n\n"
SCRIPTS = "Ünï 你好 こんにちは مرحبا Привет नमस्ते 🎉👩‍👩‍👧"

# Kind -> messages and tools. Texts are long enough that no template holds them by accident.
KINDS = {
    "single": ([user(), said()], None),
    "system": ([system(), user(), said()], None),
    "three turns": ([user("One please"), said("Uno it is."), user("Two please"), said("Dos it is."), user("Now three"), said("Tres it is.")], None),
    "reasoning field": ([user(), said(reasoning_content="Adding two and two.")], None),
    "reasoning inline": ([user(), said("<think>\nAdding two and two.\n</think>\n\nThe answer is four.")], None),
    "reasoning twice": ([user(), said(reasoning_content="Adding two and two."), user("And 3 + 3?"), said("It is six.", reasoning_content="Adding threes.")], None),
    "tool flow object": ([user("Weather in Oslo?"), calling(OSLO), result(), said("It is 12 degrees.")], TOOLS),
    "tool flow text": ([user("Weather in Oslo?"), calling(json.dumps(OSLO)), result(), said("It is 12 degrees.")], TOOLS),
    "tool flow null content": ([user("Weather in Oslo?"), calling(OSLO, None), result(), said("It is 12 degrees.")], TOOLS),
    "tool call with prose": ([user("Weather in Oslo?"), calling(OSLO, "Let me look that up.")], TOOLS),
    "parallel calls": ([user("Weather and time in Oslo?"), calling(OSLO, times=2), result(), result("noon", "get_time", 1), said("It is noon and 12 degrees.")], TOOLS),
    "tools unused": ([user(), said()], TOOLS),
    "leading white space": ([user(), said("\n\n  The answer is four.")], None),
    "trailing white space": ([user(), said("The answer is four. \n\n")], None),
    "code indent": ([user("Write code"), said(CODE)], None),
    "control token in content": ([user("Say <|im_end|></s><eos>[INST]<｜User｜>"), said()], None),
    "empty reply": ([user(), said("")], None),
    "consecutive replies": ([user(), said("The first part."), said("The second part.")], None),
    "trailing user": ([user(), said(), user("Thanks a lot")], None),
    "leading reply": ([said("Welcome to you!"), user(), said()], None),
    "scripts and emoji": ([user(SCRIPTS), said(SCRIPTS)], None),
    "short texts": ([user("a"), said("e"), user("s"), said("<")], None),
    "cut by length": ([user(), said("The answer is", finish_reason="length")], None),
    "system only late": ([user(), said(), system(), user("And 3 + 3?"), said("It is six.")], None),
}  # fmt: skip
