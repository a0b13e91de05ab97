"""Models behind servers of any provider. Importing this loads no provider's library; the first call does."""

from runs.adapters.models.served import ServedModel, load_library
from runs.adapters.models.settings import (
    EFFORTS,
    EXTRAS,
    OPTIONAL,
    SEEDED,
    Kind,
    ModelSettings,
    how_to_add,
    missing_package,
)

__all__ = [
    "EFFORTS",
    "EXTRAS",
    "OPTIONAL",
    "SEEDED",
    "Kind",
    "ModelSettings",
    "ServedModel",
    "how_to_add",
    "load_library",
    "missing_package",
]
