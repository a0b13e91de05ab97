"""People's actions: each checks the right, makes one move, and notifies.

Rights: docs/operating.md, "People and rights".
"""

from runs.actions.common import MAX_NOTE, NotAllowed, TooLong
from runs.actions.continuing import check_continuing, continue_run
from runs.actions.copying import Answers, check_first_answer, fork, replay, rerun
from runs.actions.launching import BadLaunch, Problem, check_launch, start_run
from runs.actions.mending import compact_now, edit_summary, pin, undo_summary, unpin
from runs.actions.models import (
    check_models,
    choose_model,
    have_tested,
    keep_profile,
    save_profile,
)
from runs.actions.servers import (
    approve_tool,
    check_servers,
    delete_server,
    look_for_tools,
    save_server,
    switch_tool_off,
)
from runs.actions.site import MAX_HALT_REASON, check_rule, halt_site, register_model, unhalt_site
from runs.actions.steering import Resumption, abort, decide, pause, resume, resume_restored, rewind, try_now
from runs.actions.trying import BadArguments, check_trial, check_trying, try_tool
from runs.rights import may_decide, may_halt, may_launch, may_manage_servers, may_mend, may_steer
from runs.store.errors import BadDecision, Conflict, NotPossible, ToldOtherwise
from runs.store.halting import AlreadyHalted

__all__ = [
    "MAX_HALT_REASON",
    "MAX_NOTE",
    "AlreadyHalted",
    "Answers",
    "BadArguments",
    "BadDecision",
    "BadLaunch",
    "Conflict",
    "NotAllowed",
    "NotPossible",
    "Problem",
    "Resumption",
    "ToldOtherwise",
    "TooLong",
    "abort",
    "approve_tool",
    "check_continuing",
    "check_first_answer",
    "check_launch",
    "check_models",
    "check_rule",
    "check_servers",
    "check_trial",
    "check_trying",
    "choose_model",
    "compact_now",
    "continue_run",
    "decide",
    "delete_server",
    "edit_summary",
    "fork",
    "halt_site",
    "have_tested",
    "keep_profile",
    "look_for_tools",
    "may_decide",
    "may_halt",
    "may_launch",
    "may_manage_servers",
    "may_mend",
    "may_steer",
    "pause",
    "pin",
    "register_model",
    "replay",
    "rerun",
    "resume",
    "resume_restored",
    "rewind",
    "save_profile",
    "save_server",
    "start_run",
    "switch_tool_off",
    "try_now",
    "try_tool",
    "undo_summary",
    "unhalt_site",
    "unpin",
]
