"""URLs of servers: token, protocol, addresses and TLS files, and hiding the token in output."""

from pathlib import Path

import pytest

from holdfast.client.access import access_of
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.url_schemes import opener, without_secrets
from holdfast.settings import addresses_of, masked


@pytest.mark.parametrize(
    ("url", "token", "is_secure", "addresses"),
    [
        ("host:1", "", False, ["host:1"]),
        ("holdfast://host:1", "", False, ["host:1"]),
        ("holdfasts://host:1/", "", True, ["host:1"]),
        ("holdfast://t@host:1", "t", False, ["host:1"]),
        ("holdfasts://t@a:1,b:2", "t", True, ["a:1", "b:2"]),
        ("holdfasts://t@[::1]:1", "t", True, ["[::1]:1"]),
        ("holdfast://a%2Db@host:1", "a-b", False, ["host:1"]),
        ("holdfast://a:1,holdfast://b:2", "", False, ["a:1", "b:2"]),
        ("./directory", "", False, []),
    ],
)
def test_url_says_token_protocol_and_addresses(
    url: str,
    token: str,
    is_secure: bool,  # noqa: FBT001 - a row of the table
    addresses: list[str],
) -> None:
    """A URL holds the token, the protocol and the addresses."""
    access = access_of(url)
    assert (access.token, access.is_secure) == (token, is_secure)
    assert addresses_of(url) == addresses


def test_argument_counts_more_than_the_url_and_that_more_than_the_environment() -> None:
    """A token argument overrides the one in the URL, which overrides the one in the environment."""
    url = "holdfast://in-url@host:1"
    assert access_of(url, token="argument", fallback="environment").token == "argument"
    assert access_of(url, fallback="environment").token == "in-url"
    assert access_of("holdfast://host:1", fallback="environment").token == "environment"


def test_files_of_the_query_are_read(tmp_path: Path) -> None:
    """The files that the query names are read, also if their names are percent-encoded."""
    for name in ("my ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).write_text(name)
    query = f"ca={tmp_path}/my%20ca.pem&cert={tmp_path}/c.pem&key={tmp_path}/k.pem"
    access = access_of(f"holdfasts://t@host:1?{query}")
    assert (access.ca, access.cert, access.key) == (b"my ca.pem", b"c.pem", b"k.pem")
    assert addresses_of(f"holdfasts://t@host:1?{query}") == ["host:1"]


@pytest.mark.parametrize(
    "url",
    [
        "holdfasts://secret@host:1?ca=/nowhere/ca.pem",
        "holdfast://secret@host:1?ca=ca.pem",
        "holdfasts://secret@host:1?cert=a.pem",
        "holdfasts://secret@host:1?token=x",
        "holdfasts://secret@host:1?ca=a&ca=b",
        "holdfasts://secret@host:1?nothing",
        "holdfasts://secret%0Aheader@host:1",
        "holdfasts://secr%C3%A9t@host:1",
        "holdfasts://secret@host",
        "holdfasts://secret@host:1,host:1",
        "https://secret@host:1",
    ],
)
def test_error_for_an_invalid_url_hides_the_token(url: str) -> None:
    """The message about an invalid URL does not contain the token."""
    with pytest.raises(InvalidArgumentError) as caught:
        opener(url, {}, None)
    assert "secr" not in caught.value.message


def test_nothing_shows_a_token() -> None:
    """Neither the parsed access nor a displayed URL contains the token."""
    access = access_of("holdfasts://secret@host:1")
    assert "secret" not in f"{access!r} {access}"
    for show in (without_secrets, masked):
        assert show("holdfasts://secret@a:1,b:2?ca=x") == "holdfasts://********@a:1,b:2?ca=x"
        assert show("./directory") == "./directory"


def test_token_is_for_servers_only() -> None:
    """A token for a directory is refused, because only a server takes one."""
    with pytest.raises(InvalidArgumentError, match="only for a server"):
        opener("./directory", {}, None, "t")
