"""ChatTemplate: what published templates rely on, what hostile ones try, and the fallbacks."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from engine import chat_template
from engine.chat_template import ChatTemplate
from engine.errors import TemplateFailed
from engine.values import ChatMessage
from tests import tiny_models

SYSTEM, USER = ChatMessage("system", "Be brief."), ChatMessage("user", "Hi")
CHAT = [SYSTEM, USER, ChatMessage("assistant", "Hello!"), ChatMessage("user", "Bye")]


def render(text: str, messages: list[ChatMessage] | None = None, **variables: object) -> str:
    return ChatTemplate(text, bos="<s>", eos="</s>").render(messages or CHAT, variables=variables)


def test_chatml_to_the_character() -> None:
    assert render(tiny_models.CHATML) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    without = ChatTemplate(tiny_models.CHATML).render(CHAT, add_generation_prompt=False)
    assert without.endswith("Bye<|im_end|>\n")


def test_blocks_are_trimmed_and_loops_can_break() -> None:
    text = """{% for m in messages %}
    {% if loop.index == 3 %}
        {% break %}
    {% endif %}
{{ m.content }}
{% endfor %}"""
    assert render(text) == "Be brief.\nHi\n"


def test_names_that_published_templates_use() -> None:
    at = datetime(2026, 3, 4)
    template = ChatTemplate(
        "{{ bos_token }}{{ strftime_now('%d %b %Y') }}|{{ tools is none }}|{{ {'a': '<é>'} | tojson }}|"
        "{{ {'b': 1} | tojson(indent=2) }}|{% generation %}{{ messages[0].content }}{% endgeneration %}{{ eos_token }}",
        bos="<s>", eos="</s>", now=lambda: at,
    )
    assert template.render(CHAT) == '<s>04 Mar 2026|True|{"a": "<é>"}|{\n  "b": 1\n}|Be brief.</s>'


def test_extra_variables_reach_the_template() -> None:
    assert not render(tiny_models.THINKING).endswith("</think>\n\n")
    assert render(tiny_models.THINKING, enable_thinking=False).endswith("<think>\n\n</think>\n\n")


def test_content_is_data_never_template() -> None:
    assert render("{{ messages[0].content }}", [ChatMessage("user", "{{ 7 * 7 }}{% raw %}")]) == "{{ 7 * 7 }}{% raw %}"


@pytest.mark.parametrize(
    "guard",
    [
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}",  # refuses
        "{% if messages[0].role == 'system' %}{% set messages = messages[1:] %}{% endif %}",  # drops silently
    ],
)
def test_system_text_joins_the_user_turn_where_the_template_will_not_have_it(guard: str) -> None:
    template = ChatTemplate(guard + "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}")
    assert template.render(CHAT) == "[user:Be brief.\n\nHi][assistant:Hello!][user:Bye]"
    assert template.render([USER]) == "[user:Hi]"
    assert template.render([SYSTEM]) == "[user:Be brief.]"


def test_refusal_for_another_reason_is_told_in_one_line() -> None:
    text = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must\nalternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(TemplateFailed, match="refuses these messages: roles must alternate") as caught:
        render(text, [USER, USER])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ messages[0].content.missing.deeper }}", "missing"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ messages[0].update({'role': 'x'}) }}", "unsafe|not safely callable"),
        ("{% include 'other' %}", "loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ],
)
def test_failures_become_one_line(text: str, reason: str) -> None:
    with pytest.raises(TemplateFailed, match=reason) as caught:
        render(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{% for %}", "{{ unclosed", "{% endif %}", "{{ " + "(" * 5000])
def test_text_that_does_not_parse(text: str) -> None:
    with pytest.raises(TemplateFailed, match="does not parse"):
        ChatTemplate(text)


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) | list %}{% for a in r %}{% for b in r %}{% set x = 1 %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_endless_templates_are_stopped(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(TemplateFailed, match=r"more than 0\.2 seconds"):
        render(text)
    assert time.monotonic() - started < 5


DOUBLE = "{%% set n = namespace(x='ab') %%}{%% for i in range(99) %%}{%% set n.x = %s %%}{%% endfor %%}{{ n.x | length }}"


@pytest.mark.parametrize(
    "text",
    [
        DOUBLE % "n.x + n.x",
        DOUBLE % "n.x ~ n.x",
        DOUBLE % "n.x * 2",
        DOUBLE % "[n.x, n.x] | join",
        DOUBLE % "n.x.replace('b', 'bb').replace('b', 'bb')",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ 2 ** (2 ** 40) }}",
        "{{ 'x'.ljust(10000000000) }}",
    ],
)
def test_gigantic_text_is_stopped(text: str) -> None:
    with pytest.raises(TemplateFailed, match=r"more than \d+ characters"):
        render(text)


def test_long_chats_are_within_the_bounds() -> None:
    chat = [ChatMessage("user", "x" * 3_000_000), ChatMessage("assistant", "y")] * 2 + [USER]
    assert len(render(tiny_models.CHATML, chat)) > 6_000_000
    chat = [USER, ChatMessage("assistant", "z")] * 5_000 + [USER]
    assert render(tiny_models.CHATML, chat).count("<|im_start|>") == 10_002


def test_model_without_template() -> None:
    chatml = ChatTemplate.for_model(None, bos="", eos="", is_token=lambda text: text.startswith("<|im_"))
    assert chatml.render(CHAT) == render(tiny_models.CHATML)
    assert "ChatML is assumed" in (chatml.notice or "")
    plain = ChatTemplate.for_model(None, bos="", eos="", is_token=lambda text: False)
    assert plain.render(CHAT) == "Be brief.\n\nUser: Hi\n\nAssistant: Hello!\n\nUser: Bye\n\nAssistant:"
    assert plain.stop == ("\nUser:",)
    assert "transcript" in (plain.notice or "")
    own = ChatTemplate.for_model("{{ messages[0].content }}", bos="", eos="", is_token=lambda text: True)
    assert (own.render(CHAT), own.notice, own.stop) == ("Be brief.", None, ())
