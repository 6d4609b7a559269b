from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time

import pytest

from app.interrupt import Interrupt

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")


def test_the_first_signal_raises_the_flag_and_calls_the_hook_once() -> None:
    calls: list[int] = []
    with Interrupt() as interrupt:
        interrupt.hook = lambda: calls.append(1)
        assert not interrupt.seen
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.seen
        assert interrupt.exit_code == 130
        time.sleep(0.05)
    assert calls == [1]


def test_sigterm_has_its_own_exit_code() -> None:
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.exit_code == 143


def test_the_second_signal_insists() -> None:
    with Interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_hook_is_called_while_native_code_runs() -> None:
    """Python's own handler has to wait for the native call to return; the hook must not."""
    called: list[float] = []
    with Interrupt() as interrupt:
        interrupt.hook = lambda: called.append(time.monotonic())
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # seconds in OpenSSL, without the interpreter's lock
        returned = time.monotonic()
    assert called
    assert called[0] < returned - 0.2


def test_everything_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    threads = threading.active_count()
    with Interrupt():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1
