"""The checks of `holdfast up --topology zookeeper` before it starts a process."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from holdfast.errors import FailedPreconditionError
from holdfast.settings import Settings
from holdfast.topologies.zookeeper.up import check


@pytest.mark.parametrize("ensemble", ["", "zk://127.0.0.1:2181/holdfast"], ids=["private", "named"])
def test_install_without_kazoo_is_refused_before_a_server_starts(
    monkeypatch: pytest.MonkeyPatch, ensemble: str
) -> None:
    """Without the client library, the command names the extra, also for a private ensemble."""
    found = importlib.util.find_spec

    def without_kazoo(name: str) -> ModuleSpec | None:
        return None if name == "kazoo" else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_kazoo)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'holdfast\[zookeeper\]'") as refused:
        check(Settings(topology="zookeeper", ensemble=ensemble, data="memory://"))
    assert refused.value.reason == "KAZOO_MISSING"
