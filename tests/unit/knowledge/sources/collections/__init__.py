"""Tests of collections that others have filled."""

import pytest

pytest.register_assert_rewrite("tests.unit.knowledge.sources.collections.contract")
