"""The local model's weights are looked at before they are used."""

from pathlib import Path

import pytest

from agentsite.local_model import WEIGHTS, WrongWeights, checked_weights


@pytest.mark.parametrize("content", [None, b"", b"GGUF but another model"])
def test_weights_that_were_not_tried_are_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / WEIGHTS
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WrongWeights, match="damaged or not the expected file"):
        checked_weights(tmp_path)
