"""Databases that a cluster cannot use: each is refused with one sentence, and not changed."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.postgres.migrator import read_migrations
from holdfast.topologies.cluster.database import creation
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.creation import create_cluster, open_cluster
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.server_checks import check_server, facts_of, problem_of
from holdfast.topologies.cluster.ports import DatabaseLostError, DatabaseRefusedError
from holdfast.topologies.pipeline.postgres.database import open_store
from tests.integration.cluster.cluster_work import LIMIT_MS, chain
from tests.integration.cluster.pooler import FakePooler


@pytest.fixture
def bare(bare_database: str) -> DatabaseAddress:
    """The address of an empty database."""
    return DatabaseAddress(url=bare_database, limit_ms=LIMIT_MS)


@pytest.fixture
def stranger(admin: psycopg.Connection) -> Iterator[str]:
    """A role without rights; peer authentication admits only the owner, so that tests set it inside a session."""
    role = f"stranger_{uuid.uuid4().hex}"
    admin.execute(f"CREATE ROLE {role}".encode())
    yield role
    admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_cluster_is_created_once(bare: DatabaseAddress) -> None:
    """The first process chooses shards and id, and every later one gets them."""
    made = create_cluster(bare, shards=3)
    assert (made.shards, len(made.cluster_id)) == (3, 16)
    assert create_cluster(bare) == create_cluster(bare, 3, made.cluster_id) == made
    with pytest.raises(DatabaseRefusedError, match=r"expected a cluster of 4 shards, found one of 3.*omit --shards"):
        create_cluster(bare, shards=4)
    with pytest.raises(DatabaseRefusedError, match="expected the cluster 0000") as refused:
        create_cluster(bare, cluster_id=bytes(16))
    assert refused.value.reason == "CLUSTER_DIFFERS"


@pytest.mark.parametrize("shards", [0, 1_025])
def test_number_of_shards_is_checked(bare: DatabaseAddress, shards: int) -> None:
    """A number of shards out of range changes nothing."""
    with pytest.raises(InvalidArgumentError, match=f"from 1 to 1024, got {shards}"):
        create_cluster(bare, shards=shards)
    assert create_cluster(bare).shards == 1


async def test_many_processes_create_one_cluster(bare: DatabaseAddress) -> None:
    """Processes that start at once on an empty database agree on one cluster."""
    made = await asyncio.gather(*(asyncio.to_thread(create_cluster, bare, 2) for _ in range(4)))
    assert len({(one.cluster_id, one.shards) for one in made}) == 1


def test_shards_never_change(admin: psycopg.Connection) -> None:
    """The row of the cluster can be neither changed nor deleted."""
    for statement in (b"UPDATE holdfast.cluster SET shards = 3", b"DELETE FROM holdfast.cluster"):
        with pytest.raises(psycopg.Error, match="never change"):
            admin.execute(statement)


async def test_topologies_refuse_databases_of_each_other(cluster: str, database: str) -> None:
    """The pipeline refuses the database of a cluster, and a cluster that of the pipeline."""
    words = "expected a database of the topology {}, found one of the topology {}: name another database"
    with pytest.raises(FailedPreconditionError, match=words.format("pipeline", "cluster")) as refused:
        await open_store(cluster)
    assert refused.value.reason == "DATABASE_OF_ANOTHER_TOPOLOGY"
    with pytest.raises(FailedPreconditionError, match=words.format("cluster", "pipeline")):
        create_cluster(DatabaseAddress(url=database))


def test_newer_schema_is_refused(address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is older than the schema of its database does not start."""
    older = read_migrations(creation.__package__)[:-1]
    monkeypatch.setattr(creation, "read_migrations", lambda _: older)
    with pytest.raises(FailedPreconditionError, match="use a newer holdfast") as refused:
        create_cluster(address)
    assert refused.value.reason == "SCHEMA_TOO_NEW"


def test_server_without_fsync_is_refused(bare: DatabaseAddress) -> None:
    """A server that a power cut damages is refused, and nothing is created."""
    with pytest.raises(DatabaseRefusedError, match=r"expected fsync=on, found off.*restart") as refused:
        open_cluster(bare)
    assert refused.value.reason == "DATABASE_NOT_DURABLE"
    with psycopg.connect(bare.url) as connection:
        assert connection.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


