"""Language models: providers, messages, requests, responses, and a scripted mock provider for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.llm.accounting.metering import estimate_message
    from loom_core.llm.accounting.prices import Prices
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.factory import create_model, create_provider
    from loom_core.llm.fallback import FallbackProvider
    from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
    from loom_core.llm.hosted.provider import HostedProvider
    from loom_core.llm.hosted.providers import (
        AnthropicProvider,
        CustomProvider,
        DeepSeekProvider,
        DoubaoProvider,
        GeminiProvider,
        GPUStackProvider,
        KimiProvider,
        MiniMaxProvider,
        NamedProvider,
        OllamaProvider,
        OpenAICompatibleProvider,
        OpenAIProvider,
        ProviderOptions,
        QwenProvider,
        VLLMProvider,
        ZhipuProvider,
    )
    from loom_core.llm.interface import (
        ChatOptions,
        ChatRequest,
        Effort,
        FinishReason,
        LLMProvider,
        LLMResponse,
        OutputSchema,
        StreamChunk,
        ToolCallDelta,
        ToolChoice,
        ToolSpec,
        Usage,
    )
    from loom_core.llm.messages import (
        AssistantMessage,
        AssistantPart,
        ImagePart,
        Message,
        MessageLike,
        ReasoningPart,
        SystemMessage,
        TextPart,
        ToolCallPart,
        ToolMessage,
        UserMessage,
        UserPart,
    )
    from loom_core.llm.mock import MockAnswer, MockProvider
    from loom_core.llm.structured import Generated, generate
    from loom_core.llm.text import as_data
    from loom_core.llm.vendors import ModelRule, ProviderSpec
    from loom_core.net.retry import RetryPolicy

__all__ = [
    "AnthropicProvider",
    "AssistantMessage",
    "AssistantPart",
    "ChatOptions",
    "ChatRequest",
    "CircuitBreaker",
    "CustomProvider",
    "DeepSeekProvider",
    "DoubaoProvider",
    "Effort",
    "FallbackProvider",
    "FinishReason",
    "GPUStackProvider",
    "GeminiProvider",
    "Generated",
    "HostedProvider",
    "ImagePart",
    "KimiProvider",
    "LLMProvider",
    "LLMResponse",
    "Message",
    "MessageLike",
    "MiniMaxProvider",
    "MockAnswer",
    "MockProvider",
    "ModelRule",
    "NamedProvider",
    "OllamaProvider",
    "OpenAICompatibleProvider",
    "OpenAIProvider",
    "OutputSchema",
    "Prices",
    "ProviderConfig",
    "ProviderOptions",
    "ProviderSpec",
    "QwenProvider",
    "RateLimits",
    "ReasoningPart",
    "RetryPolicy",
    "StreamChunk",
    "SystemMessage",
    "TextPart",
    "ToolCallDelta",
    "ToolCallPart",
    "ToolChoice",
    "ToolMessage",
    "ToolSpec",
    "Usage",
    "UserMessage",
    "UserPart",
    "VLLMProvider",
    "ZhipuProvider",
    "as_data",
    "create_model",
    "create_provider",
    "estimate_message",
    "generate",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
