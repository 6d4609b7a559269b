"""A share of the replies is read again under the target alone when nobody waits for anything: a drift is told in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.chat.events import HostNotice
from app.chat.job_queue import ShadowJob
from app.paths import Paths
from app.sanitize import sanitize
from app.verify.shadow import keep

if TYPE_CHECKING:
    from app.chat.reply_writer import Desk
    from engine import EngineProcess


def check_reply(process: EngineProcess, job: ShadowJob, desk: Desk, paths: Paths, models: Mapping[str, Any]) -> None:
    """Read the reply again, which has to be the last that was made; tokens are counted meanwhile. models: as
    LocalPair.as_json gives them. Raises EngineDied."""

    def meanwhile() -> None:
        desk.between()
        if desk.stopped():  # also where `shadow_check` has lowered the flag that a stop before it raised
            process.cancel()

    result = process.shadow_check(job.request, job.finished, meanwhile)
    if line := keep(paths, models, job.request, result):
        desk.emit(HostNotice(job.message_id, sanitize(line)))
