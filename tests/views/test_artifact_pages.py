"""The pages of what a run made: who sees them, what a download is, and hostile content that stays harmless."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from runs.adapters.folder import MAX_FILE_BYTES, RunFolder
from runs.models import Artifact, Run
from runs.reading.artifacts import artifact_url, files_of
from runs.store.artifacts import Made, write_artifacts
from runs.store.creating import folder_of
from tests.artifacts import contract_run, gone_back, made, png, render, run_saving, saving
from tests.cast import alice, bob, charlie, signed_in
from tests.launching import FINAL, launch, script, think
from tests.running import work

pytestmark = [pytest.mark.django_db]


def saved_by_alice(*files: dict[str, str]) -> Run:
    tool = saving(list(files))
    return work(launch(played=script(think("save"), FINAL, tools={"save": tool}), owner=alice()))


def get(run: Run, name: str, **query: Any) -> Any:
    """The page of an artifact, as a reviewer sees it."""
    reviewer = User.objects.filter(username="bob").first() or bob()
    return signed_in(reviewer).get(artifact_url(run.pk, name, **query))


def with_bytes(name: str, content: bytes) -> Run:
    """A run of which a tool that is no part of the site has made a file with these bytes."""
    run = run_saving([made(name, "x")])
    kept = RunFolder(folder_of(run.pk)).write(name, content)
    changed = {"sha256": kept.sha256, "size": kept.size, "media_type": kept.media_type}
    exchange = run.exchanges.get(name="save")
    answer = exchange.answer_json or ""
    before = Artifact.objects.get(run=run)
    answer = answer.replace(before.sha256, kept.sha256).replace('"size":1', f'"size":{kept.size}')
    exchange.answer_json = answer.replace(f'"{before.media_type}"', f'"{kept.media_type}"')
    exchange.save()
    Artifact.objects.filter(run=run).update(**changed)
    return run


def text_of(answer: HttpResponse) -> str:
    return re.sub(r"<[^>]+>", " ", answer.text)


# --- who and what ---------------------------------------------------------------------------------------------------


def test_who_may_see_the_run_sees_what_it_made_and_nobody_else() -> None:
    run = saved_by_alice(made("a.txt", "one"))
    owner, reviewer, outsider = (
        signed_in(User.objects.get(username="alice")),
        signed_in(bob()),
        signed_in(charlie()),
    )
    pages = (reverse("artifacts", args=[run.pk]), artifact_url(run.pk, "a.txt"))
    for page in (*pages, artifact_url(run.pk, "a.txt", **{"as": "file"}), f"{pages[0]}?name=a.txt"):
        assert owner.get(page).status_code == reviewer.get(page).status_code == 200
        assert outsider.get(page).status_code == 404
        assert Client().get(page).status_code == 302


def test_the_page_tells_what_it_is_and_where_it_comes_from() -> None:
    run = run_saving([made("notes/a.txt", "one")], [made("notes/a.txt", "two")])
    newest = Artifact.objects.get(run=run, version=2)
    page = get(run, "notes/a.txt")
    said = " ".join(text_of(page).split())
    assert newest.sha256 in said
    assert "text/plain" in said and "3 bytes" in said and "version 2 of 2" in said
    assert f'href="{reverse("run", args=[run.pk])}?step={newest.seq}"' in page.text
    assert f"save , called in step {newest.call_seq}" in said
    assert "current version" in said
    older = get(run, "notes/a.txt", version=1)
    assert "Older version" in older.text and ">one</code>" in older.text
    assert f'href="{artifact_url(run.pk, "notes/a.txt", version=2)}"' in older.text


@pytest.mark.parametrize(
    "query", ["version=0", "version=3", "version=x", "version=", "version=-1", "version=²"]
)
def test_a_version_that_is_not_there_is_not_found(query: str) -> None:
    run = run_saving([made("a.txt", "one")])
    assert signed_in(bob()).get(f"{artifact_url(run.pk, 'a.txt')}?{query}").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["nothing.txt/", "..%2f..%2fsecret_key/", "a.txt%00/", "%F0%9F/", "?name=", "?name=%00", "?name=a%0ab"],
)
def test_a_name_that_is_not_there_is_not_found(path: str) -> None:
    run = run_saving([made("a.txt", "one")])
    assert signed_in(bob()).get(f"/runs/{run.pk}/artifacts/{path}").status_code == 404


@pytest.mark.parametrize(
    "name", ["a\nb", "../up", "a//b", "?", "#x", "%2e%2e", "\u202egnp.exe", "x" * 5_000, "nul"]
)
def test_whatever_a_contract_calls_it_the_links_lead_there(name: str) -> None:
    run = contract_run(
        render((name, "inline")), save={"effects": "read", "results": [{"output": "the value"}]}
    )
    client = signed_in(bob())
    for page in (reverse("run", args=[run.pk]), reverse("artifacts", args=[run.pk])):
        links = re.findall(r'href="(/runs/\d+/artifacts/[^"]+)"', client.get(page).text)
        assert links
        shown = client.get(links[0].replace("&amp;", "&"))
        assert shown.status_code == 200
        assert "the value" in shown.text
        download = re.search(r'href="([^"]+)" download', shown.text)
        assert download
        answer = client.get(download[1].replace("&amp;", "&"))
        assert answer.content == b"the value"
        assert "\n" not in answer["Content-Disposition"]
        assert (
            "\u202e" not in answer["Content-Disposition"]
            and quote("\u202e") not in answer["Content-Disposition"]
        )


def test_an_artifact_that_failed_says_why_and_has_nothing_to_download() -> None:
    bad = {"effects": "read", "results": [{"error": "The <b>pen</b> is broken."}]}
    run = contract_run(render(("chart", "file"), tool="draw"), draw=bad)
    page = get(run, "chart")
    assert "The &lt;b&gt;pen&lt;/b&gt; is broken." in page.text
    assert "Download" not in page.text
    assert get(run, "chart", **{"as": "file"}).status_code == 404


def test_what_was_gone_back_over_is_shown_as_that() -> None:
    run = gone_back()
    meant, dead, only_dead = get(run, "a.txt"), get(run, "a.txt", version=2), get(run, "b.txt")
    assert "holds version 2, which was rolled back. Tools read that file" in meant.text
    assert "The run rolled back step" in dead.text and "version 1</a>." in dead.text
    assert "No version is current" in only_dead.text
    listed = signed_in(User.objects.get(username="bob")).get(reverse("artifacts", args=[run.pk])).text
    assert listed.count("rolled back") == 1


def test_the_run_page_lists_what_it_made_with_kind_versions_and_row() -> None:
    run = run_saving([made("a.txt", "one"), made("b.png", "x")], [made("a.txt", "two")])
    page = signed_in(bob()).get(reverse("run", args=[run.pk])).text
    panel = " ".join(
        re.sub(r"<[^>]+>", " ", page.split('data-panel="files"')[1].split("</section>")[0]).split()
    )
    rows = {view.name: view.seq for view in files_of(run)}
    assert f"a.txt file 3 B 2 versions step {rows['a.txt']}" in panel
    assert f"b.png display 1 B step {rows['b.png']}" in panel


def test_the_run_page_lists_some_and_says_how_many_more() -> None:
    run = run_saving([made(f"{number:02}.txt", "x") for number in range(45)])
    client = signed_in(bob())
    assert "Show all: 5 more" in client.get(reverse("run", args=[run.pk])).text
    assert client.get(reverse("artifacts", args=[run.pk])).text.count('class="made__item"') == 45


# --- downloads ------------------------------------------------------------------------------------------------------

STRICT = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.mark.parametrize(
    ("name", "content", "sent_as"),
    [
        ("a.html", b"<script>alert(1)</script>", "application/octet-stream"),
        ("a.svg", b"<svg onload=alert(1)>", "application/octet-stream"),
        ("a.md", b"# hi", "application/octet-stream"),
        ("a.json", b"{}", "application/octet-stream"),
        ("a.pdf", b"%PDF-1.7", "application/octet-stream"),
        ("a.bin", b"\x00\xff", "application/octet-stream"),
        ("a.png", b"<script>alert(1)</script>", "application/octet-stream"),
        ("a.html", png(3, 2), "image/png"),
    ],
)
def test_a_download_is_an_attachment_that_no_browser_runs(name: str, content: bytes, sent_as: str) -> None:
    run = with_bytes(name, content)
    answer = get(run, name, **{"as": "file"})
    assert (answer.content, answer["Content-Type"]) == (content, sent_as)
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
    assert {header: answer[header] for header in STRICT} == STRICT
    assert "no-store" in answer["Cache-Control"]


# --- hostile content ------------------------------------------------------------------------------------------------

HOSTILE = {
    "zero.txt": b"a\x00<script>alert(1)</script>",
    "line.txt": b"<script>" * (MAX_FILE_BYTES // 8),
    "invalid.txt": b"\xff\xfe<script>alert(1)</script>",
    "formulas.csv": b"name,value\n\"=cmd|' /C calc'!A0\",<script>alert(1)</script>\n" + b"x" * 300_000,
    "deep.json": b"[" * 10_000 + b"]" * 10_000,
    "script.json": b'{"<script>alert(1)</script>": "\xe2\x80\xae"}',
    "mask.png": b"\x89PNG\r\n\x1a\n<script>alert(1)</script>",
    "page.html": b"<html><script>alert(1)</script>",
    "draw.svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "bomb.md": b"> " * 5_000 + b"[" * 5_000 + b"<script>alert(1)</script>",
    "turn.txt": "\u202e<script>alert(1)</script>\u2066\x1b[2J".encode(),
    "words.md": b"<script>alert(1)</script>\n![x](https://evil.example/x.png)\n[y](javascript:alert(1))",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_shown_harmless(name: str) -> None:
    run = with_bytes(name, HOSTILE[name])
    page = get(run, name)
    assert page.status_code == 200
    content = page.text.split('id="preview-title"')[1].split('class="made__about"')[0]
    assert "<script" not in content and "<svg" not in content and "<img" not in content
    assert "javascript:" not in re.sub(r">[^<]*<", "><", content)
    assert len(page.text) < 600_000
    assert not set("\u202e\u2066\x1b\x00") & set(page.text)
    assert "default-src 'self'" in page["Content-Security-Policy"]


def test_a_picture_is_shown_from_its_own_strict_answer() -> None:
    run = with_bytes("out/a.png", png(30, 20))
    page = get(run, "out/a.png")
    found = re.search(
        r'<img class="made__picture" src="([^"]+)" width="30" height="20" alt="([^"]+)"', page.text
    )
    assert found
    assert found[2] == "The picture out/a.png"
    answer = signed_in(User.objects.get(username="bob")).get(found[1].replace("&amp;", "&"))
    assert (answer["Content-Type"], answer.content) == ("image/png", png(30, 20))
    assert answer["Content-Disposition"].startswith("attachment")


def test_a_file_that_no_row_tells_of_is_listed_and_can_be_saved() -> None:
    run = work(launch(FINAL))
    RunFolder(folder_of(run.pk)).write("old.txt", b"old")
    client = signed_in(bob())
    page = client.get(reverse("artifacts", args=[run.pk])).text
    assert "not in the log" in page
    answer = client.get(reverse("file", args=[run.pk, "old.txt"]))
    assert answer.content == b"old"
    assert answer["Content-Disposition"] == 'attachment; filename="old.txt"'
    assert {header: answer[header] for header in STRICT} == STRICT


def test_a_run_that_made_nothing_says_so() -> None:
    run = work(launch(FINAL))
    assert "No files yet" in signed_in(bob()).get(reverse("artifacts", args=[run.pk])).text


def test_the_page_of_many_versions_lists_the_newest() -> None:
    run = run_saving([made("a.txt", "x")])
    one = Artifact.objects.get(run=run)
    same = Made("a.txt", "file", one.media_type, one.size, one.sha256, None, one.call_seq, one.tool)
    for _ in range(120):
        write_artifacts(run.pk, [(one.seq, same)])
    page = get(run, "a.txt").text
    Artifact.objects.filter(run=run, version__gt=1).delete()
    assert page.count('class="made__version"') == 100
    assert "21 older versions are not listed" in page
