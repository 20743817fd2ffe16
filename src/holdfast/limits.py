"""Every limit and default by name, each with its reason.

A limit is part of the interface: raise it with care, never lower it.
"""

from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_GIB: Final = 1024 * _MIB
_SECOND_MS: Final = 1_000
_DAY_MS: Final = 24 * 60 * 60 * _SECOND_MS

# --- what a job may carry ---

# Arguments, not files: a payload is held in memory until its job ends.
PAYLOAD_BYTES_MAX: Final = _MIB
# Part of the frozen contract; a larger output makes the job FAILED with OUTPUT_TOO_LARGE.
OUTPUT_BYTES_MAX: Final = 256 * _KIB
# A line for people in lists and logs, not a second output.
SUMMARY_CHARS_MAX: Final = 1_024
# Reasons are kept in the journal for ever and shown whole.
REASON_CHARS_MAX: Final = 1_024
# The description of a failed attempt that the journal keeps when the job is retried: its exception and traceback.
FAILURE_BYTES_MAX: Final = 64 * _KIB
# The traceback of one attempt in a job's history: those of all attempts that a job may have fit into one message.
DETAIL_BYTES_MAX: Final = 32 * _KIB
# Names of queues, workers and holdfast.v1 types appear in metrics, paths and shells.
NAME_CHARS_MAX: Final = 128
NAME_PATTERN: Final = r"[A-Za-z0-9._-]{1,128}"
# In taskqueue.v1 a type is free text, as long as it can be printed on one line.
TYPE_CHARS_MAX: Final = 128
# Labels are for finding and grouping jobs; every one is held in memory.
LABELS_MAX: Final = 64
LABEL_KEY_CHARS_MAX: Final = 128
LABEL_VALUE_CHARS_MAX: Final = 1_024
# Headers carry trace contexts and the like; the same caps as labels.
HEADERS_MAX: Final = LABELS_MAX
HEADER_KEY_CHARS_MAX: Final = LABEL_KEY_CHARS_MAX
HEADER_VALUE_CHARS_MAX: Final = LABEL_VALUE_CHARS_MAX
# Room for a UUID, a URL or a digest; every key is held as long as its job.
REQUEST_ID_CHARS_MAX: Final = 256
# A unique key names what must not run twice at a time; as long as a request id.
UNIQUE_KEY_CHARS_MAX: Final = REQUEST_ID_CHARS_MAX
# Enough for a UUID and for any id that another backend makes.
JOB_ID_CHARS_MAX: Final = 128

# --- what a running attempt may say of itself ---

# A line for people, like a summary.
NOTE_MESSAGE_CHARS_MAX: Final = 1_024
# A line of a log on a screen; what is longer is data and belongs into the output.
NOTE_LINE_CHARS_MAX: Final = 1_024
# Notes come once a heartbeat: who has more to say than this in a second writes a log file.
NOTE_LINES_MAX: Final = 100
# All notes of one command together: they are one event, and others wait behind it.
NOTES_CHARS_MAX: Final = _MIB
# Progress is told in thousandths.
PERMILLE_MAX: Final = 1_000

# --- how a job is run ---

# More tries than this is a loop; use a schedule.
ATTEMPTS_MAX: Final = 100
ATTEMPTS_DEFAULT: Final = 1
# A job that loses its worker this often is likely what kills it.
LOSSES_MAX: Final = 100
LOSSES_DEFAULT: Final = 3
# Grants of one job that may end without a failure or a loss (handed back, lost on the way); beyond these each one
# counts as a loss, so that no job goes round for ever.
UNSPENT_GRANTS_MAX: Final = 20
# How long a job on its last chance waits for a worker of its own, and how long it then has it to itself: enough for
# most of what kills a worker, and not enough to hold up everybody else for long.
QUARANTINE_MS: Final = 60 * _SECOND_MS
# Larger is more urgent. Ten steps are as many as people keep apart; the default leaves room on both sides.
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 5
# The queue of jobs that name none.
QUEUE_DEFAULT: Final = "default"
# A delay beyond a year is most likely a mistake in its unit.
DELAY_MS_MAX: Final = 366 * _DAY_MS
# A job that runs longer than a day should be cut into jobs.
TIMEOUT_MS_MAX: Final = _DAY_MS
# Beyond an hour nobody waits for the next try; a schedule says it better.
BACKOFF_MS_MAX: Final = 60 * 60 * _SECOND_MS

# --- what one request may carry ---

