"""What a server answers, as a result of ours: text, JSON, and files."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable
from mimetypes import guess_extension
from pathlib import Path
from typing import Any

import mcp_types

from runs.adapters.folder import MAX_FILE_BYTES, RunFolder
from runs.adapters.mcp.faults import ServerRefused
from runs.adapters.tool import Result
from runs.engine.effects import MadeFile
from runs.engine.values import Json

MOST_FILES = 20


class Reader:
    """Reads the blocks of one answer; its pictures and files go into the run's own directory."""

    def __init__(self, folder: Path, stem: str, scrub: Callable[[str], str]) -> None:
        self._folder = RunFolder(folder)
        self._stem = stem
        self._scrub = scrub
        self._files: list[MadeFile] = []

    def tool(self, answer: mcp_types.CallToolResult) -> Result:
        """Read the result of a tool. Raises `ServerRefused` where the tool says that it failed."""
        said = self._texts(answer.content)
        if answer.is_error:
            raise ServerRefused(said or "The tool failed and did not say why.")
        value: Json = said
        if answer.structured_content is not None:
            value = self.scrubbed(answer.structured_content)
        return Result(value, tuple(self._files))

    def resource(self, answer: mcp_types.ReadResourceResult) -> Result:
        """Read the contents of a resource."""
        said = "\n\n".join(filter(None, map(self._content, answer.contents)))
        return Result(said, tuple(self._files))

    def prompt(self, answer: mcp_types.GetPromptResult) -> Result:
        """Read the messages of a prompt."""
        messages = [{"role": one.role, "text": self._texts([one.content])} for one in answer.messages]
        return Result(
            {"description": self._scrub(answer.description or ""), "messages": messages}, tuple(self._files)
        )

    def scrubbed(self, value: Any) -> Any:
        """Return the value without secrets in its texts."""
        match value:
            case str():
                return self._scrub(value)
            case list():
                return [self.scrubbed(one) for one in value]
            case dict():
                return {self._scrub(str(name)): self.scrubbed(one) for name, one in value.items()}
        return value

    def _texts(self, blocks: Iterable[Any]) -> str:
        return "\n\n".join(filter(None, map(self._block, blocks)))

    def _block(self, block: Any) -> str:
        match block:
            case mcp_types.TextContent():
                return self._scrub(block.text)
            case mcp_types.ImageContent() | mcp_types.AudioContent():
                return self._file(block.data, block.mime_type)
            case mcp_types.EmbeddedResource():
                return self._content(block.resource)
            case mcp_types.ResourceLink():
                return self._scrub(f"{block.name}: {block.uri}")
        return f"[{type(block).__name__} is not read]"

    def _content(self, content: Any) -> str:
        if isinstance(content, mcp_types.TextResourceContents):
            return self._scrub(content.text)
        return self._file(content.blob, content.mime_type or "")

    def _file(self, data: str, media_type: str) -> str:
        """Keep a file, and return its name for the model."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return "[a file that can't be decoded]"
        if len(content) > MAX_FILE_BYTES or len(self._files) >= MOST_FILES:
            return f"[a file of {len(content):,} bytes, left out]"
        ending = guess_extension(media_type) or ".bin"
        name = f"{self._stem}-{hashlib.sha256(content).hexdigest()[:8]}{ending}"
        self._files.append(self._folder.write(name, content))
        return f"[file {name}]"
