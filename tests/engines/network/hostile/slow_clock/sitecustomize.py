"""A machine whose clock is ten minutes behind, for Python's datetime."""

from __future__ import annotations

import datetime
import time

BEHIND = 600.0


class Slow(datetime.datetime):
    """A datetime that is late."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return datetime.datetime.fromtimestamp(time.time() - BEHIND, tz)


setattr(datetime, "datetime", Slow)  # noqa: B010