# One batch is one event and one frame: these bound the time that others wait behind it.
BATCH_JOBS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 4 * _MIB
# One message: a whole batch and its framing.
MESSAGE_BYTES_MAX: Final = 5 * _MIB
# Part of the frozen contract.
PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 200
# An offset in decimal; the cap keeps hostile digits away from the parser of integers.
PAGE_TOKEN_CHARS_MAX: Final = 19
# One grant is one event; a worker that wants more asks again.
LEASES_PER_GRANT_MAX: Final = 1_000
# More slots than this in one process are better spread over several.
SLOTS_MAX: Final = 1_000
# Every schedule is looked at when it is due, and listed whole.
SCHEDULES_MAX: Final = 10_000
# Longer ago than this, most people no longer want what a schedule has missed.
CATCH_UP_WINDOW_MS: Final = _DAY_MS
# A look ahead, not a calendar; computed on the coordinator's thread.
PREVIEW_TICKS_MAX: Final = 100
# More often than this is no schedule but a loop.
EVERY_MS_MIN: Final = _SECOND_MS
# Nobody writes arguments by hand that are deeper, and readers that recurse must never be driven to their end.
JSON_DEPTH_MAX: Final = 100
# A URL with all its filters; and all headers of a request, of which most have a dozen.
URL_BYTES_MAX: Final = 8 * _KIB
HTTP_HEAD_BYTES_MAX: Final = 32 * _KIB
# Workers, clients and nodes, each with a connection. At most half of the descriptors, whatever is set.
GRPC_CONNECTIONS_MAX: Final = 16_384
# Of these, connections without any call that was let in: clients call as soon as they have connected.
GRPC_STRANGERS_MAX: Final = 1_000
# How long a connection may take to say that it speaks HTTP/2, after TLS where there is some; and how long it may stay
# without a call before it is closed (its client opens another).
GRPC_HANDSHAKE_MS_MAX: Final = 10 * _SECOND_MS
GRPC_IDLE_MS_MAX: Final = 10 * 60 * _SECOND_MS
# Calls at a time on one gRPC connection; clients let further ones wait. Each may fill a window of 64 KiB before its
# headers are judged: 16 MiB in all.
STREAMS_PER_CONNECTION_MAX: Final = 256
# Calls without a token (health) whose request is on its way, each of up to MESSAGE_BYTES_MAX: 10 MiB in all. Requests
# of probes arrive with their headers; one that has not is given up for the next.
OPEN_REQUESTS_MAX: Final = 2
OPEN_REQUEST_MS_MAX: Final = 5 * _SECOND_MS
# Streams that need no token, all callers together: watches of health, each a task.
OPEN_STREAMS_MAX: Final = 1_000
# Each costs a descriptor and some memory. Who connects beyond this takes the place of whoever is idle for longest.
HTTP_CONNECTIONS_MAX: Final = 1_000
# Of these, open feeds: everybody who looks at a dashboard has one.
HTTP_FEEDS_MAX: Final = 500
# How long a request may take to arrive, and how long an answer may wait to be read, before the connection is cut.
HTTP_HEAD_MS_MAX: Final = 10 * _SECOND_MS
HTTP_BODY_MS_MAX: Final = 30 * _SECOND_MS
HTTP_UNREAD_MS_MAX: Final = 20 * _SECOND_MS
# A connection that asks for nothing is closed after this; browsers and clients open another.
HTTP_IDLE_MS_MAX: Final = 60 * _SECOND_MS
# How long one request may wait for a result; longer waits are several requests.
HTTP_WAIT_MS_MAX: Final = 60 * _SECOND_MS
# Requests a second of one caller: about what one process can answer at all, so that only a flood is held up.
REQUESTS_PER_S_DEFAULT: Final = 20_000
# Heartbeats, reports and leases are counted apart: whoever floods with submits must not lose jobs for it.
WORK_PER_S_DEFAULT: Final = 20_000
# A client keeps a connection to every node, and asks all of them for a list.
NODES_MAX: Final = 64

# --- what is kept in ZooKeeper ---

# Its servers cut the connection of whoever sends a request over `jute.maxbuffer`, by default one byte less than a
# mebibyte; a job is submitted by one transaction, and one that ends with the largest output and labels still fits.
ZOOKEEPER_TRANSACTION_BYTES_MAX: Final = 1_000_000
# Names in one list of waiting jobs: what a worker reads to find its next jobs, however many wait behind.
ZOOKEEPER_BUCKET_JOBS: Final = 256
# An answer of the ensemble takes milliseconds, and an election of its leader a second or two.
ZOOKEEPER_CALL_MS: Final = 5_000
# The client library keeps a session alive by a ping every third of its time, give or take 0.4 s: a shorter session
# would be lost without a fault.
ZOOKEEPER_SESSION_MS_MIN: Final = 2_000

