"""When a model of a vendor of chat-completions thinks before it answers."""

from __future__ import annotations

from fnmatch import fnmatchcase

from loom_core.testing.vendors.json_fields import Json, mapping

__all__ = ["thinks"]


def thinks(vendor: str, body: Json) -> bool:
    """Whether a request makes the model think before it answers."""
    model: str = body["model"]
    effort = body.get("reasoning_effort")
    match vendor:
        case "openai":
            return not fnmatchcase(model, "gpt-4*") and effort != "none"
        case "deepseek" | "doubao" | "kimi" | "zhipu":
            return _is_switched_on(vendor, model, body)
        case "qwen":
            always = fnmatchcase(model, "qwq*") or "-thinking" in model
            return always or bool(body.get("enable_thinking", fnmatchcase(model, "qwen3.[5678]-*")))
        case "minimax":
            return True
        case "gemini":
            return effort != "none"
        case "ollama":
            return model.startswith("qwen3") and effort != "none"
        case "vllm" | "gpustack":
            return bool(mapping(body, "chat_template_kwargs").get("enable_thinking", True))
        case _:
            return False


def _is_switched_on(vendor: str, model: str, body: Json) -> bool:
    """The same for vendors that have a switch, `thinking`, which some of their models do not heed."""
    on = mapping(body, "thinking").get("type") != "disabled"
    match vendor:
        case "deepseek":
            return on and model != "deepseek-chat"
        case "doubao":
            return on and body.get("reasoning_effort") != "minimal"
        case "kimi":
            return on if fnmatchcase(model, "kimi-k2.[56]*") else model.startswith("kimi-")
        case _:
            return on or fnmatchcase(model, "glm-5.3*")
