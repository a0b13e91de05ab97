"""The tables of a run. The database enforces what must never happen; only `store` writes steps and exchanges.

JSON is stored as canonical text: hashes are taken of the stored text.
"""

from runs.models.artifacts import Artifact
from runs.models.log import (
    Compaction,
    CompactionManager,
    Exchange,
    Remembered,
    SentSpans,
    Step,
    tells,
    tells_of,
)
from runs.models.mcp import ON, McpServer, McpTool
from runs.models.people import Decision, Interrupt
from runs.models.run import FINISHED, LOOKS, LOST, UNFINISHED, Budget, Run, RunQuerySet, RunStatus, ScriptText
from runs.models.site import (
    ADDRESSES,
    KEY_VARIABLE,
    Halt,
    ModelCheck,
    ModelProfile,
    ModelTurn,
    RestoreEpoch,
    SiteHost,
    SiteRule,
    Skill,
    same_server,
)

__all__ = [
    "ADDRESSES",
    "FINISHED",
    "KEY_VARIABLE",
    "LOOKS",
    "LOST",
    "ON",
    "UNFINISHED",
    "Artifact",
    "Budget",
    "Compaction",
    "CompactionManager",
    "Decision",
    "Exchange",
    "Halt",
    "Interrupt",
    "McpServer",
    "McpTool",
    "ModelCheck",
    "ModelProfile",
    "ModelTurn",
    "Remembered",
    "RestoreEpoch",
    "Run",
    "RunQuerySet",
    "RunStatus",
    "ScriptText",
    "SentSpans",
    "SiteHost",
    "SiteRule",
    "Skill",
    "Step",
    "same_server",
    "tells",
    "tells_of",
]
