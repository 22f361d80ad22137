from __future__ import annotations

from loom_core.agent.compaction.summarizer import USUAL_WINDOW, window_of
from loom_core.llm.factory import create_provider
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.mock import MockProvider


def test_the_lists_know_the_windows_of_well_known_models():
    assert window_of(create_provider("deepseek/deepseek-chat")) >= 64_000
    assert window_of(create_provider("anthropic/claude-haiku-4-5")) == 200_000


def test_a_model_that_no_one_knows_is_taken_for_a_usual_one():
    assert window_of(MockProvider([])) == USUAL_WINDOW
    unknown = create_provider({"provider": "custom", "model": "mine", "base_url": "https://llm.example/v1"})
    assert window_of(unknown) == USUAL_WINDOW


def test_what_the_configuration_says_counts_first():
    said = create_provider({"provider": "deepseek", "spec": {"window": 50_000}})
    assert window_of(said) == 50_000


def test_a_server_that_shortens_conversations_in_silence_is_not_trusted_with_long_ones():
    assert window_of(create_provider("ollama/qwen3:8b")) == 32_768


def test_of_models_that_stand_in_for_each_other_the_smallest_window_counts():
    chain = FallbackProvider(
        [
            create_provider("anthropic/claude-sonnet-5-5"),
            create_provider("ollama/qwen3:8b"),
            MockProvider([]),
        ]
    )
    assert window_of(chain) == 32_768
    assert window_of(FallbackProvider([MockProvider([])])) == USUAL_WINDOW
