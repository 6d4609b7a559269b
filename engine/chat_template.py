"""Chat messages to prompt text, by the model's own Jinja template.

A template is a program out of a file somebody else made. It runs in Jinja's immutable sandbox with the names
that published templates expect (those of Hugging Face's renderer: `raise_exception`, `strftime_now`, `tojson`,
loop controls, `generation` blocks), and within bounds: loops and calls watch a deadline, and every way to build
text a size limit. What still gets past that (one call that builds something huge) ends the engine's process, never the chat.

Whatever goes wrong becomes TemplateFailed with one line. A template that refuses or drops system messages gets
them at the head of the next user message. A model without a template gets ChatML if its vocabulary has the
markers, else a plain transcript; `notice` then says so and `stop` has what must end the reply.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engine.errors import TemplateFailed
from engine.values import ChatMessage

SECONDS = 5.0  # for one rendering; real templates take some milliseconds per hundred messages
MOST_TEXT = 1 << 20  # characters a template may write itself; the messages come on top, up to four times over

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TRANSCRIPT = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ message.content }}\n\n"
    "{% else %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


class ChatTemplate:
    """A compiled template. Rendering has no side effects and can be repeated."""

    def __init__(
        self, text: str, *, bos: str = "", eos: str = "", stop: Sequence[str] = (), notice: str | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`bos` and `eos` are the texts of those tokens. Raises TemplateFailed if the template does not parse."""
        self.stop = tuple(stop)
        """Stop strings that replies need with this template, beside the end tokens."""
        self.notice = notice
        """What the user should know about the template, or None."""
        self._constants = {
            "bos_token": bos, "eos_token": eos, "tools": None, "documents": None,
            "strftime_now": lambda form: now().strftime(form),
        }
        self._environment = _Environment()
        try:
            self._template = self._environment.bounded_template(text)
        except Exception as error:  # the compiler can fail in many ways (syntax, recursion, memory)
            raise TemplateFailed(f"the model's chat template does not parse: {_line(error)}") from error

    @classmethod
    def for_model(cls, text: str | None, *, bos: str, eos: str, is_token: Callable[[str], bool]) -> ChatTemplate:
        """The model's own template, or the fallback that suits its vocabulary."""
        if text is not None:
            return cls(text, bos=bos, eos=eos)
        if is_token("<|im_start|>") and is_token("<|im_end|>"):
            return cls(_CHATML, bos=bos, eos=eos, notice="the model file has no chat template; ChatML is assumed")
        return cls(
            _TRANSCRIPT, bos=bos, eos=eos, stop=("\nUser:",),
            notice="the model file has no chat template; chats are written as a plain User/Assistant transcript",
        )

    def render(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt, ending where the reply begins. `variables` are extra names such as enable_thinking."""
        if not self._takes_system:
            messages = _system_into_user(messages)
        return self._render(messages, add_generation_prompt, variables or {})

    @functools.cached_property
    def _takes_system(self) -> bool:
        """Tried rather than read off the template: some refuse system messages, some drop them silently."""
        try:
            text = self._render([ChatMessage("system", "SYSTEM-PROBE"), ChatMessage("user", "x")], True, {})
        except TemplateFailed:
            return False
        return "SYSTEM-PROBE" in text

    def _render(self, messages: Sequence[ChatMessage], generation: bool, variables: Mapping[str, object]) -> str:
        plain = [{"role": message.role, "content": message.content} for message in messages]
        self._environment.begin(sum(len(message.content) for message in messages))
        names = {**self._constants, **variables, "messages": plain, "add_generation_prompt": generation}
        try:
            written, pieces = 0, []
            for piece in self._template.generate(names):
                pieces.append(piece)
                written += len(piece)
                self._environment.bound(written)
            return "".join(pieces)
        except _Refused as error:
            raise TemplateFailed(f"the model's chat template refuses these messages: {_line(error)}") from error
        except Exception as error:  # somebody else's program: it can raise whatever it likes
            raise TemplateFailed(f"the model's chat template failed: {_line(error)}") from error


def _system_into_user(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Put every system message at the head of the next user message, or let it be one if none follows."""
    out: list[ChatMessage] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message.content)
        elif message.role == "user":
            out.append(ChatMessage("user", "\n\n".join([*waiting, message.content])))
            waiting = []
        else:
            out.append(message)
    return [*out, ChatMessage("user", "\n\n".join(waiting))] if waiting else out


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:200] if isinstance(error, TemplateError) and text else f"{type(error).__name__}: {text[:200]}"


class _Refused(TemplateError):
    """The template called raise_exception."""


class _OutOfBounds(TemplateError):
    """The template works for too long or writes too much."""


class _Generation(Extension):
    """`{% generation %}` marks the text a model is trained on; for a prompt it means nothing."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounds(NodeTransformer):
    """Rewrites a template so that each turn of a loop and each macro call asks the environment whether to go
    on, and so that `~` goes through it. (The sandbox intercepts calls and operators, but not these.)"""

    def __init__(self, environment: _Environment) -> None:
        self._environment = environment

    def _checked(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        check = nodes.Call(nodes.EnvironmentAttribute("check"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(check, lineno=node.lineno).set_environment(self._environment))
        return node

    visit_For = visit_Macro = _checked

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        join = nodes.EnvironmentAttribute("concatenate")
        return nodes.Call(join, node.nodes, [], None, None, lineno=node.lineno).set_environment(self._environment)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        self.filters = {name: self._bounded(use) for name, use in {**self.filters, "tojson": _to_json}.items()}
        self.globals["raise_exception"] = _raise_exception
        self._deadline, self._most = time.monotonic() + SECONDS, MOST_TEXT

    def bounded_template(self, text: str) -> Template:
        """Compile `text` with the checks of _Bounds in it."""
        code = self.compile(_Bounds(self).visit(self.parse(text)))
        return Template.from_code(self, code, self.make_globals(None))

    def begin(self, given: int) -> None:
        """Start the clock for one rendering of messages of `given` characters."""
        self._deadline, self._most = time.monotonic() + SECONDS, MOST_TEXT + 4 * given

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise _OutOfBounds(f"it took more than {SECONDS:g} seconds")

    def bound(self, size: int) -> None:
        if size > self._most:
            raise _OutOfBounds(f"it writes more than {self._most} characters")

    def concatenate(self, *parts: object) -> str:
        texts = [str(part) for part in parts]
        self.bound(sum(map(len, texts)))
        return "".join(texts)

    def _bounded(self, use: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(use)  # and with it the marks by which Jinja knows what a filter wants as first argument
        def within_bounds(*args: Any, **kwargs: Any) -> Any:
            result = use(*args, **kwargs)
            self.bound(_size(result))
            return result

        return within_bounds

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        self.check()
        for value in (*args, *kwargs.values()):
            if isinstance(value, int):  # a width or a count, as in "x".ljust(10**10)
                self.bound(abs(value))
        result = super().call(context, obj, *args, **kwargs)
        self.bound(_size(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            self.bound(_size(left) + _size(right))
        elif operator == "*":
            self.bound(max(_size(left) * _number(right), _size(right) * _number(left)))
        elif operator == "**":
            self.bound(_number(left).bit_length() * _number(right))
        return super().call_binop(context, operator, left, right)


def _size(value: object) -> int:
    return len(value) if isinstance(value, (str, list, tuple)) else 0


def _number(value: object) -> int:
    return abs(value) if isinstance(value, int) else 0


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _to_json(
    value: object, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:
    """Plain JSON, where Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
