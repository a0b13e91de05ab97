"""The chaos bench: real processes that are killed, frozen and lied to, and a check of what must hold at the end.

    python -m tests.chaos --kills 2000 --database both

Source: reliability.md, sections 1 and 4.
"""

MODEL_KEY = "AGENTSITE_KEY_CHAOS"
"""The environment's variable that holds a model's key: a secret that must be nowhere else."""
