"""The comparison with peers: its rounds with contenders that run here, and llama-server where PACELINE_LLAMA_CPP names a
folder that has it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from scripts.peers.contenders import (
    NGRAM_TYPES,
    OUR_PLAIN,
    OURS,
    THEIR_PLAIN,
    Answer,
    Contender,
    PeerFailed,
    Runner,
    Setting,
    Task,
    chosen,
    contenders,
    draft_simple,
)
from scripts.peers.llama_server import LlamaServer, version
from scripts.peers.lookup import Lookup, LookupProcess
from scripts.peers.ours import Ours
from scripts.peers.rounds import Question, Row, compare, groups, idle_share, kept, run, same_text

PROMPT = "Copy this: the cat sat on the mat, the cat sat on the mat, the cat"
QUESTIONS = [Question("1", "code", PROMPT), Question("2", "prose", PROMPT[:30])]


@pytest.fixture
def setting(target: Path, draft: Path, tmp_path: Path) -> Setting:
    return Setting(target, draft, 512, 1, tmp_path)


def row(contender: str, speed: float | None, question: str = "1", **changes: object) -> Row:
    made = Row(contender, question, "code", 0.0, 0, 0, Answer(10, 20, speed, 5.0, 0, 0, "x"))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_everybody_is_there_by_name_and_can_be_chosen_among() -> None:
    names = [contender.name for contender in contenders((4, 0.6))]
    assert names[:4] == [OUR_PLAIN, OURS, THEIR_PLAIN, "llama-server draft-simple"]
    assert "llama-server draft-simple n=4 p=0.6" in names
    assert {f"llama-server {kind}" for kind in NGRAM_TYPES} < set(names)
    assert [c.name for c in chosen(contenders(None), ["ngram-mod"])] == [OUR_PLAIN, OURS, THEIR_PLAIN, "llama-server ngram-mod"]
    assert draft_simple((2, 0.0)).options == ("--spec-type", "draft-simple", "--spec-draft-n-max", "2", "--spec-draft-p-min", "0.0")


def test_what_memory_does_not_hold_comes_in_groups_with_those_it_is_compared_with(setting: Setting) -> None:
    everyone = contenders(None)
    assert len(groups(everyone, setting, 100 << 30)) == 1
    several = groups(everyone, setting, 0)
    assert all([c.name for c in group[:3]] == [OUR_PLAIN, OURS, THEIR_PLAIN] for group in several)
    assert [group[3] for group in several] == everyone[3:]
    assert [c.name for c in groups(everyone[:3], setting, 0)[0]] == [OUR_PLAIN, OURS, THEIR_PLAIN]


def test_ratios_are_of_the_same_group_and_repeat() -> None:
    """Everything is twice as fast in the second group; the ratio is not."""
    rows = [
        row("a", 30.0, group=0), row("b", 20.0, group=0), row("a", 60.0, group=1), row("b", 40.0, group=1), row("a", None, "2"), row("b", 1.0, "2"),
    ]
    found = compare(rows, "a", "b")
    assert found.median == pytest.approx(1.5)
    assert (found.prompts, found.pairs) == (1, 2)


def test_shares_of_kept_tokens_and_of_equal_texts() -> None:
    def answer(text: str, drafted: int = 0, accepted: int = 0) -> Answer:
        return Answer(10, 20, 1.0, 5.0, drafted, accepted, text)

    rows = [row(THEIR_PLAIN, 1.0, answer=answer("x")), row(THEIR_PLAIN, 1.0, "2", answer=answer("y"))]
    rows += [row("a", 1.0, answer=answer("x", 8, 6)), row("a", 1.0, "2", answer=answer("z", 2, 0))]
    assert (kept(rows, "a"), kept(rows, THEIR_PLAIN)) == (0.6, None)
    assert (same_text(rows, "a"), same_text(rows, THEIR_PLAIN), same_text(rows, "b")) == (0.5, 1.0, None)


def test_the_same_text_comes_out_of_ours_and_of_prompt_lookup(setting: Setting) -> None:
    process = LookupProcess(setting)

    def start(contender: Contender) -> Runner:
        return Ours(contender, setting) if contender.kind == "paceline" else Lookup(process, int(contender.options[0]))

    everyone = [c for c in contenders(None) if c.kind != "llama-server"]
    told: list[str] = []
    assert process.ask(Task(PROMPT, 0.0, 4, 1), 2).completion_tokens == 4
    assert idle_share([process.pid or 0], 0.5) < 0.2
    rows = list(run(everyone, QUESTIONS, [0.0, 0.8], 2, 24, setting, start, told.append))
    assert not process.alive
    assert told == []
    assert len(rows) == 4 * 2 * 2 * 2
    for question in QUESTIONS:
        greedy = [r for r in rows if r.temperature == 0 and r.question_id == question.question_id]
        assert len({(r.answer.text_sha256, r.answer.prompt_tokens) for r in greedy}) == 1
    assert all(r.answer.completion_tokens == 24 and (r.answer.tokens_per_second or 0) > 0 for r in rows if r.temperature == 0)
    assert any(r.answer.drafted and r.answer.accepted for r in rows if "lookup" in r.contender)
    order = [r.contender for r in rows]
    assert order[:4] == order[-4:][::-1]  # the second repeat goes the other way round


def test_prompt_lookup_goes_on_beyond_a_batch_of_context_and_fails_alone(setting: Setting) -> None:
    process = LookupProcess(replace(setting, context=1024))
    ten, two = Lookup(process, 10), Lookup(process, 2)
    assert ten.reply(Task(PROMPT * 8, 0.0, 24, 1)).accepted > 0
    ten.close()
    with pytest.raises(PeerFailed, match="not running any more"):
        two.reply(Task(PROMPT, 0.0, 4, 1))
    two.close()


def test_one_that_fails_is_told_and_left_out(setting: Setting) -> None:
    class Broken:
        def reply(self, task: Task) -> Answer:
            if task.prompt == PROMPT:
                raise PeerFailed("it broke")
            return Answer(1, 2, 1.0, 1.0, 0, 0, "")

        def close(self) -> None: ...

    class Fine(Broken):
        def reply(self, task: Task) -> Answer:
            return Answer(1, 2, 1.0, 1.0, 0, 0, "")

    told: list[str] = []
    two = [Contender("bad", "x"), Contender("good", "x")]
    rows = list(run(two, QUESTIONS, [0.0], 1, 4, setting, lambda c: Broken() if c.name == "bad" else Fine(), told.append))
    assert [r.contender for r in rows] == ["good", "good"]
    assert told == ["bad is left out from here on: it broke"]


def test_a_binary_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="cannot be started: No such file"):
        version(tmp_path / "llama-server")


@pytest.mark.skipif("PACELINE_LLAMA_CPP" not in os.environ, reason="PACELINE_LLAMA_CPP names no folder with llama-server")
def test_llama_server_reads_the_same_prompt_and_rests_when_idle(setting: Setting) -> None:
    binary = Path(os.environ["PACELINE_LLAMA_CPP"]) / "llama-server"
    server = LlamaServer(binary, draft_simple((3, 0.0)), setting)
    ours = Ours(Contender(OUR_PLAIN, "paceline", ("plain",)), setting)
    try:
        text = server.rendered("Tell me more.")
        task = Task(text, 0.0, 24, 1)
        theirs, mine = server.reply(task), ours.reply(task)
        assert (theirs.prompt_tokens, theirs.completion_tokens, theirs.text_sha256) == (mine.prompt_tokens, 24, mine.text_sha256)
        assert theirs.drafted > 0
        assert idle_share([server.pid], 1.0) < 0.1
    finally:
        server.close()
        ours.close()
    assert not psutil.pid_exists(server.pid)
