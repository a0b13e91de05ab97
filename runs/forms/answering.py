"""A fork's answer in advance, as fields: it is for the shown question, and no part of it is dropped silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from runs.forms.deciding import approved
from runs.forms.fields import ReadingForm, read_json
from runs.forms.machines import pretty
from runs.models import Interrupt, Run
from runs.reading import words
from runs.reading.arguments import ArgumentField, lines
from runs.reading.looking import second_look
from runs.reading.questions import titles_of
from runs.store import copying

NOT_BEFOREHAND = ("rollback",)
"""Verdicts that can't be given in advance: an earlier step is forked instead."""

UNSEEN = "Your answer names no question. Read the question below and answer again."
NO_VERDICT = "Choose an answer for what you typed."


class AnswerFields(ReadingForm):
    """The answer to the first question after step `at` of `run`."""

    run: Run
    at: int
    asked = forms.CharField(required=False)
    """The step of the shown question."""
    verdict = forms.CharField(required=False)
    args = forms.CharField(required=False, strip=False)
    said = forms.CharField(required=False, strip=False)
    sure = forms.BooleanField(required=False)

    question: Interrupt | None
    """The shown one, if something was sent; else the one that comes next now."""
    was_shown: bool
    """True if the sent step is a question of the run."""
    kept: tuple[tuple[str, str], ...] = ()
    """The answer to a question that no longer comes next: name and text."""

    def ask(self) -> None:
        """Find the question."""
        shown = self._shown()
        self.was_shown, self.question = shown is not None, shown or self._next()

    def _shown(self) -> Interrupt | None:
        seq = self.data.get("asked", "")
        if not (seq.isascii() and seq.isdigit() and len(seq) < 10):
            return None
        return Interrupt.objects.filter(run=self.run, seq=int(seq)).first()

    def _next(self) -> Interrupt | None:
        found = copying.first_question(self.run, self.at)
        return found[0] if found else None

    def answer_initial(self) -> dict[str, Any]:
        """Return the fields of an unanswered question."""
        if self.question is None:
            return {"args": ""}
        return {
            "asked": self.question.seq,
            "args": pretty(self.question.args) if "edit" in self.question.verdicts else "",
        }

    @property
    def asks(self) -> str:
        """Return the whole question."""
        return titles_of([self.question])[self.question.pk] if self.question else ""

    @property
    def verdicts(self) -> list[str]:
        """Return the possible verdicts."""
        found = self.question.verdicts if self.question else []
        return [verdict for verdict in found if verdict not in NOT_BEFOREHAND]

    @property
    def arguments(self) -> ArgumentField:
        """Return the arguments in their field, with a warning about invisible characters."""
        return ArgumentField("args", "json", str(self["args"].value() or ""), required=False)

    def read_answer(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer, as the action takes it; None if there is none, or it can't be read."""
        verdict, message = data["verdict"], lines(data["said"]).strip()
        typed = "args" in self.data and "args" not in self.unreadable
        changed = typed and lines(data["args"]) != self.answer_initial()["args"]
        if not (verdict or message or changed):
            return None
        if not verdict or self.question is None or not self.was_shown:
            self.add_error("verdict" if self.question else None, UNSEEN if verdict else NO_VERDICT)
            return None
        args = None
        try:
            if changed or verdict == "top_up":
                args = read_json(data["args"] or "null")
        except ValueError as fault:
            self.fault("args", str(fault))
            return None
        if verdict in ("approve", "edit") and "edit" in self.verdicts:
            verdict, args = approved(self.question, args if changed else self.question.args)
        if (why := second_look(self.question, verdict, args)) and not data["sure"]:
            self.fault("sure", why)
        return {"verdict": verdict, "args": args, "message": message, "question": self.question.seq}

    def ask_anew(self, why: str) -> None:
        """Show the question that comes next now, without any answer, and keep the old answer beside it."""
        written = {
            "Answer": words.spoken(self.data.get("verdict", "")),
            "Arguments": self.data.get("args", ""),
            "Message": self.data.get("said", ""),
        }
        self.kept = tuple((name, text) for name, text in written.items() if text.strip())
        self.question = self._next()
        nothing = {"verdict": "", "said": "", "sure": "", **self.answer_initial()}
        self.data = dict(self.data.items()) | nothing
        self.add_error(None, why)
