"""Where a profile of each provider and local server begins: what is usual for it. No network, no key."""

from __future__ import annotations

from typing import Any

from runs.adapters.models.settings import Kind
from runs.engine.values import Value


class Preset(Value):
    """The usual values of a profile; all can be changed before it is saved."""

    name: str
    label: str
    about: str
    kind: Kind = "openai"
    base_url: str = ""
    address_hint: str = ""
    """The form of an address that each site has of its own; empty if `base_url` needs no change."""
    key_variable: str = ""
    local: bool = False
    """True for a server of one's own: it is free, slow at first, and has the context that it was started with."""

    @property
    def values(self) -> dict[str, Any]:
        """Return the fields of a profile's form."""
        usual = {"name": self.label, "kind": self.kind, "base_url": self.base_url}
        if not self.local:
            return usual | {"key_variable": self.key_variable}
        free = {"input_price": 0, "output_price": 0}
        return usual | free | {"context_tokens": 8_192, "max_output_tokens": 2_000, "timeout_s": 600}


PRESETS: tuple[Preset, ...] = (
    Preset(
        name="openai",
        label="OpenAI",
        about="Responses API",
        kind="responses",
        key_variable="AGENTSITE_KEY_OPENAI",
    ),
    Preset(
        name="anthropic",
        label="Anthropic",
        about="Claude",
        kind="anthropic",
        key_variable="AGENTSITE_KEY_ANTHROPIC",
    ),
    Preset(name="google", label="Google", about="Gemini", kind="google", key_variable="AGENTSITE_KEY_GOOGLE"),
    Preset(
        name="mistral",
        label="Mistral",
        about="La Plateforme",
        kind="mistral",
        key_variable="AGENTSITE_KEY_MISTRAL",
    ),
    Preset(
        name="openrouter",
        label="OpenRouter",
        about="Models of many providers; reports each cost",
        kind="openrouter",
        key_variable="AGENTSITE_KEY_OPENROUTER",
    ),
    Preset(
        name="azure",
        label="Azure OpenAI",
        about="A deployment of your resource",
        address_hint="https://RESOURCE.openai.azure.com/openai/v1",
        key_variable="AGENTSITE_KEY_AZURE",
    ),
    Preset(
        name="bedrock",
        label="Amazon Bedrock",
        about="Chat completions, with a Bedrock API key",
        address_hint="https://bedrock-mantle.REGION.api.aws/v1",
        key_variable="AGENTSITE_KEY_BEDROCK",
    ),
    Preset(
        name="ollama",
        label="Ollama",
        about="Its default context is small: set OLLAMA_CONTEXT_LENGTH",
        base_url="http://127.0.0.1:11434/v1",
        local=True,
    ),
    Preset(
        name="vllm",
        label="vLLM",
        about="vllm serve MODEL",
        base_url="http://127.0.0.1:8000/v1",
        local=True,
    ),
    Preset(
        name="llamacpp",
        label="llama.cpp",
        about="llama-server -m MODEL -c 8192",
        base_url="http://127.0.0.1:8080/v1",
        local=True,
    ),
    Preset(
        name="lmstudio",
        label="LM Studio",
        about="Developer → Start server",
        base_url="http://127.0.0.1:1234/v1",
        local=True,
    ),
    Preset(
        name="litellm",
        label="LiteLLM",
        about="A proxy of your own to other providers",
        base_url="http://127.0.0.1:4000/v1",
        key_variable="AGENTSITE_KEY_LITELLM",
    ),
    Preset(
        name="other",
        label="Other server",
        about="Any server with chat completions",
        address_hint="http://127.0.0.1:9000/v1",
    ),
)


def preset_of(name: str) -> Preset | None:
    """Return the preset of that name."""
    return next((one for one in PRESETS if one.name == name), None)
