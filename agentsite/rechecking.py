"""Open sockets are asked again who may have them as soon as an account or a right has changed, wherever that was done.

Accounts, groups and rights are Django's own, changed in its admin and at its prompt: its signals are the one place
that sees all of it. What they can't see (rows changed beside the models) the sockets' own look finds in 30 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete
from django.dispatch import receiver

from runs import live


def _recheck(people: Iterable[int]) -> None:
    """Once the change is committed."""
    for person in tuple(people):
        transaction.on_commit(partial(live.ring_person, person))


def _members(group: Group) -> list[int]:
    return list(group.user_set.values_list("pk", flat=True))


@receiver([post_save, post_delete], sender=User)
def account_changed(instance: User, update_fields: frozenset[str] | None = None, **about: Any) -> None:
    """Recheck the sockets of a person whose account was disabled, deleted or given another password."""
    if update_fields != frozenset({"last_login"}):
        _recheck([instance.pk])


@receiver(m2m_changed, sender=User.groups.through)
@receiver(m2m_changed, sender=User.user_permissions.through)
def rights_changed(instance: Any, pk_set: set[int] | None, **about: Any) -> None:
    """A person has come to a group or right, or lost one; `instance` is the person, or what they came to."""
    _recheck([instance.pk] if isinstance(instance, User) else pk_set or ())


@receiver(m2m_changed, sender=Group.permissions.through)
@receiver(pre_delete, sender=Group)
def group_changed(instance: Any, **about: Any) -> None:
    """What a group may do has changed."""
    if isinstance(instance, Group):
        _recheck(_members(instance))
