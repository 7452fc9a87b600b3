"""An agent: a model writes programs, a sandbox runs them, and the model reads what came of them, until it has an answer.

The model is a function from messages to the next one. Without OPENAI_BASE_URL, it is a script that needs no key: it writes a program with
a mistake, reads the error, and mends it. What is printed of a program may be hostile: it is escaped by the tool.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import httpx

from glovebox import GloveboxError, Sandbox
from glovebox.tools import PythonTool

Message = dict[str, Any]
Model = Callable[[list[Message], list[dict[str, Any]]], Message]

MOST_TURNS = 10
TASK = "Write a function that gives the mean of a list of numbers, and 0.0 of an empty list. Try it, then say what it gives."


def loop(model: Model, tool: PythonTool, task: str) -> str:
    """Model, tool call, sandbox, result, model, and so on. Gives the answer."""
    messages: list[Message] = [{"role": "user", "content": task}]
    tools = [{"type": "function", "function": tool.schema()}]
    for _ in range(MOST_TURNS):
        said = model(messages, tools)
        messages.append(said)
        calls = said.get("tool_calls") or []
        if not calls:
            return str(said.get("content") or "")
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            print(f"--- the model calls {name!r}\n{_program(arguments)}\n--- the sandbox says", flush=True)
            result = (
                tool.run(arguments) if name == tool.name else f"error: there is no tool of this name, but {tool.name}"
            )
            print(result, flush=True)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    raise SystemExit(f"the model found no answer in {MOST_TURNS} turns")


def _program(arguments: str) -> str:
    """What the model wrote, if it can be read: a terminal obeys some characters."""
    try:
        code = str(json.loads(arguments)["code"])
    except (ValueError, KeyError, TypeError):
        code = arguments
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in code)


# A model without a key.

WRONG = """\
def mean(numbers):
    return sum(numbers) / len(numbers)

print(mean([1, 2, 3, 4]))
print(mean([]))
"""
RIGHT = WRONG.replace("return sum", "return 0.0 if not numbers else sum")


def scripted(messages: list[Message], tools: list[dict[str, Any]]) -> Message:
    """Writes a program; mends it when it reads of an error; answers with what it printed."""
    last = messages[-1]
    if last["role"] != "tool":
        return _call(tools, WRONG)
    if "ZeroDivisionError" in last["content"]:
        return _call(tools, RIGHT)
    some, none = last["content"].splitlines()[-2:]
    return {"role": "assistant", "content": f"the mean of no numbers is {none}, and of 1, 2, 3, 4 it is {some}"}


def _call(tools: list[dict[str, Any]], code: str) -> Message:
    function = {"name": tools[0]["function"]["name"], "arguments": json.dumps({"code": code})}
    call = {"id": f"call-{len(code)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


# Any endpoint that speaks OpenAI's chat completions. The key stays in this process: nothing of its environment enters the sandbox.


def openai(base_url: str, key: str, model: str) -> Model:
    """The model behind an endpoint."""
    client = httpx.Client(base_url=base_url.rstrip("/") + "/", headers={"Authorization": f"Bearer {key}"}, timeout=120)

    def ask(messages: list[Message], tools: list[dict[str, Any]]) -> Message:
        answer = client.post("chat/completions", json={"model": model, "messages": messages, "tools": tools})
        answer.raise_for_status()
        said: Message = answer.json()["choices"][0]["message"]
        return said

    return ask


def chosen() -> Model:
    """As the environment says."""
    base_url = os.environ.get("OPENAI_BASE_URL")
    if not base_url:
        return scripted
    try:
        return openai(base_url, os.environ["OPENAI_API_KEY"], os.environ["MODEL"])
    except KeyError as missing:
        raise SystemExit(f"OPENAI_BASE_URL is set; set {missing} as well") from None


def main() -> None:
    parser = argparse.ArgumentParser(description="A model that has programs run in a sandbox.")
    parser.add_argument("task", nargs="?", default=TASK)
    parser.add_argument("--image", default="python:3.14-slim")
    parser.add_argument("--namespace")
    parser.add_argument("--class-name")
    parser.add_argument("--cpu", default="500m")
    parser.add_argument("--memory", default="256Mi")
    options = parser.parse_args()
    model = chosen()
    try:
        with Sandbox.create(
            image=options.image,
            namespace=options.namespace,
            class_name=options.class_name,
            resources={"cpu": options.cpu, "memory": options.memory},
            ttl="10m",
        ) as sandbox:
            print("answer:", loop(model, PythonTool(sandbox, timeout="30s"), options.task))
    except GloveboxError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
