"""The default URL of an app."""

import pytest

from holdfast import Holdfast


@pytest.mark.parametrize(
    ("named", "url"),
    [
        ("", "./holdfast-data"),
        ("./data", "./data"),
        ("127.0.0.1:50051", "holdfast://127.0.0.1:50051"),
        ("a:1,b:2", "holdfast://a:1,b:2"),
        ("holdfasts://host:1", "holdfasts://host:1"),
        ("zk://host:1/jobs", "zk://host:1/jobs"),
    ],
)
def test_app_without_a_url_is_where_the_environment_sends_commands(
    monkeypatch: pytest.MonkeyPatch, named: str, url: str
) -> None:
    """An app without a URL uses HOLDFAST_CONNECT, as workers and commands do, and a given URL takes precedence."""
    monkeypatch.setenv("HOLDFAST_CONNECT", named)
    assert Holdfast().url == url
    assert Holdfast("./own").url == "./own"
