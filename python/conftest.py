"""Shared by all tests: examples in doc strings find a folder of their own under `tmp`."""

import pytest


@pytest.fixture(autouse=True)
def _names_of_examples(doctest_namespace, tmp_path):
    doctest_namespace["tmp"] = tmp_path
