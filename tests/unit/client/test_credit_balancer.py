"""The capacity of one worker, offered to several nodes: filled by any of them, and never exceeded."""

import random
from collections.abc import Collection

import pytest

from holdfast.client.credit_balancer import CreditBalancer
from holdfast.ports import Assignment


class Granter:
    """A node that holds jobs and credits like a coordinator, and replies when the test lets it."""

    def __init__(self, index: int, jobs: int = 0) -> None:
        self.index = index
        self.jobs = jobs
        self.credits = 0
        self.asked = 0
        self.granted = 0
        self._pending: list[tuple[str, list[Assignment]]] = []

    async def want(self, count: int) -> None:
        self.credits += count
        self.asked += count
        self.grant()

    async def recall(self) -> None:
        self.credits = 0
        self._pending.append(("recalled", []))

    async def release(self, tokens: Collection[int]) -> None:
        self.jobs += len(tokens)
        self._pending.append(("returned", [Assignment(token, "", "") for token in tokens]))

    def grant(self) -> None:
        count = min(self.credits, self.jobs)
        self.credits -= count
        self.jobs -= count
        if count:
            tokens = range(self.granted + 1, self.granted + count + 1)
            self.granted += count
            leases = [Assignment(token * 10 + self.index, f"job-{self.index}-{token}", "t") for token in tokens]
            self._pending.append(("leases", leases))

    async def answer(self, room: CreditBalancer) -> bool:
        """Delivers the next pending reply; returns whether there was one."""
        if not self._pending:
            return False
        what, leases = self._pending.pop(0)
        if what == "leases":
            await room.arrive(self.index, leases)
        elif what == "recalled":
            await room.recalled(self.index)
        else:
            assert room.returned(self.index, [lease.token for lease in leases]) == []
        return True


class Desk:
    """The balancer of one worker, its nodes, and the leases that it received."""

    def __init__(self, *jobs: int) -> None:
        self.leases: list[Assignment] = []
        self.looks = 0
        self.room = CreditBalancer(self.leases.extend, self._look)
        self.nodes = [Granter(index, count) for index, count in enumerate(jobs)]

    def _look(self) -> None:
        self.looks += 1

    async def open(self) -> None:
        for node in self.nodes:
            await self.room.join(node.index, node)

    async def settle(self, draw: random.Random | None = None) -> None:
        """Lets the nodes reply, in random order if `draw` is given, until nothing is pending."""
        order = list(self.nodes)
        while True:
            if draw is not None:
                draw.shuffle(order)
            for node in order:
                if await node.answer(self.room):
                    break
            else:
                return


async def test_room_is_filled_from_whichever_node_has_jobs() -> None:
    """The balancer offers credit to all nodes, and any node that has jobs fills the capacity."""
    desk = Desk(0, 0, 5)
    await desk.open()
    await desk.room.want(2)
    await desk.settle()
    assert [lease.job_id for lease in desk.leases] == ["job-2-1", "job-2-2"]
    assert [node.credits for node in desk.nodes] == [0, 0, 0], "unused credits are recalled"


async def test_no_more_is_handed_on_than_is_wanted() -> None:
    """If several nodes fill the same capacity, the balancer returns the surplus leases to their nodes."""
    desk = Desk(3, 3, 3)
    await desk.open()
    await desk.room.want(1)
    await desk.settle()
    assert len(desk.leases) == 1
    assert sum(node.jobs for node in desk.nodes) == 8


async def test_leases_wait_until_the_other_nodes_have_returned_their_credits() -> None:
    """The worker receives its leases once the other nodes have returned their credits."""
    desk = Desk(1, 0)
    await desk.open()
    await desk.room.want(1)
    await desk.nodes[0].answer(desk.room)
    assert (desk.leases, desk.room.is_settled) == ([], False)
    await desk.nodes[1].answer(desk.room)
    assert (len(desk.leases), desk.room.is_settled) == (1, True)


async def test_silent_node_does_not_hold_leases_back_for_ever() -> None:
    """After a while the worker receives its leases although a node has not replied."""
    desk = Desk(1, 0)
    await desk.open()
    await desk.room.want(1)
    await desk.nodes[0].answer(desk.room)
    desk.room.hand_on()
    assert len(desk.leases) == 1


async def test_room_is_divided_among_nodes_that_have_jobs() -> None:
    """While all nodes grant jobs, the balancer offers each credit once, so that no grant is returned."""
    desk = Desk(1_000, 1_000, 1_000)
    await desk.open()
    await desk.room.want(6)
    await desk.settle()
    granted = sum(node.granted for node in desk.nodes)
    for _ in range(100):
        await desk.room.want(2)
        await desk.settle()
    assert len(desk.leases) == 206
    assert sum(node.granted for node in desk.nodes) == granted + 200
    assert min(node.granted for node in desk.nodes) > 50, "every node grants jobs"


