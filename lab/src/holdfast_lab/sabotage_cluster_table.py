"""The table of broken variants of the cluster; each is caught by a seed of the simulated cluster.

Rules that the database enforces (fencing, locks, transactions) are broken in the simulated database.
"""

from holdfast_lab.sabotage import Variant

_CLUSTER = "topologies/cluster/"
WRITER, JOURNAL, MEMBER = f"{_CLUSTER}durable_writer.py", f"{_CLUSTER}journal.py", f"{_CLUSTER}member.py"
FOLLOWED, FOLLOWER, STORE = f"{_CLUSTER}followed_ledger.py", f"{_CLUSTER}follower.py", f"{_CLUSTER}store.py"
LEADERSHIP = f"{_CLUSTER}leadership.py"
STATEMENTS = "simulation/database_statements.py"


def _product(name: str, file: str, text: str, instead: str, seed: int = 0, test: str = "") -> Variant:
    test = f"tests/unit/topologies/cluster/{test}" if test else ""
    return Variant(name, file, text, instead, seed=seed, test=test, events=6_000, is_cluster=True)


def _database(name: str, text: str, instead: str, seed: int = 0) -> Variant:
    return Variant(name, STATEMENTS, text, instead, seed=seed, events=6_000, is_cluster=True, in_lab=True)


CLUSTER_VARIANTS = (
    # appends
    _product(
        "lost-answer-taken-for-success",
        WRITER,
        "    except DatabaseLostError:\n        return False\n",
        "    except DatabaseLostError:\n        return True\n",
    ),
    _product(
        "unconfirmed-frame-counts",
        WRITER,
        "        if outcome is Append.UNCONFIRMED:\n            self._confirm(epoch)\n",
        "        if outcome is Append.UNCONFIRMED:\n            pass\n",
        seed=6,
    ),
    _product(
        "found-frame-not-confirmed",
        WRITER,
        "        elif found == key_of(frame):\n            self._confirm(frame.epoch)\n",
        "        elif found == key_of(frame):\n            pass\n",
        seed=6,
    ),
    _product(
        "fenced-append-taken-for-success",
        WRITER,
        "        elif outcome is not Append.WRITTEN:\n"
        '            raise _lost(f"epoch {epoch} leads no more ({outcome})")\n\n'
        "    def _confirm",
        "\n    def _confirm",
        seed=2,
    ),
    _product(
        "inbox-rows-of-the-next-frame-deleted",
        JOURNAL,
        "[row for position, row in self._inbox if position <= frame.last_position]",
        "[row for _, row in self._inbox]",
        test="test_journal.py::test_rows_of_the_inbox_go_with_their_frame",
    ),
    _product(
        "inbox-rows-not-deleted",
        JOURNAL,
        "self._durable.append(frame, [row for position, row in self._inbox if position <= frame.last_position])",
        "self._durable.append(frame, [])",
    ),
    _database(
        "fencing-dropped",
        "            if database.rows.leaders[shard].epoch != frame.epoch:\n                return Append.FENCED\n",
        "",
        seed=2,
    ),
    _database(
        "row-lock-dropped",
        "            yield database.lock(transaction, shard, is_shared=True)\n",
        "",
        seed=28,
    ),
    _database(
        "position-may-be-taken",
        "            if frame.first_position in database.rows.frames[shard]:\n                return Append.TAKEN\n",
        "",
        seed=7,
    ),
    _database(
        "inbox-row-deleted-in-another-transaction",
        "            changes: list[Change] = [FrameInserted(shard, frame), *map(InboxDeleted, inbox)]\n"
        "            is_confirmed = yield from database.commit(transaction, changes)\n",
        "            is_confirmed = yield from database.commit(transaction, [FrameInserted(shard, frame)])\n"
        "            yield from database.commit(transaction, [*map(InboxDeleted, inbox)])\n",
        seed=4,
    ),
    # leases
    _database(
        "taken-without-the-seen-epoch",
        "if row.epoch != seen_epoch or (row.epoch and row.ends_ms > now_ms):",
        "if False:",
        seed=55,
    ),
    _product(
        "lease-counted-from-after-the-beat",
        MEMBER,
        "lambda answer: self._on_beat(answer, *sent[0])",
        "lambda answer: self._on_beat(answer, self._ports.clock.steady_ms(), sent[0][1])",
        seed=13,
    ),
    _product(
        "lease-judged-by-the-local-clock",
        MEMBER,
        "        return holder == (epoch, self._record.name, self._record.incarnation) and shard.remaining_ms > 0\n",
        "        return True\n",
        seed=6,
    ),
    _product(
        "replies-after-the-deadline",
        STORE,
        "        return NOT_LEADER if self._leadership.lease.has_ended else reply\n",
        "        return reply\n",
        seed=2,
    ),
    _product(
        "heartbeats-answered-after-the-deadline",
        "ledger/coordinator.py",
        "            done(reply if self.commit.vouch is None else self.commit.vouch(reply))\n\n        self._enqueue",
        "            done(reply)\n\n        self._enqueue",
        seed=2,
    ),
    _product(
        "lost-epoch-led-again",
        MEMBER,
        "        del self._unsure[shard.shard]\n        if self._is_held(shard, epoch):\n",
        "        if shard.shard not in self._leads and self._is_held(shard, epoch):\n",
        seed=33,
    ),
    # followers
    _product(
        "tail-not-read-after-the-takeover",
        FOLLOWED,
        "        while self.advance() or not self._is_at_the_end():\n",
        "        while False:\n",
    ),
    _product(
        "vanished-frame-kept",
        FOLLOWED,
        "        if self._reader.end_position() == self.position and self._is_last_kept():\n",
        "        if self._reader.end_position() == self.position:\n",
        test="test_follower.py::test_takeover_drops_last_frames_that_were_replaced",
    ),
    _product(
        "link-unchecked-by-the-follower",
        FOLLOWED,
        "        return frame.first_position == self.position + 1 and frame.link == self._chain.link\n",
        "        return frame.first_position == self.position + 1\n",
        test="test_follower.py::test_frame_that_vanished_is_dropped",
    ),
    _product(
        "frames-applied-out-of-order",
        FOLLOWED,
        "        for frame in stored:\n",
        "        for frame in reversed(stored):\n",
    ),
    _product(
        "follower-does-not-poll",
        FOLLOWER,
        "            self._timer = self._scheduler.later(self._poll_ms, self._read)\n",
        "            pass\n",
        seed=5,
    ),
    # leaders
    _product(
        "shards-not-spread",
        LEADERSHIP,
        "            if heirs and led[shard.holder] - led[heirs[0]] > 1:\n",
        "            if False:\n",
        seed=9,
    ),
)
