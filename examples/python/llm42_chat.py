"""Spells a chat as the chat template of a model's folder does, with jinja2 in the environment that transformers has.

    python3 examples/python/llm42_chat.py FOLDER <request.json     # build/serve --chat-command runs this

The input is an object of JSON with `messages`, and, if wanted, `tools` and `chat_template_kwargs`. The text on standard
output is the prompt, with its special tokens written out, up to where the model's answer begins. If the template
refuses the messages, its reason is on standard error and the exit status is 3; any other fault ends with another
status. llm42.py uses this file for Model.chat.
"""
import datetime
import functools
import json
import os
import sys

REFUSED = 3  # the exit status for messages that the template refuses
INSTALL = "python3 -m pip install jinja2    # or the package python3-jinja2 of Debian and Ubuntu"


USAGE = """usage: llm42_chat.py FOLDER <request.json
Standard input must be the request, an object of JSON such as {"messages": [{"role": "user", "content": "hi"}]}; it may
also have "tools" and "chat_template_kwargs". FOLDER is a model's; standard output is the prompt."""


class Refused(ValueError):
    """What a template says of messages that it does not spell."""


class Missing(RuntimeError):
    """Something is not here: jinja2, or a template."""


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _config(folder):
    """tokenizer_config.json, and what special_tokens_map.json adds to it, as older folders have it."""
    config = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if os.path.exists(os.path.join(folder, name)):
            config.update({k: v for k, v in json.loads(_read(os.path.join(folder, name))).items() if v is not None})
    return config


def template(folder, tools=False):
    """The text of a folder's template: chat_template.jinja, or else chat_template of tokenizer_config.json."""
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.exists(path):
        return _read(path)
    found = _config(folder).get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {one["name"]: one["template"] for one in found}
        found = named.get("tool_use" if tools else "default") or named.get("default")
    if not isinstance(found, str):
        raise Missing(f"{folder}: no chat_template.jinja, and no chat_template in tokenizer_config.json")
    return found


def special_tokens(folder):
    """The variables bos_token, eos_token and so on, as tokenizer_config.json says them."""
    names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
    found = {name: _config(folder).get(name) for name in names}
    found = {name: token["content"] if isinstance(token, dict) else token for name, token in found.items()}
    return {name: token for name, token in found.items() if isinstance(token, str)}


@functools.lru_cache(maxsize=16)
def compiled(text):
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError:
        raise Missing(f"chat templates need the Python package jinja2: {INSTALL}") from None

    class Generation(jinja2.ext.Extension):
        """{% generation %}, which marks an assistant's words for training and changes no text."""
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            return jinja2.nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True), lineno=line)

    def refuse(message):
        raise Refused(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                               extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(text)


def _message(message):
    """A message without what is null; a model's reasoning has the names that templates know it by."""
    message = {name: value for name, value in message.items() if value is not None}
    names = ("reasoning_content", "thinking", "reasoning")
    reasoning = next((message[name] for name in names if name in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def render(text, messages, tools=None, variables=()):
    """The prompt that a template's text makes of messages. `variables` are the template's, bos_token included."""
    program = compiled(text)
    import jinja2
    variables = {"add_generation_prompt": True, **dict(variables), "tools": tools or None, "documents": None,
                 "messages": [_message(message) for message in messages]}
    try:
        return program.render(variables)
    except (jinja2.TemplateError, Refused, TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
        raise Refused(f"the chat template refuses these messages: {error}") from error


def render_folder(folder, messages, tools=None, variables=()):
    """The same by the template and the special tokens of a model's folder."""
    return render(template(folder, bool(tools)), messages, tools, {**special_tokens(folder), **dict(variables)})


def _request():
    """The request on standard input."""
    try:
        asked = json.load(sys.stdin)
    except ValueError as error:
        raise Missing(f"standard input is no JSON: {error}\n{USAGE}") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
        raise Missing(f"standard input has no list of `messages`\n{USAGE}")
    return asked


def main(arguments):
    if arguments in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    try:
        sys.stdin.reconfigure(encoding="utf-8")
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        if len(arguments) != 1:
            raise Missing(f"give one FOLDER\n{USAGE}")
        asked = _request()
        sys.stdout.write(render_folder(arguments[0], asked["messages"], asked.get("tools"),
                                       asked.get("chat_template_kwargs") or {}))
    except Refused as error:
        print(error, file=sys.stderr)
        return REFUSED
    except (Missing, OSError, ValueError, KeyError, TypeError) as error:
        print(f"llm42_chat.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