async def test_node_that_has_run_dry_is_not_waited_for() -> None:
    """If a node has no more jobs, a probe offers its credits to all nodes."""
    desk = Desk(2, 0)
    await desk.open()
    await desk.room.want(1)
    await desk.settle()
    await desk.room.want(1)
    await desk.settle()
    await desk.room.want(1)
    await desk.settle()
    assert (len(desk.leases), desk.looks > 0) == (2, True)
    desk.nodes[1].jobs = 1
    await desk.room.probe()
    await desk.settle()
    assert [lease.job_id for lease in desk.leases][-1] == "job-1-1"


async def test_late_node_is_offered_the_free_capacity() -> None:
    """A node that joins late is offered the free capacity."""
    desk = Desk(0, 4)
    await desk.room.join(0, desk.nodes[0])
    await desk.room.want(3)
    await desk.settle()
    await desk.room.join(1, desk.nodes[1])
    await desk.settle()
    assert len(desk.leases) == 3


async def test_room_offered_to_a_node_that_leaves_is_offered_to_others() -> None:
    """The credits of a node that leaves are offered to the other nodes."""
    desk = Desk(1, 0)
    await desk.open()
    await desk.room.want(1)
    await desk.settle()
    await desk.room.want(1)
    desk.nodes[1].jobs = 1
    await desk.room.leave(0)
    await desk.settle()
    assert [lease.job_id for lease in desk.leases] == ["job-0-1", "job-1-1"]


async def test_lease_that_is_gone_before_it_is_handed_on_is_never_heard_of() -> None:
    """A lease that its node revokes before the worker received it leaves its capacity free."""
    desk = Desk(1, 0)
    await desk.open()
    await desk.room.want(1)
    await desk.nodes[0].answer(desk.room)
    assert desk.room.returned(0, [10]) == []
    assert desk.room.wanted == 1
    await desk.settle()
    assert desk.leases == []


@pytest.mark.parametrize("seed", range(50))
async def test_every_job_comes_once_in_any_order_of_replies(seed: int) -> None:
    """In any order of replies the worker gets at most the wanted number of leases, and in the end every job."""
    draw = random.Random(seed)
    desk = Desk(*(draw.randrange(0, 12) for _ in range(draw.randrange(1, 5))))
    total = sum(node.jobs for node in desk.nodes)
    await desk.open()
    wanted = 0
    while len(desk.leases) < total:
        if draw.random() < 0.5 and wanted - len(desk.leases) < 4:
            count = draw.randrange(1, 4)
            wanted += count
            await desk.room.want(count)
        elif draw.random() < 0.3:
            await desk.room.probe()
        else:
            await draw.choice(desk.nodes).answer(desk.room)
        assert len(desk.leases) <= wanted
        assert desk.room.wanted <= wanted - len(desk.leases)
        for node in desk.nodes:
            node.grant()
    await desk.settle(draw)
    assert len(desk.leases) == total
    assert sum(node.jobs for node in desk.nodes) == 0


class Leaver(Granter):
    """A node whose connection is full: while a message waits, another node leaves."""

    def __init__(self, index: int, room: CreditBalancer, other: int) -> None:
        super().__init__(index)
        self._room, self._other = room, other

    async def want(self, count: int) -> None:
        await super().want(count)
        await self._room.leave(self._other)

    async def recall(self) -> None:
        await super().recall()
        await self._room.leave(self._other)


async def test_node_may_leave_while_credits_are_offered_to_another() -> None:
    """Credits that are being offered to all nodes are offered to those that are still there."""
    desk = Desk(0, 0, 0)
    await desk.open()
    await desk.room.join(0, Leaver(0, desk.room, 1))
    await desk.room.want(3)
    assert (desk.nodes[1].credits, desk.nodes[2].credits) == (0, 3)


async def test_node_may_leave_while_credits_are_recalled_from_another() -> None:
    """When the credits are used up, they are recalled from the nodes that are still there."""
    desk = Desk(0, 0, 0)
    await desk.open()
    await desk.room.want(1)
    desk.room._nodes[0] = Leaver(0, desk.room, 1)
    await desk.room.arrive(2, [Assignment(12, "job", "t")])
    await desk.room.recalled(0)
    assert [lease.token for lease in desk.leases] == [12]
