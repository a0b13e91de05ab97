"""Compactions in the admin: the list, the summary beside its originals, the forms and who may send them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs import actions
from runs.models import Run
from runs.reading.compactions import compaction_view, compactions, word_diff
from tests.cast import administrator, person, signed_in
from tests.compacting import HELD, RIGHT, compacted_run, long_run, newest, read_on, searches
from tests.launching import FINAL

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def staff(name: str, *permissions: str) -> User:
    """Somebody whom the admin lets in."""
    user = person(name, *permissions)
    user.is_staff = True
    user.save()
    return user


def reviewer() -> Client:
    return signed_in(staff("rita", "view_run", "view_compaction", "change_compaction"))


def page_of(run: Run) -> str:
    return reverse("admin:runs_compaction_change", args=[newest(run).id])


def send(client: Client, run: Run, deed: str, **fields: str) -> Any:
    given = {"deed": deed, "version": str(newest(run).version), "reason": "A digit.", "text": RIGHT}
    return client.post(page_of(run), given | {"path": newest(run).path} | fields, follow=True)


# --- the list -----------------------------------------------------------------------------------------------------


def test_the_list_says_what_became_of_each_and_asks_little() -> None:
    run = long_run(
        *searches(9), HELD, FINAL, summaries=("Done: the first.", "Done: the second.", "Done: the third.")
    )
    read_on(run)
    client, address = reviewer(), reverse("admin:runs_compaction_changelist")
    page = client.get(address).text
    latest = newest(run)
    assert f"Run {run.pk}, steps {latest.first} to {latest.last}" in page
    assert f"continued by step {latest.seq}" in page
    assert f'href="/runs/{run.pk}/?step={latest.seq}"' in page
    with CaptureQueriesContext(connection) as few:
        client.get(address)
    others = [compacted_run() for _ in range(3)]
    with CaptureQueriesContext(connection) as many:
        client.get(address)
    assert len(many) == len(few)
    assert f"Run {others[0].pk}, steps" in client.get(f"{address}?q={others[0].pk}").text
    only = client.get(f"{address}?run={others[0].pk}&state=stands").context["cl"].result_list
    assert [(row.run_id, row.seq) for row in only] == [(others[0].pk, newest(others[0]).seq)]
    assert not client.get(f"{address}?run={others[0].pk}&state=undone").context["cl"].result_list
    assert client.get(f"{address}?run=nine&state=odd").status_code in (200, 302)


def test_only_what_the_reader_may_see_is_there() -> None:
    run = compacted_run()
    mine = compacted_run(person("olga", "add_run"))
    olga = User.objects.get(username="olga")
    olga.is_staff = True
    olga.save()
    olga.user_permissions.add(Permission.objects.get(codename="view_compaction"))
    client = signed_in(User.objects.get(pk=olga.pk))
    listed = client.get(reverse("admin:runs_compaction_changelist")).context["cl"].result_list
    assert {row.run_id for row in listed} == {mine.pk}
    assert client.get(page_of(mine)).status_code == 200
    assert "Compaction not found" in client.get(page_of(run), follow=True).text
    assert send(client, run, "correct").redirect_chain
    assert newest(run).version == 1
    assert "Saved as version 2" in send(client, mine, "correct").text, "an owner may mend their own run"


def test_nobody_adds_or_deletes_and_nothing_happens_by_get() -> None:
    run = compacted_run()
    client = signed_in(administrator())
    assert client.get(reverse("admin:runs_compaction_add")).status_code == 403
    assert client.get(reverse("admin:runs_compaction_delete", args=[newest(run).id])).status_code == 403
    head = Run.objects.get(pk=run.pk).head
    client.get(f"{page_of(run)}?deed=undo&reason=x&version=1&text=x")
    client.get(reverse("admin:runs_run_compact", args=[run.pk]))
    assert Run.objects.get(pk=run.pk).head == head
    strict = signed_in(User.objects.get(username="ada"), csrf=True)
    assert strict.post(page_of(run), {"deed": "undo", "reason": "x"}).status_code == 403
    assert strict.post(reverse("admin:runs_run_compact", args=[run.pk])).status_code == 403
    assert Run.objects.get(pk=run.pk).head == head


# --- one compaction -----------------------------------------------------------------------------------------------


def test_the_originals_stand_beside_the_summary() -> None:
    run = compacted_run()
    view = compaction_view(run, newest(run).seq)
    assert view is not None
    page = reviewer().get(page_of(run)).text
    for original in view.originals:
        assert original.path in page
    assert "result 0 of the tide tables" in page
    assert f"{view.tokens_before} → {view.tokens_after}" in page
    assert f'href="/runs/{run.pk}/?step={view.seq}"' in page


def test_an_earlier_summary_among_the_originals_leads_to_its_own() -> None:
    run = long_run(*searches(9), HELD, FINAL, owner=person("ann", "add_run"))
    read_on(run)
    view = newest(run)
    earlier = next(one for one in compactions(run) if one.seq == view.carries_on)
    there = f'href="{reverse("admin:runs_compaction_change", args=[earlier.id])}">su:{earlier.seq}</a>'
    assert there in reviewer().get(page_of(run)).text
    client = signed_in(User.objects.get(username="ann"))
    for address in (f"/runs/{run.pk}/context/", f"/runs/{run.pk}/steps/{view.seq}/"):
        page = client.get(address).text
        originals = page[page.index('class="originals"') :]
        assert (
            f'href="/runs/{run.pk}/?step={earlier.seq}" data-step="{earlier.seq}">step {earlier.seq}</a>'
            in (originals[: originals.index("earlier summary")])
        )
        assert f"<code>su:{earlier.seq}</code>" in originals
    inside = client.get(f"/runs/{run.pk}/steps/{earlier.seq}/").text
    assert "originals__item" in inside, "one click from there"


def test_hidden_and_hostile_characters_are_made_visible() -> None:
    hostile = "Done: </textarea><script>alert(1)</script> \u202egnp.exe\x1b[31m"
    run = long_run(*searches(4), HELD, FINAL, summaries=(hostile,))
    read_on(run)
    page = reviewer().get(page_of(run)).text
    assert "<script>alert(1)" not in page
    assert "⟨U+202E⟩gnp.exe␛[31m" in page


def test_a_long_original_is_folded_and_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = compacted_run()
    monkeypatch.setattr("runs.admin.compactions.ORIGINALS", 2)
    monkeypatch.setattr("runs.admin.compactions.CHARACTERS", 100)
    client = reviewer()
    page = client.get(page_of(run)).text
    assert page.count('class="compaction__original"') == 2
    assert "more line" in page and "?part=2" in page
    assert client.get(f"{page_of(run)}?part=99&x").status_code == 200


def test_a_correction_is_saved_with_its_reason_and_each_version_is_listed_with_what_changed() -> None:
    run = compacted_run()
    client, before = reviewer(), newest(run).text
    assert "Saved as version 2" in send(client, run, "correct", text=before.replace("40", "45")).text
    page = client.get(page_of(run)).text
    assert re.search(r"Version 2 by rita", page) and "A digit." in page
    assert "<del>40</del><ins>45</ins>" in page


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"text": "mine " * 900}, "at most 3200 characters"),
        ({"text": " "}, "be empty"),
        ({"reason": ""}, "Enter a reason"),
        ({"reason": "r" * 1001}, "at most 1000 characters"),
        ({"version": "x"}, "names no version"),
        ({"version": "9"}, "You saw version 9"),
        ({"deed": "dance"}, "names no action"),
        ({"deed": ""}, "names no action"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_written_is_kept(fields: dict[str, str], sentence: str) -> None:
    run = compacted_run()
    given = {"deed": "correct", "text": "My own text.", "reason": "My reason."} | fields
    answer = send(reviewer(), run, given.pop("deed"), **given)
    assert sentence in answer.text.replace("&#x27;", "'")
    if "deed" not in fields:
        assert given["text"].strip() in answer.text
        assert given["reason"] in answer.text
    assert newest(run).version == 1


def test_a_conflict_says_what_the_text_is_now() -> None:
    run = compacted_run()
    client = reviewer()
    actions.edit_summary(run, seq=newest(run).seq, version=1, text="Paid: 41 pounds.", reason="x", by=None)
    answer = send(client, run, "correct", text="Paid: 45 pounds.", version="1").text
    assert "You saw version 1 of the summary; it now has version 2" in answer
    assert "<del>41</del><ins>45</ins>" in answer
    assert 'name="version" value="2"' in answer
    assert "Saved as version 3" in send(client, run, "correct", text="Paid: 45 pounds.").text


def test_a_summary_and_a_row_are_pinned_and_unpinned_and_taken_back() -> None:
    run = compacted_run()
    client = reviewer()
    view = compaction_view(run, newest(run).seq)
    assert view is not None
    row = view.originals[-1].path
    assert f"Pinned {view.path}: compactions" in send(client, run, "pin").text
    assert "Unpin the summary" in send(client, run, "pin", path=row).text
    assert f"Unpin {row}" in client.get(page_of(run)).text
    assert f"Unpinned {row}" in send(client, run, "unpin", path=row).text
    assert f"Unpinned {view.path}" in send(client, run, "unpin").text
    assert "Enter a reason" in send(client, run, "undo", reason="").text
    assert (
        "Reverted; from the next prompt on, the model reads the original steps"
        in send(client, run, "undo", reason="All wrong.").text
    )
    page = client.get(page_of(run)).text
    assert "reverted by rita" in page and "All wrong." in page
    assert "can no longer be changed" in page
    assert "Save new version" not in page


def test_compact_now_is_asked_for_on_a_page_of_its_own() -> None:
    run = compacted_run()
    client, address = reviewer(), reverse("admin:runs_run_compact", args=[run.pk])
    assert address in client.get(reverse("admin:runs_run_change", args=[run.pk])).text
    assert address in client.get(page_of(run)).text
    answer = client.post(address, {"reason": "r" * 1001})
    assert "at most 1000 characters" in answer.text and "r" * 1001 in answer.text
    assert "before the next model call" in client.post(address, {"reason": "Dear."}, follow=True).text
    again = client.post(address, {"reason": "Once more."})
    assert "already requested" in again.text and "Once more." in again.text
    actions.abort(run, by=None)
    assert "has ended already" in client.post(address, {"reason": "x"}).text
    assert address not in client.get(reverse("admin:runs_run_change", args=[run.pk])).text
    assert "The run has ended" in client.get(page_of(run)).text


def test_who_may_only_look_is_offered_nothing_and_refused() -> None:
    run = compacted_run()
    client = signed_in(staff("luke", "view_run", "view_compaction"))
    page = client.get(page_of(run)).text
    assert "You can view this" in page and "Save new version" not in page
    for deed in ("correct", "undo", "pin", "unpin"):
        assert send(client, run, deed).status_code == 403
    address = reverse("admin:runs_run_compact", args=[run.pk])
    assert client.get(address).status_code == 403
    assert client.post(address, {"reason": "x"}).status_code == 403
    assert newest(run).version == 1
    no_staff = signed_in(person("nora", "view_run", "view_compaction", "change_compaction"))
    send(no_staff, run, "correct")
    assert newest(run).version == 1
    assert signed_in(staff("otto")).get(page_of(run)).status_code == 302, "to what he may see"


def test_a_compaction_that_was_gone_back_over_can_still_be_read() -> None:
    run = long_run(*searches(4), HELD, FINAL)
    read_on(run)
    actions.rewind(run, to=2, by=None)
    view = compactions(run)[0]
    page = reviewer().get(reverse("admin:runs_compaction_change", args=[view.id])).text
    assert "rolled back" in page and "result 0 of" in page
    assert "Save new version" not in page


def test_two_texts_are_laid_over_each_other() -> None:
    found = word_diff("Paid 40 pounds to bob.", "Paid 45 pounds to bob, twice.")
    assert "".join(piece.text for piece in found if piece.where != "after") == "Paid 40 pounds to bob."
    assert (
        "".join(piece.text for piece in found if piece.where != "before") == "Paid 45 pounds to bob, twice."
    )
    assert [piece.where for piece in word_diff("all", "other")] == ["before", "after"]
    assert [piece.where for piece in word_diff("same", "same")] == ["both"]