# --- what the coordinator holds ---

# Beyond these, submits are refused while work goes on: memory is bounded by intent, not by the kernel.
JOBS_HELD_MAX: Final = 5_000_000
# What a job service holds that is told nothing; a server asks the machine (`memory_bytes`).
BYTES_HELD_MAX: Final = 2 * _GIB
# A smaller limit would refuse jobs of the sizes that are allowed: one payload, one result, and room for others.
MEMORY_BYTES_MIN: Final = 16 * _MIB
# The part of the machine's memory that held jobs may take: the rest is for requests, snapshots and other programs.
MEMORY_SHARE: Final = 2
# The resident size may be larger than what is counted by half, and by this at least, before submits are refused for it.
RESIDENT_SLACK_BYTES: Final = 256 * _MIB
# Different combinations of queue, type and priority that wait at a time: each is held in memory and shown in views.
LANES_MAX: Final = 10_000
# Queues that are paused or draining at a time, each with its reason: they are held in memory and in every snapshot.
QUEUES_CLOSED_MAX: Final = 1_000
# Types of waiting jobs that the view of one queue names, and how many jobs of one lane, and of all lanes together, are
# counted where rows must be: metrics and dashboards ask every few seconds.
QUEUE_TYPES_MAX: Final = 100
TYPE_JOBS_COUNTED_MAX: Final = 1_000
TYPES_COUNTED_MAX: Final = 20_000
# Jobs that one slice of a search looks at: about the time of one batch, so that nobody waits longer behind it.
SCAN_JOBS_MAX: Final = 5_000
# Room in the journal for the end of one lease: an outcome without its output, its summary and reason at full length.
OUTCOME_BYTES: Final = 4 * _KIB
# What has ended is kept for those who come late for its result, bounded by each of these.
RETAIN_MS_DEFAULT: Final = _DAY_MS
# Failed jobs are looked at by people, after a weekend too; the journal reaches back as far by default.
RETAIN_FAILED_MS_DEFAULT: Final = 7 * _DAY_MS
RETAIN_JOBS_DEFAULT: Final = 1_000_000
RETAIN_BYTES_DEFAULT: Final = _GIB
# The journal's history: some ten million jobs, and a small part of the disks that servers have.
HISTORY_BYTES_DEFAULT: Final = 10 * _GIB
# Waiting this long counts as one step of priority, so that nothing waits for ever.
AGING_MS_DEFAULT: Final = 60 * _SECOND_MS
# Part of the frozen contract, for storage in memory; on disk a key lives as long as its job.
DEDUP_KEYS_DEFAULT: Final = 10_000

# --- time ---

# How long a worker that was told to hurry may take to hand its jobs back, beside the time that they have to end: as
# long as two answers take on a loaded machine. What is not handed back by then is recovered when its lease is over.
HAND_BACK_MS: Final = 3_000

# Part of the frozen contract: a worker is given up after it missed about four heartbeats.
HEARTBEAT_MS: Final = 1_000
WORKER_TIMEOUT_MS: Final = 4_000
# A worker is back within about 0.2 s of a reset; a killed one must be replaced within 2 s.
RECONNECT_GRACE_MS: Final = 1_000
# Part of the frozen contract: how long a worker that found no work should wait before it asks again.
FETCH_RETRY_MS_DEFAULT: Final = 200
FETCH_RETRY_MS_MIN: Final = 50
FETCH_RETRY_MS_MAX: Final = 1_000
# Long enough for a pause of the machine, short enough that lost work starts again soon.
LEASE_MS_DEFAULT: Final = 30_000
LEASE_MS_MIN: Final = 10
LEASE_MS_MAX: Final = 3_600_000

# Part of the frozen contract: how long a caller waits for an answer when it does not say.
DEADLINE_MS_SUBMIT: Final = 3_000
DEADLINE_MS_CANCEL: Final = 3_000
DEADLINE_MS_STATUS: Final = 1_000
DEADLINE_MS_RESULT: Final = 1_000
DEADLINE_MS_LIST: Final = 1_000
DEADLINE_MS_INTERNAL: Final = 1_000
DEADLINE_MS_FETCH: Final = 1_500
DEADLINE_MS_HEARTBEAT: Final = 1_000

# Part of the frozen contract: how a client repeats a call that may be repeated.
RETRY_FIRST_MS: Final = 100
RETRY_FACTOR: Final = 2.0
RETRY_MS_MAX: Final = 1_000
RETRY_ATTEMPTS: Final = 4
