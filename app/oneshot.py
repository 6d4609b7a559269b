"""One reply from an engine to a writer: drives the events, shows the waiting, strips control characters.

Knows nothing of click or of where the models came from. The caller owns the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from app.interrupt import Interrupt
from app.sanitize import Sanitizer, sanitize
from app.terminal import FractionBar, say
from engine import Engine, Finished, GenerationRequest, Notice, PrefillProgress, TextDelta

LONG_PROMPT = 256
"""Tokens to read before a progress bar is worth drawing: two seconds on a slow machine."""


def run_oneshot(
    engine: Engine, request: GenerationRequest, interrupt: Interrupt, write: Callable[[str], None] | None
) -> Finished:
    """Produce one reply and return how it ended, with its text sanitized.

    `write` receives printable pieces as they come; None collects only. Raises what `write` and the engine raise.
    Ctrl-C ends the reply with reason `cancelled`.
    """
    sanitizer = Sanitizer()
    interrupt.hook = engine.cancel
    events = engine.generate(request)
    if interrupt.seen:  # before this, `generate` would have lowered the flag again
        engine.cancel()
    # Closed here, not whenever it is collected: by then the engine may have freed what the reply stands on.
    with closing(events), FractionBar() as bar:
        for event in events:
            match event:
                case PrefillProgress(done, total, cached) if total - cached > LONG_PROMPT and done < total:
                    bar.show("reading the prompt", done / total)
                case Notice(text):
                    bar.hide()
                    say(text)
                case TextDelta(text) if write is not None:
                    bar.hide()
                    if printable := sanitizer.feed(text):
                        write(printable)
                case Finished():
                    return replace(event, text=sanitize(event.text))
    raise RuntimeError("the engine ended a reply without saying how")
