"""How a pair is shown: two lines in the list, and what a load would take in full. Pure; no markup."""

from __future__ import annotations

from textual.content import Content

from app.chat.memory_needs import needs_of
from app.chat.model_choice import Offer
from app.fit import tokens_per_second
from app.machine import cores_and_memory
from app.sanitize import sanitize
from app.tui.widgets.memory_bar import memory_bar, memory_legend
from app.tui.widgets.pace_text import MUTED, flow
from app.units import byte_size, gb
from models import Hardware

CURRENT, HERE, BETWEEN = "›", "✓", " · "
PLACES = {"gpu": "on the GPU", "split": "on GPU and CPU", "cpu": "on the CPU"}
LONGEST_BAR, SHORTEST_BAR = 40, 8
FIGURES = 54
"""Cells kept free for what stands after a bar. All bars of a list are of one length, or they could not be compared."""


def row(offer: Offer, machine: Hardware, width: int, *, current: bool) -> Content:
    """The name, then the bar, the figures and where its files are."""
    first = Content.assemble(
        (CURRENT if current else " ", "bold"), " ", (title_of(offer), "bold"),
        (f"  {_line(offer.origin)}" if offer.origin else "", MUTED), ("  in use" if current else "", MUTED),
    )
    if not offer.usable or offer.fit.answer is None:
        return Content("\n").join([first, Content.styled(f"  {why_not(offer)}", MUTED)])
    needs = needs_of(offer.fit.answer, machine)[0]
    figures = BETWEEN.join(
        part for part in (f"{gb(needs.total)} of {gb(needs.free)} GB", files(offer), _line(offer.licence)) if part
    )
    bar = memory_bar(needs, max(SHORTEST_BAR, min(LONGEST_BAR, width - FIGURES)))
    return Content("\n").join([first, Content.assemble("  ", bar, "  ", figures)])


def machine_line(machine: Hardware) -> str:
    """Cores, memory, GPUs and disk, in less than a line of 80 cells where there is one GPU at most."""
    gpus = [f"{_line(gpu.name)} {gb(gpu.free_bytes)} of {gb(gpu.total_bytes)} GB" for gpu in machine.devices]
    return BETWEEN.join([*cores_and_memory(machine), *(gpus or ["no GPU"]), f"{gb(machine.disk_free_bytes, 0)} GB disk free"])


def files(offer: Offer) -> str:
    """Where its files are, in few words."""
    if offer.here:
        return f"{HERE} here" if offer.fit.verdict != "unusable" else ""
    if any(piece.bytes is None for file in offer.files for piece in file.pieces()):
        return "size known when it is asked for"
    if offer.partial_bytes:
        return f"{byte_size(offer.partial_bytes)} of {byte_size(offer.fit.download_bytes)} here"
    room = "" if offer.fit.enough_disk else ", no room on the disk"
    return f"{byte_size(offer.fit.download_bytes)} to download{room}"


def why_not(offer: Offer) -> str:
    """In one line; also of what nobody can know yet."""
    fit = offer.fit
    reason = "memory is known only once it is here" if fit.verdict == "unknown" else _line(fit.reason)
    return BETWEEN.join(part for part in (reason, files(offer) if offer.usable else "") if part)


def details(offer: Offer, machine: Hardware, width: int) -> list[Content]:
    """What loading it means, a fact a line."""
    fit, lines = offer.fit, []
    draft = f"{_line(fit.draft)} drafts" if fit.draft and (fit.plan is None or fit.plan.use_draft) else "no draft model"
    lines.append(_fact("models", f"{_line(fit.target)} answers, {draft}"))
    if fit.answer is not None:
        for needs in needs_of(fit.answer, machine):
            head = Content(f"{gb(needs.total)} of {gb(needs.free)} GB of {needs.place} free:")
            lines += _facts("needs", flow([head, *memory_legend(needs)], width - 10))
    if (plan := fit.plan) is not None and offer.usable:
        layers = f", {plan.target_gpu_layers} layers of the target on the GPU" if fit.verdict == "split" else ""
        lines.append(_fact("loads", f"{PLACES[plan.placement]}, {plan.context:,} tokens of context, KV cache in {plan.kv_type}{layers}"))
        if plan.given_up:
            lines.append(_fact("gives up", ", ".join(plan.given_up)))
        speed = tokens_per_second(fit, machine)
        lines.append(_fact("speed", f"about {speed:.0f} tokens/s before drafting, by a rough estimate"))
    elif not offer.usable:
        lines.append(_fact("not here", why_not(offer)))
    lines.append(_fact("files", BETWEEN.join(part for part in (files(offer), _line(offer.licence)) if part) or "none"))
    if offer.gated:
        pages = " and ".join(f"huggingface.co/{repo}" for repo in offer.gated)
        lines.append(_fact("licence", f"has to be accepted first: sign in at {pages}, accept it, then set HF_TOKEN"))
    return lines


def title_of(offer: Offer) -> str:
    """Its title on one line."""
    return _line(offer.title).replace("->", "→")


def _fact(label: str, text: str) -> Content:
    return Content.assemble((f"{label:<10}", MUTED), text)


def _facts(label: str, lines: list[Content]) -> list[Content]:
    return [Content.assemble((f"{label if not i else '':<10}", MUTED), line) for i, line in enumerate(lines)]


def _line(text: str) -> str:
    return " ".join(sanitize(text).split())
