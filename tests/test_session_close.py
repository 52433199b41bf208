"""Closing a session while jobs come and go."""

from __future__ import annotations

import threading
import time

import pytest

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.session import Session
from tests.test_session import SmallHost, host, session

__all__ = ["host", "session"]


def test_a_closed_session_takes_no_job(session: Session, host: SmallHost) -> None:
    session.close()
    with pytest.raises(UnavailableError, match="closed"):
        session.generate(ImageRequest(steps=1))
    assert host.generated == []


def test_closing_stops_a_job_that_is_only_beginning(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that has begun, and is not there to be stopped yet as the session closes."""
    watch, closers = session.monitor.watch, []

    def close_meanwhile() -> object:
        if not closers:
            closers.append(threading.Thread(target=session.close))
            closers[0].start()
            while not session._closing:
                time.sleep(0.001)
        return watch()

    monkeypatch.setattr(session.monitor, "watch", close_meanwhile)
    result = session.generate(ImageRequest(steps=1, batch_count=3))
    closers[0].join(10)
    assert result.interrupted
    assert result.images == ()