@pytest.mark.parametrize("level", ["DATABASE {database}", "ROLE {role} IN DATABASE {database}"])
@pytest.mark.parametrize("setting", ["off", "local", "remote_apply"])
def test_synchronous_commit_of_users_is_seen(
    address: DatabaseAddress, admin: psycopg.Connection, level: str, setting: str
) -> None:
    """The setting that sessions of users get is seen at every level, although the layer sets its own."""
    names = {"database": admin.info.dbname, "role": admin.info.user}
    admin.execute(f"ALTER {level.format(**names)} SET synchronous_commit = {setting}".encode())
    facts = facts_of(address)
    assert facts.synchronous_commit == setting
    assert facts.synchronous_commit_source == ("the role" if "ROLE" in level else "the database")
    writer = PostgresFrameWriter(address, 0)
    ((own,),) = writer._session.read(b"SELECT current_setting('synchronous_commit')")
    assert own == ("remote_apply" if setting == "remote_apply" else "on")
    writer.close()


def test_default_server_is_durable(address: DatabaseAddress) -> None:
    """The facts of a server are read as they are: only what the tests turn off is missing."""
    facts = facts_of(address)
    assert (facts.fsync, facts.full_page_writes) == ("off", "off")
    assert (facts.synchronous_commit, facts.synchronous_commit_source) == ("on", "the server")
    assert (facts.is_standby, facts.may_migrate) == (False, True)


def test_role_without_rights_is_refused(address: DatabaseAddress, stranger: str) -> None:
    """A role that neither owns the schema nor may create it is refused when a node starts, and at every call."""
    powerless = DatabaseAddress(url=f"{address.url}&options=-c%20role%3D{stranger}", limit_ms=LIMIT_MS)
    problem = problem_of(msgspec.structs.replace(facts_of(powerless), fsync="on", full_page_writes="on"))
    assert problem is not None
    assert problem.reason == "DATABASE_RIGHTS_MISSING"
    writer = PostgresFrameWriter(powerless, 0)
    with pytest.raises(DatabaseRefusedError, match="expected the rights of the owner") as refused:
        writer.append(chain(b"one")[0])
    assert refused.value.reason == "DATABASE_RIGHTS_MISSING"
    writer.close()


def test_read_only_server_is_refused(address: DatabaseAddress, admin: psycopg.Connection) -> None:
    """A server whose transactions are read-only is no primary."""
    admin.execute(f"ALTER DATABASE {admin.info.dbname} SET default_transaction_read_only = on".encode())
    with pytest.raises(DatabaseRefusedError, match="accepts writes, found a read-only one") as refused:
        check_server(address)
    assert refused.value.reason == "DATABASE_READ_ONLY"


def test_missing_database_is_lost(address: DatabaseAddress) -> None:
    """A database that is not there is reported as not answering."""
    with pytest.raises(DatabaseLostError, match="does not exist"):
        check_server(DatabaseAddress(url=address.url.replace("/t", "/gone_t")))


def test_malformed_url_is_invalid() -> None:
    """A URL that libpq cannot parse is an invalid argument."""
    with pytest.raises(InvalidArgumentError, match="the database must be a URL"):
        check_server(DatabaseAddress(url="nonsense"))


@pytest.mark.parametrize("rewrites_pid", [True, False])
async def test_pooler_is_refused(cluster: str, tmp_path: Path, rewrites_pid: bool) -> None:  # noqa: FBT001 - a parameter
    """A pooler that gives each transaction another session is refused, whether or not it hides behind a pid."""
    async with FakePooler(cluster, tmp_path, rewrites_pid=rewrites_pid) as pooler:
        address = DatabaseAddress(url=pooler.url, limit_ms=LIMIT_MS)
        with pytest.raises(DatabaseRefusedError, match=r"found a pooler between.*name the host") as refused:
            await asyncio.to_thread(check_server, address)
        assert refused.value.reason == "DATABASE_BEHIND_POOLER"
