"""The chaos bench: real processes that are killed, frozen and lied to, and a check of what must hold at the end.

    python -m tests.chaos --kills 2000 --database both

Its names are explained in docs/invariants.md.
"""

MODEL_KEY = "AGENTSITE_KEY_CHAOS"
"""The environment's variable that holds a model's key: a secret that must be nowhere else."""
