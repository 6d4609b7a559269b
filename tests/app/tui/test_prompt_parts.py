"""The parts of the prompt that are no widgets: history and attachments."""

from __future__ import annotations

from pathlib import Path

from app.chat.attachments import Refused
from app.chat.conversation import Attachment
from app.tui.widgets.prompt_attachments import Attached, gathered, pack_unsent, unpack_unsent
from app.tui.widgets.prompt_history import PromptHistory


def test_history_goes_back_and_comes_forward_to_what_was_being_written() -> None:
    history = PromptHistory(lambda most: ["last", "", "last", "first"])
    assert history.earlier("draft") == "last"
    assert history.earlier("last") == "first"
    assert history.earlier("first") is None
    assert history.later("first") == "last"
    assert history.later("last") == "draft"
    assert history.later("draft") is None


def test_changes_in_a_recalled_prompt_stay_while_walking() -> None:
    history = PromptHistory(lambda most: ["two", "one"])
    history.earlier("")
    history.earlier("two, changed")
    assert history.later("one") == "two, changed"


def test_history_is_read_again_after_sending() -> None:
    prompts = ["one"]
    history = PromptHistory(lambda most: list(reversed(prompts)))
    assert history.earlier("") == "one"
    history.forget()
    prompts.append("two")
    assert history.earlier("") == "two"


def look(text: str, attached: Attached) -> list[Attachment | Refused]:
    attached.take(gathered(text, attached))
    return attached.items


def test_files_come_and_go_with_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    attached = Attached(tmp_path)
    assert look("see @a.txt", attached) == [Attachment("a.txt", "A")]
    assert look("see a.txt", attached) == []


def test_a_count_stays_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("A")
    attached = Attached(tmp_path)
    look("@a.txt", attached)
    attached.counted("a.txt", "A", 7)
    assert look("@a.txt!", attached) == [Attachment("a.txt", "A", 7)]
    file.write_text("AB")
    assert look("@a.txt", attached) == [Attachment("a.txt", "AB")]
    attached.counted("a.txt", "A", 7)
    assert attached.items == [Attachment("a.txt", "AB")]


def test_a_long_paste_is_one_mention_and_stays_whole() -> None:
    attached = Attached(Path())
    one, two = attached.paste("x\n" * 100), attached.paste("y\n" * 100)
    assert (one, two) == ("[Pasted text 1, 100 lines]", "[Pasted text 2, 100 lines]")
    assert look(f"{two} then {one}", attached) == [Attachment(two[1:-1], "y\n" * 100), Attachment(one[1:-1], "x\n" * 100)]
    assert look(one[:-1], attached) == []


def test_what_is_left_out_stays_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    attached = Attached(tmp_path)
    look("@a.txt", attached)
    attached.leave_out("a.txt")
    assert attached.items == look("@a.txt and more", attached) == []


def test_an_edited_message_keeps_what_was_attached_though_the_file_is_gone(tmp_path: Path) -> None:
    attached = Attached(tmp_path)
    attached.keep([Attachment("gone.txt", "old", 3), Attachment("my file", "x", 1)])
    assert look('why @gone.txt and @"my file"?', attached) == [Attachment("gone.txt", "old", 3), Attachment("my file", "x", 1)]
    (tmp_path / "gone.txt").write_text("new")
    assert look("why @gone.txt?", attached) == [Attachment("gone.txt", "old", 3)]


def test_an_unsent_prompt_is_kept_with_its_pastes() -> None:
    attached = Attached(Path())
    text = f"look {attached.paste('long')} here"
    assert unpack_unsent(pack_unsent(text, attached)) == (text, [Attachment("Pasted text 1, 4 characters", "long")])
    assert pack_unsent("plain", attached) == "plain"
    assert unpack_unsent("plain") == ("plain", [])
