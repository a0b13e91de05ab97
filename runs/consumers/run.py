"""One viewer of one run: steps in order and once, panels as the run changes, the model's text as it is written."""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import Final

from runs.consumers.admission import Admission, admission
from runs.consumers.messages import Ack, Hello, Ping, Said
from runs.consumers.socket import ANOTHER_LIFE, TOO_SLOW, Socket, now
from runs.feeds import DATABASE_AWAY, Gone, Moment, feed_of, read
from runs.feeds.feed import PANELS_SECONDS
from runs.live.messages import LARGEST_SENT

WINDOW_MESSAGES: Final = 32
WINDOW_BYTES: Final = 256 * 1024
STUCK_SECONDS: Final = 30.0
TEXT_SECONDS: Final = 0.1
QUICK_SECONDS: Final = 1.0
"""Seconds; a page that acknowledges within them keeps up, and is shown the model's text."""
FRESH_ENOUGH_FOR_A_PING_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class RunConsumer(Socket):
    """One viewer of one run."""

    def __init__(self) -> None:
        super().__init__()
        self.run_id = 0
        self.admission: Admission | None = None
        self.last: int | None = None
        """The newest step sent; None until the page has said hello."""
        self.unseen: deque[tuple[int, int, float]] = deque()
        """Messages not acknowledged yet: (last seq when it was sent, bytes, when)."""
        self.unseen_bytes = 0
        self.panels_stamp = -1
        self.panels_moment: Moment | None = None
        self.panels_at = float("-inf")
        self.text_shown = ""
        self.text_at = float("-inf")

    async def admit(self) -> bool:
        """Return True for people who may see the run."""
        self.run_id = self.scope["url_route"]["kwargs"]["run_id"]
        if not 0 < self.run_id < 2**63:
            return False
        self.admission = await read(admission, self.session_key, self.run_id)
        if self.admission is None:
            return False
        self.feed = feed_of(self.run_id)
        self.feed.join(self)
        return True

    def leave(self) -> None:
        """Leave the feed, if it was joined."""
        if hasattr(self, "feed"):
            self.feed.leave(self)

    async def said(self, message: Said) -> None:
        """Handle a hello, an acknowledgement, or a ping."""
        match message:
            case Hello(life=life) if self.admission and life not in (None, self.admission.life):
                await self.close(ANOTHER_LIFE)
            case Hello(after=after):
                await self.begin(after)
            case Ack(seq=seq):
                was_open = self.open
                self.acknowledged(seq)
                if not was_open:
                    self.wake()
            case Ping():
                await self.feed.fresh(FRESH_ENOUGH_FOR_A_PING_SECONDS)
                await self.send_text(self.about("pong"))
                self.wake()

    async def begin(self, after: int) -> None:
        """Begin (again) after step `after`. The feed was joined first; the run is read now."""
        await self.feed.fresh()
        self.last = after
        self.unseen.clear()
        self.unseen_bytes = 0
        self.panels_stamp = -1
        await self.send_text(self.about("hello"))
        self.wake()

    def about(self, kind: str) -> str:
        """Return a message about the run's position."""
        moment = self.feed.moment or Moment(0, "", stopping=False)
        return json.dumps({"type": kind, "head": moment.head, "status": moment.status})

    def acknowledged(self, seq: int) -> None:
        """Forget messages up to there: the page has painted them."""
        while self.unseen and self.unseen[0][0] <= seq:
            self.unseen_bytes -= self.unseen.popleft()[1]

    def patience(self) -> float:
        """Return the seconds until panels may be sent again, or an acknowledgement is overdue."""
        seconds = STUCK_SECONDS
        if self.unseen:
            seconds = min(seconds, self.unseen[0][2] + STUCK_SECONDS - now())
        if (
            self.open
            and self.last is not None
            and self.last >= self.feed.head
            and self.panels_stamp != self.feed.stamp
        ):
            seconds = min(seconds, self.panels_at + PANELS_SECONDS - now())
        return seconds

    async def deliver(self) -> None:
        """Send steps first; panels and the model's text once the page has all steps."""
        if self.feed.gone:
            raise Gone(self.run_id)
        if self.unseen and now() - self.unseen[0][2] >= STUCK_SECONDS:
            await self.close(TOO_SLOW)
        while self.last is not None and self.last < self.feed.head and self.open:
            before = self.last
            last, text = await self.feed.message_after(before)
            if self.last != before:
                continue  # the page has said hello again meanwhile
            if not text:
                return
            self.last = last
            await self.send_counted(text)
        if self.last is not None and self.last >= self.feed.head:
            await self.deliver_panels()
            await self.deliver_text()

    @property
    def open(self) -> bool:
        """Return True if the page keeps up, so it may be sent more."""
        return not self.closed and len(self.unseen) < WINDOW_MESSAGES and self.unseen_bytes < WINDOW_BYTES

    async def deliver_panels(self) -> None:
        """Send the panels, if the run has changed: at once for another status, else a few times a second."""
        moment, stamp = self.feed.moment, self.feed.stamp
        if stamp == self.panels_stamp or moment is None or self.admission is None or not self.open:
            return
        status_shown = self.panels_moment is not None and self.panels_moment[1:] == moment[1:]
        if status_shown and now() - self.panels_at < PANELS_SECONDS:
            return
        self.panels_stamp, self.panels_moment, self.panels_at = stamp, moment, now()
        try:
            text = await self.feed.panels(self.admission.audience, self.admission.person)
        except (*DATABASE_AWAY, Gone):
            self.panels_stamp = -1
            raise
        except Exception:
            log.exception("The panels of run %s can't be shown; its steps can.", self.run_id)
            return
        await self.send_counted(text)

    async def deliver_text(self) -> None:
        """Send the model's text, if it has gone on and the page keeps up."""
        text = self.feed.text
        keeps_up = self.open and not (self.unseen and now() - self.unseen[0][2] > QUICK_SECONDS)
        if (
            text
            and len(text) <= LARGEST_SENT
            and text != self.text_shown
            and keeps_up
            and now() - self.text_at >= TEXT_SECONDS
        ):
            self.text_shown, self.text_at = text, now()
            await self.send_counted(text)

    async def send_counted(self, text: str) -> None:
        """Send a text that the page has to acknowledge."""
        self.unseen.append((self.last or 0, len(text), now()))
        self.unseen_bytes += len(text)
        await self.send_text(text)
