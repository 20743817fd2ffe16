"""Attributes of job functions."""

import copy

import pytest

from holdfast import Holdfast


def resize(path: str) -> str:
    """A function to declare."""
    return path


@pytest.mark.parametrize("name", ["apply_async", "defer", "delay", "enqueue", "kiq", "send", "send_with_options"])
def test_method_of_another_queue_is_answered_with_ours(name: str) -> None:
    """The error names the method that was probably meant."""
    with Holdfast("memory://") as app, pytest.raises(AttributeError, match=rf"'{name}' \(did you mean submit"):
        getattr(app.job(resize), name)


def test_attribute_that_is_not_there_is_missing() -> None:
    """Other missing attributes behave as usual, and a job function can be copied."""
    with Holdfast("memory://") as app:
        function = app.job(resize)
        assert not hasattr(function, "width")
        assert copy.copy(function)("cat.png") == "cat.png"
