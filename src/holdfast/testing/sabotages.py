"""The table of broken variants. Each row: name, file, the text in it, what stands there instead."""

from holdfast.testing.sabotage import Variant

LOOP, SESSIONS, TIME = "coordinator/loop.py", "coordinator/sessions.py", "coordinator/timekeeper.py"
LEASES, TASKS, IMAGE, BOOK, READY = (
    "core/leases.py",
    "core/tasks.py",
    "core/image.py",
    "core/book.py",
    "core/ready_queue.py",
)
JOURNAL, SEGMENT, WRITING = "journal/file.py", "journal/segment.py", "journal/writing.py"

VARIANTS = (
    # durable before reply
    Variant(
        "reply-before-sync",
        LOOP,
        "        if position <= self._synced:\n",
        "        if True:\n",
    ),
    Variant(
        "read-does-not-wait",
        LOOP,
        "            reply = BROKEN\n        self._answer(done, reply)\n",
        "            reply = BROKEN\n        done(reply) if query else self._answer(done, reply)\n",
        seed=1,
    ),
    Variant(
        "replies-released-by-count",
        LOOP,
        "waiting and waiting[0][0] <= result",
        "waiting",
    ),
    Variant(
        "lease-pushed-before-durable",
        SESSIONS,
        "granted = self._coordinator.execute(command, now, lambda reply: self._push_leases(session, reply))",
        "granted = self._coordinator.execute(command, now); self._push_leases(session, granted)",
    ),
    Variant(
        "space-not-reserved",
        LOOP,
        "return self._storage.reserve(size, spare=spare)",
        "return True",
    ),
    # leases and tokens
    Variant(
        "token-unchecked-on-report",
        LEASES,
        "token = row.token or job.token",
        "token = job.token",
    ),
    Variant(
        "holder-unchecked-on-report",
        LEASES,
        "if lease.worker != worker:",
        "if False:",
        events=20_000,
        seed=12,
    ),
    Variant(
        "lease-expires-late",
        LEASES,
        "return bool(heap) and heap[0][0] <= now.served_ms",
        "return bool(heap) and heap[0][0] < now.served_ms",
    ),
    Variant(
        "expired-lease-revived",
        LEASES,
        "            if lease.deadline_ms <= now.served_ms:\n                continue",
        "            if False:\n                continue",
        test="tests/unit/core/test_leases.py::test_expired_lease_is_never_revived",
    ),
    Variant(
        "loss-not-counted",
        LEASES,
        "job.losses += row.is_spent",
        "job.losses += 0",
    ),
    Variant(
        "one-loss-too-many",
        LEASES,
        "job.losses >= job.template.max_losses",
        "job.losses > job.template.max_losses",
    ),
    Variant(
        "one-attempt-too-many",
        LEASES,
        "failures >= template.max_attempts",
        "failures > template.max_attempts",
        seed=1,
    ),
    Variant(
        "retry-ignores-not-before",
        LEASES,
        "job.not_before_ms = result.not_before_ms",
        "pass",
    ),
    Variant(
        "token-reused-after-restart",
        IMAGE,
        "= head.last_ms, head.next_number, head.next_token",
        "= head.last_ms, head.next_number, len(book.leases) + 1",
    ),
    Variant(
        "cancelled-job-granted-again",
        LEASES,
        "        if job.cancel_requested:\n            return Revocation",
        "        if False:\n            return Revocation",
        seed=3,
    ),
    # jobs, keys, order
    Variant(
        "dedup-lost-in-snapshot",
        IMAGE,
        "book.dedup.add(job.extra.request_id, job)",
        "pass",
    ),
    Variant(
        "other-payload-under-key",
        TASKS,
        "job.template == template and job.payload == new.payload",
        "job.template == template",
        seed=1,
    ),
    Variant(
        "queued-cancel-forgotten",
        TASKS,
        "        book.ready.take(job)\n        end(",
        "        end(",
        seed=1,
    ),
    Variant(
        "returned-job-goes-last",
        READY,
        "(job.number, self._ticket, job)",
        "(-job.number, self._ticket, job)",
    ),
    Variant(
        "eviction-of-unfinished-job",
        BOOK,
        "job = self.finished.popleft()",
        "job = self.finished.popleft() and next(iter(self.jobs.values()))",
        seed=1,
    ),
    Variant(
        "eviction-one-too-many",
        TASKS,
        "kept > command.retain_jobs",
        "kept >= command.retain_jobs",
        seed=1,
    ),
    # time
    Variant(
        "stall-expires-everything",
        TIME,
        "self._served_ms += min(step_ms, STALL_MS)",
        "self._served_ms += step_ms",
        seed=3,
    ),
    Variant(
        "log-time-follows-wall-back",
        TIME,
        "self._log_ms = max(self._log_ms + step_ms, self._clock.wall_ms())",
        "self._log_ms = self._clock.wall_ms()",
    ),
    # sessions
    Variant(
        "reattach-keeps-lost-leases",
        SESSIONS,
        "commands.Extend(hello.worker_id, self._config.lease_ms, hello.held)",
        "commands.Extend(hello.worker_id, self._config.lease_ms)",
        seed=3,
    ),
    Variant(
        "superseded-detach-revokes",
        SESSIONS,
        "if self._current.get(worker_id) is not session:",
        "if worker_id not in self._current:",
    ),
    Variant(
        "report-acknowledged-over-a-gap",
        SESSIONS,
        "            if not self.reports[oldest]:\n                break",
        "            if False:\n                break",
        events=20_000,
    ),
    Variant(
        "holders-kept-for-ever",
        SESSIONS,
        "held = self._coordinator.ledger.book.leases.keys() & reply.held",
        "held = set(reply.held)",
        seed=3,
        events=8_000,
    ),
    Variant(
        "refused-release-forgotten",
        SESSIONS,
        "self._coordinator.later(RETRY_MS, lambda: self.release(session, tokens))",
        "pass",
        test="tests/simulation/test_sessions_without_room.py::test_released_lease_goes_back_once_there_is_room",
    ),
    Variant(
        "refused-attach-forgotten",
        SESSIONS,
        "self._coordinator.later(RETRY_MS, lambda: self._claim(session))",
        "pass",
        test="tests/simulation/test_sessions_without_room.py::test_attach_is_answered_once_there_is_room",
    ),
    # files
    Variant(
        "file-not-synced",
        JOURNAL,
        "        self._file.sync()\n        self._end_checksum",
        "        self._end_checksum",
    ),
    Variant(
        "failed-sync-retried",
        JOURNAL,
        "        self._file.sync()\n        self._end_checksum",
        "        try:\n            self._file.sync()\n"
        "        except OSError:\n            self._file.sync()\n        self._end_checksum",
        seed=3,
    ),
    Variant(
        "directory-not-synced",
        SEGMENT,
        "        disk.sync_dir()\n",
        "        pass\n",
        test="tests/unit/journal/test_crash_points.py",
    ),
    Variant(
        "removals-not-synced",
        "journal/chain.py",
        "            self._disk.sync_dir()\n            self._disk.remove(name)\n"
        "            self._disk.sync_dir()\n",
        "            self._disk.remove(name)\n",
        test="tests/simulation/test_recovery.py::test_segments_are_removed_without_gaps",
    ),
    Variant(
        "pins-ignored",
        JOURNAL,
        "limit = before if pinned is None else min(before, pinned - 1)",
        "limit = before",
        events=20_000,
        seed=9,
    ),
    Variant(
        "short-write-ignored",
        WRITING,
        "while written < len(data):",
        "while False:",
        seed=3,
    ),
    Variant(
        "epoch-not-incremented",
        JOURNAL,
        "epoch=found.epoch + 1",
        "epoch=max(1, found.epoch)",
    ),
    Variant(
        "torn-tail-cut-too-early",
        "journal/recovery.py",
        "file.truncate(tail.offset)",
        "file.truncate(found.last_offset)",
    ),
    Variant(
        "recovered-frame-not-durable",
        "journal/recovery.py",
        "            write_fully(file, found.last_offset, last_frame)\n",
        "            pass\n",
        events=20_000,
    ),
    Variant(
        "failed-journal-goes-unnoticed",
        LOOP,
        "            self._fail(error)\n            raise\n\n    def _apply",
        "            raise\n\n    def _apply",
        events=20_000,
    ),
    Variant(
        "tidying-raises",
        "coordinator/snapshots.py",
        "with suppress(JournalError):",
        "if True:",
        events=20_000,
    ),
    Variant(
        "damaged-middle-cut",
        "journal/tail.py",
        "if later >= 0:",
        "if False:",
        test="tests/unit/journal/test_damage.py::test_damaged_frame_before_a_torn_one_is_refused",
    ),
    Variant(
        "link-unchecked",
        "journal/walk.py",
        "if header is None or header.first_position != self.position or header.link != self.link:",
        "if header is None or header.first_position != self.position:",
        test="tests/unit/journal/test_damage.py::test_valid_frame_that_is_no_successor_is_refused",
    ),
    Variant(
        "digest-not-compared",
        "coordinator/recovery.py",
        " or (frame.digest is not None and frame.digest != ledger.digest)",
        "",
        test="tests/simulation/test_recovery.py::test_replay_that_diverges_is_refused",
    ),
)
