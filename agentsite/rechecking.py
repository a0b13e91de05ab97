"""Recheck the rights of open sockets after every change of an account or a right.

Accounts, groups and rights are Django's own, changed in its admin and at its prompt: only its signals see all of it.
Changes beside the models are found by the sockets' own recheck within 30 s.
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
    """Recheck these people's sockets after the commit."""
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
    """Recheck after a person got or lost a group or right; `instance` is the person, or the group."""
    _recheck([instance.pk] if isinstance(instance, User) else pk_set or ())


@receiver(m2m_changed, sender=Group.permissions.through)
@receiver(pre_delete, sender=Group)
def group_changed(instance: Any, **about: Any) -> None:
    """Recheck after a change of a group's rights."""
    if isinstance(instance, Group):
        _recheck(_members(instance))
