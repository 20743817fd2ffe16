"""The syntax of `zk://…` URLs."""

from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidArgumentError
from holdfast.settings import Settings
from holdfast.settings_sources import load
from holdfast.topologies.zookeeper.ensemble_url import SESSION_MS, Ensemble, ensemble_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk://one", Ensemble(hosts="one:2181", root="/holdfast")),
        ("zk://one:1,two:2/", Ensemble(hosts="one:1,two:2", root="/holdfast")),
        ("one:1,two/a/b", Ensemble(hosts="one:1,two:2181", root="/a/b")),
        ("zk://[::1]:5/x?lease_ms=2000", Ensemble(hosts="[::1]:5", root="/x", lease_ms=2_000)),
    ],
)
def test_url_names_servers_a_path_and_a_lease(text: str, expected: Ensemble) -> None:
    """Ports and path have defaults, and the URL of a parsed ensemble parses to the same ensemble."""
    found = ensemble_of(text)
    assert found == expected
    assert ensemble_of(found.url) == found
    assert ensemble_of("zk://one").lease_ms == SESSION_MS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("zk://", "is not a valid host:port"),
        ("zk://one,,two", "is not a valid host:port"),
        ("zk://one:0", "'one:0' is not a valid host:port"),
        ("zk://one:70000", "'one:70000' is not a valid host:port"),
        ("zk://one,one:2181", "each server must be named once"),
        ("zk://me:secret@one", "a password or a fragment is not allowed"),
        ("zk://one/a//b", "the path must consist of"),
        ("zk://one/../b", "the path must consist of"),
        ("zk://one/a b", "the path must consist of"),
        ("zk://one/zookeeper/x", "are reserved for ZooKeeper"),
        ("zk://one?lease_ms=soon", "lease_ms= must be a number"),
        ("zk://one?session=1", "lease_ms= must be a number"),
        ("zk://one#x", "a fragment is not allowed"),
    ],
)
def test_url_that_cannot_be_is_explained(text: str, why: str) -> None:
    """An invalid URL is refused before a connection is opened, with a message that contains no password."""
    with pytest.raises(InvalidArgumentError, match=why) as refused:
        Holdfast(text)
    assert "secret" not in refused.value.message


def test_app_of_an_ensemble_takes_no_settings() -> None:
    """An app on an ensemble refuses settings and tokens, because it has no server."""
    with pytest.raises(InvalidArgumentError, match="settings, clock and token are not allowed"):
        Holdfast("zk://one", settings={"slots": 1})
    with pytest.raises(InvalidArgumentError, match="settings, clock and token are not allowed"):
        Holdfast("zk://one", token="hf_x")


def test_setting_is_checked_before_anything_starts(tmp_path: Path) -> None:
    """An invalid ensemble is reported together with the other settings."""
    flags = {"ensemble": "not a host", "slots": "0"}
    with pytest.raises(InvalidArgumentError, match=r"ensemble must be comma-separated hosts(.|\n)*slots|slots"):
        load(Settings, flags=flags, environment={}, folder=tmp_path)
