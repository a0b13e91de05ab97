"""Template tags of every page: the number of waiting questions, and a few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.engine.presentation import Meter
from runs.models import Halt
from runs.reading import banner, cards, hidden_text, markdown, phrases, words
from runs.reading.gauges import Gauge, gauge_of
from runs.rights import Person
from runs.store.backups import restored_id
from runs.store.halting import halt_now

EXCERPT = 4_000
"""Characters of a text of a step that are shown before a reader asks for all."""

register = template.Library()


@register.simple_tag(takes_context=True)
def needs_you(context: template.RequestContext) -> int:
    """Return how many interrupts wait for the reader; queried once for each page."""
    request = context.get("request")
    if request is None or not request.user.is_authenticated:
        return 0
    if not hasattr(request, "needs_you"):
        request.needs_you = cards.pending_count(request.user)
    waiting: int = request.needs_you
    return waiting


@register.simple_tag(takes_context=True)
def life(context: template.RequestContext, form: str = "") -> SafeString:
    """Return the field with the restore epoch of a page; `form` if it is outside of its form."""
    where = format_html(' form="{}"', form) if form else ""
    return format_html('<input type="hidden" name="life" value="{}"{}>', life_id(context), where)


@register.simple_tag(takes_context=True)
def life_id(context: template.RequestContext) -> str:
    """Return the restore epoch of a page."""
    request: Any = context.request
    if not hasattr(request, "life"):
        request.life = restored_id()
    found: str = request.life
    return found


@register.simple_tag
def csrf_cookie() -> str:
    """Return the name of the cookie that holds the token for forms, for scripts."""
    return settings.CSRF_COOKIE_NAME


@register.simple_tag
def the_halt() -> Halt | None:
    """Return the active halt."""
    return halt_now()


@register.simple_tag
def halt_banner(person: Person) -> SafeString:
    """Return the banner of every page while the site is halted."""
    return banner.halt_banner(person)


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return a decorative drawing: the word is beside it."""
    return format_html('<span class="icon icon--{}" aria-hidden="true"></span>', name)


@register.inclusion_tag("runs/_excerpt.html", takes_context=True)
def excerpt(
    context: template.RequestContext, text: str, part: str, most: int = EXCERPT, number: int = 0
) -> dict[str, Any]:
    """Return a text of a step; of a long one its beginning and end, and the address of the whole."""
    whole = hidden_text.visible(text)
    left_out = len(whole) - most if len(whole) > most + most // 4 else 0
    half = most // 2
    return {
        "shown": f"{whole[:half]}\n… {left_out:,} characters …\n{whole[-half:]}" if left_out else whole,
        "look": "prompt__text" if part == "message" else "code",
        "characters": len(whole) if left_out else 0,
        "run": context["run"],
        "seq": context["step"].row.seq,
        "part": f"{part}-{number}" if number else part,
    }


@register.simple_tag
def marked(pieces: Iterable[Any]) -> SafeString:
    """Return a text in pieces, with what was removed and what was added marked."""
    marks = {"before": "<del>{}</del>", "after": "<ins>{}</ins>"}
    shown = (format_html(marks.get(piece.where, "{}"), visible(piece.text)) for piece in pieces)
    return SafeString("".join(shown))


@register.filter
def spoken(name: str) -> str:
    """Return an engine's name as words."""
    return words.spoken(str(name))


@register.filter
def formatted(text: str) -> SafeString:
    """Return Markdown as safe HTML; its place has the class `prose`."""
    return markdown.render(str(text))


@register.filter
def cited(text: str, sources: Any) -> SafeString:
    """Return the same, with the cited sources as links."""
    return markdown.render(str(text), tuple(sources or ()))


@register.filter(is_safe=True)
def visible(text: str) -> str:
    """Return plain text with a sign for each invisible character."""
    return hidden_text.visible(str(text))


@register.filter
def escaped(text: str) -> str:
    """Return plain text with an escape for each invisible character."""
    return hidden_text.escaped(str(text))


@register.filter
def thousands(number: float) -> str:
    """Return a whole number, with separated thousands."""
    return f"{number:,.0f}"


@register.filter
def host(url: str) -> str:
    """Return the host of an address, with an escape for each look-alike letter."""
    return hidden_text.escaped(urlsplit(str(url)).netloc)


@register.filter
def money(usd: float) -> str:
    """Return an amount in USD."""
    return words.money(usd)


@register.filter
def seconds(value: float) -> str:
    """Return a length of time."""
    return words.seconds(value)


@register.filter
def coded(text: str) -> SafeString:
    """Return a sentence with the parts between backticks as code."""
    pieces = str(text).split("`")
    shown = (format_html("<code>{}</code>" if at % 2 else "{}", piece) for at, piece in enumerate(pieces))
    return SafeString("".join(shown))


@register.filter
def gauge(meter: Meter) -> Gauge:
    """Return a machine's number as a gauge."""
    return gauge_of(meter)


@register.filter
def short(text: str, most: int) -> str:
    """Return a text on one line, at most so many characters."""
    return phrases.short(str(text), most)


@register.filter
def value(found: Any, most: int) -> str:
    """Return a tool's value on one line, at most so many characters; nothing if it is empty text."""
    return phrases.short(phrases.value_text(found), most)


@register.filter
def call(tool: str, args: dict[str, Any]) -> str:
    """Return a call as code."""
    return phrases.call_text(tool, args)


@register.filter
def of(mapping: Any, name: Any) -> Any:
    """Return the entry of a mapping; nothing if there is none."""
    return mapping.get(name, "") if mapping else ""
