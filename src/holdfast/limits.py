"""All limits and defaults by name, each with its reason.

A limit is part of the interface: it may be raised with care, and is never lowered.
"""

from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_GIB: Final = 1024 * _MIB
_SECOND_MS: Final = 1_000
_DAY_MS: Final = 24 * 60 * 60 * _SECOND_MS

# --- size of a job ---

# For arguments, not files: a payload is held in memory until its job ends.
PAYLOAD_BYTES_MAX: Final = _MIB
# Part of the frozen contract; a larger output makes the job FAILED with OUTPUT_TOO_LARGE.
OUTPUT_BYTES_MAX: Final = 256 * _KIB
# One line for lists and logs, not a second output.
SUMMARY_CHARS_MAX: Final = 1_024
# Reasons are kept in the journal and displayed in full.
REASON_CHARS_MAX: Final = 1_024
# Failure description (exception and traceback) of an attempt that the journal keeps when the job is retried.
FAILURE_BYTES_MAX: Final = 64 * _KIB
# Traceback of one attempt in a job's history; the tracebacks of all attempts of a job fit into one message.
DETAIL_BYTES_MAX: Final = 32 * _KIB
# Names of queues, workers and holdfast.v1 types are used in metrics, paths and shells.
NAME_CHARS_MAX: Final = 128
NAME_PATTERN: Final = r"[A-Za-z0-9._-]{1,128}"
# In taskqueue.v1 a type is any text that can be printed on one line.
TYPE_CHARS_MAX: Final = 128
# Labels are for finding and grouping jobs; all of them are held in memory.
LABELS_MAX: Final = 64
LABEL_KEY_CHARS_MAX: Final = 128
LABEL_VALUE_CHARS_MAX: Final = 1_024
# Headers carry trace contexts and similar data; the limits are those of labels.
HEADERS_MAX: Final = LABELS_MAX
HEADER_KEY_CHARS_MAX: Final = LABEL_KEY_CHARS_MAX
HEADER_VALUE_CHARS_MAX: Final = LABEL_VALUE_CHARS_MAX
# Enough for a UUID, a URL or a digest; a request id is held in memory as long as its job.
REQUEST_ID_CHARS_MAX: Final = 256
# A unique key names work that must not run twice at a time; the limit is that of request ids.
UNIQUE_KEY_CHARS_MAX: Final = REQUEST_ID_CHARS_MAX
# Enough for a UUID and for the ids of all backends.
JOB_ID_CHARS_MAX: Final = 128

# --- notes of a running attempt ---

# One line for people, like a summary.
NOTE_MESSAGE_CHARS_MAX: Final = 1_024
# One line of a log on a screen; longer text is data and belongs in the output.
NOTE_LINE_CHARS_MAX: Final = 1_024
# Notes are sent with heartbeats; an attempt that logs more lines per second should write a log file.
NOTE_LINES_MAX: Final = 100
# All notes of one command together: they are one event, and other commands wait until it is written.
NOTES_CHARS_MAX: Final = _MIB
# Progress is measured in thousandths.
PERMILLE_MAX: Final = 1_000

# --- execution of a job ---

# For more attempts than this, use a schedule.
ATTEMPTS_MAX: Final = 100
ATTEMPTS_DEFAULT: Final = 1
# A job whose worker is lost this often is probably the cause.
LOSSES_MAX: Final = 100
LOSSES_DEFAULT: Final = 3
# Grants of one job that may end without a failure or a loss (handed back, lost in transit). Each further one counts
# as a loss, so that a job cannot circulate for ever.
UNSPENT_GRANTS_MAX: Final = 20
# A job on its last chance waits this long for an idle worker, and then has that worker to itself for this long: enough
# time for most jobs that crash a worker, without blocking other jobs for long.
QUARANTINE_MS: Final = 60 * _SECOND_MS
# Larger is more urgent. Ten levels are enough for people to distinguish; the default is in the middle.
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 5
# The queue of jobs that do not name one.
QUEUE_DEFAULT: Final = "default"
# A delay of more than a year is most likely a wrong unit.
DELAY_MS_MAX: Final = 366 * _DAY_MS
# A job that runs longer than a day should be split into several.
TIMEOUT_MS_MAX: Final = _DAY_MS
# For retries at intervals of more than an hour, use a schedule.
BACKOFF_MS_MAX: Final = 60 * 60 * _SECOND_MS

# --- size of a request ---

# One batch is one event and one frame: these limits bound the time that other requests wait for it.
BATCH_JOBS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 4 * _MIB
# One message: a batch of maximum size and its framing.
MESSAGE_BYTES_MAX: Final = 5 * _MIB
# Part of the frozen contract.
PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 200
# An offset in decimal; the limit protects the integer parser from very long input.
PAGE_TOKEN_CHARS_MAX: Final = 19
# One grant is one event; a worker that wants more sends another request.
LEASES_PER_GRANT_MAX: Final = 1_000
# More slots than this should be distributed over several processes.
SLOTS_MAX: Final = 1_000
# Every schedule is checked when it is due, and all of them are returned in one list.
SCHEDULES_MAX: Final = 10_000
# Missed ticks that are older than this are usually no longer wanted.
CATCH_UP_WINDOW_MS: Final = _DAY_MS
# A preview is computed on the coordinator's thread, so it must be short.
PREVIEW_TICKS_MAX: Final = 100
# Shorter intervals are a loop, not a schedule.
EVERY_MS_MIN: Final = _SECOND_MS
# Real arguments are not nested deeper, and recursive readers must not overflow their stack.
JSON_DEPTH_MAX: Final = 100
# A URL with all its filters; all headers of a request (usually about a dozen).
URL_BYTES_MAX: Final = 8 * _KIB
HTTP_HEAD_BYTES_MAX: Final = 32 * _KIB
# Connections of workers, clients and nodes. Whatever is configured, those of the wire take at most nine sixteenths of
# the process's descriptors, on all ports together, and those of gRPC a quarter.
GRPC_CONNECTIONS_MAX: Final = 16_384
WIRE_CONNECTIONS_MAX: Final = 16_384
# Maximum number of these connections without an admitted call: real clients send a call once they have connected.
GRPC_STRANGERS_MAX: Final = 1_000
# Time limit of the HTTP/2 handshake, after the TLS handshake if there is one; and time after which a connection
# without calls is closed (its client opens another).
GRPC_HANDSHAKE_MS_MAX: Final = 10 * _SECOND_MS
GRPC_IDLE_MS_MAX: Final = 10 * 60 * _SECOND_MS
# Concurrent calls on one gRPC connection; clients queue further ones. Each call may fill a window of 64 KiB before its
# headers are checked: 16 MiB in total.
STREAMS_PER_CONNECTION_MAX: Final = 256
# Calls without a token (health checks) whose request is being received, each up to MESSAGE_BYTES_MAX: 10 MiB in total.
# A probe's request arrives together with its headers; an incomplete one is aborted in favour of the next.
OPEN_REQUESTS_MAX: Final = 2
OPEN_REQUEST_MS_MAX: Final = 5 * _SECOND_MS
# Streams without a token (health watches) of all callers together; each is a task.
OPEN_STREAMS_MAX: Final = 1_000
# Each connection costs a descriptor and some memory. Above the limit, the connection that has been idle longest is
# closed.
HTTP_CONNECTIONS_MAX: Final = 1_000
# The metrics port has no tokens: a few scrapers and probes connect to it.
METRICS_CONNECTIONS_MAX: Final = 32
# Maximum number of these that are event streams: each open dashboard has one.
HTTP_FEEDS_MAX: Final = 500
# Time limits for receiving a request and for the client to read the response; after them the connection is closed.
HTTP_HEAD_MS_MAX: Final = 10 * _SECOND_MS
HTTP_BODY_MS_MAX: Final = 30 * _SECOND_MS
HTTP_UNREAD_MS_MAX: Final = 20 * _SECOND_MS
# A connection without requests is closed after this time; browsers and clients open another.
HTTP_IDLE_MS_MAX: Final = 60 * _SECOND_MS
# How long one request may wait for a result; clients that wait longer repeat the request.
HTTP_WAIT_MS_MAX: Final = 60 * _SECOND_MS
# Requests per second of one caller: about the capacity of one process, so that only a flood is limited.
REQUESTS_PER_S_DEFAULT: Final = 20_000
# Heartbeats, reports and leases have a budget of their own, so that a flood of submits does not cost leases.
WORK_PER_S_DEFAULT: Final = 20_000
# A client keeps a connection to every node, and queries all of them for a list.
NODES_MAX: Final = 64

# --- state of the coordinator ---

# Above these limits submits are refused and work continues: the server limits its memory itself, not the kernel.
JOBS_HELD_MAX: Final = 5_000_000
# Default of a job service; a server derives its limit from the machine (`memory_bytes`).
BYTES_HELD_MAX: Final = 2 * _GIB
# A smaller limit would refuse jobs of allowed sizes: it fits a maximum payload, its result and further jobs.
MEMORY_BYTES_MIN: Final = 16 * _MIB
# Held jobs may take 1/MEMORY_SHARE of the machine's memory; the rest is for requests, snapshots and other programs.
MEMORY_SHARE: Final = 2
# Submits are also refused when the resident size exceeds `memory_bytes` by half, or by this if that is more.
RESIDENT_SLACK_BYTES: Final = 256 * _MIB
# Combinations of queue, type and priority that have waiting jobs: each is held in memory and listed in views.
LANES_MAX: Final = 10_000
# Queues that are paused or draining, each with its reason: they are held in memory and in every snapshot.
QUEUES_CLOSED_MAX: Final = 1_000
# Types of waiting jobs that the view of one queue lists; and the jobs of one lane, and of all lanes together, that are
# counted row by row, because metrics and dashboards send this query every few seconds.
QUEUE_TYPES_MAX: Final = 100
TYPE_JOBS_COUNTED_MAX: Final = 1_000
TYPES_COUNTED_MAX: Final = 20_000
# Jobs that one slice of a search reads: it takes about as long as one batch, so that other commands wait no longer.
SCAN_JOBS_MAX: Final = 5_000
# Journal space for the end of one lease: an outcome without its output, with summary and reason at full length.
OUTCOME_BYTES: Final = 4 * _KIB
# Finished jobs are kept for clients that read the result late; each of these limits applies.
RETAIN_MS_DEFAULT: Final = _DAY_MS
# People inspect failed jobs, also after a weekend; the journal is kept as long by default.
RETAIN_FAILED_MS_DEFAULT: Final = 7 * _DAY_MS
RETAIN_JOBS_DEFAULT: Final = 1_000_000
RETAIN_BYTES_DEFAULT: Final = _GIB
# The journal's history: about ten million jobs, and a small part of a server's disk.
HISTORY_BYTES_DEFAULT: Final = 10 * _GIB
# An owner of the microservices topology keeps no history: a restart reads at most about this much of its journal.
OWNER_SNAPSHOT_BYTES_DEFAULT: Final = 64 * _MIB
# Waiting this long raises the priority by one, so that no job waits for ever.
AGING_MS_DEFAULT: Final = 60 * _SECOND_MS
# Part of the frozen contract, for storage in memory; on disk a request id is kept as long as its job.
DEDUP_KEYS_DEFAULT: Final = 10_000

# --- time ---

# Time that a worker that stops in a hurry has to hand its jobs back, in addition to the time that they have to end:
# enough for two responses on a loaded machine. Jobs not handed back by then are recovered when their leases expire.
HAND_BACK_MS: Final = 3_000

# Part of the frozen contract: a worker is considered lost after about four missed heartbeats.
HEARTBEAT_MS: Final = 1_000
WORKER_TIMEOUT_MS: Final = 4_000
# A worker reconnects within about 0.2 s of a connection reset; the jobs of a killed one must restart within 2 s.
RECONNECT_GRACE_MS: Final = 1_000
# Part of the frozen contract: how long a worker that found no work should wait before its next fetch.
FETCH_RETRY_MS_DEFAULT: Final = 200
FETCH_RETRY_MS_MIN: Final = 50
FETCH_RETRY_MS_MAX: Final = 1_000
# Longer than a pause of the machine, short enough that lost jobs restart soon.
LEASE_MS_DEFAULT: Final = 30_000
LEASE_MS_MIN: Final = 10
LEASE_MS_MAX: Final = 3_600_000

# Part of the frozen contract: default deadlines of a caller.
DEADLINE_MS_SUBMIT: Final = 3_000
DEADLINE_MS_CANCEL: Final = 3_000
DEADLINE_MS_STATUS: Final = 1_000
DEADLINE_MS_RESULT: Final = 1_000
DEADLINE_MS_LIST: Final = 1_000
DEADLINE_MS_INTERNAL: Final = 1_000
DEADLINE_MS_FETCH: Final = 1_500
DEADLINE_MS_HEARTBEAT: Final = 1_000

# Part of the frozen contract: how a client retries an idempotent call.
RETRY_FIRST_MS: Final = 100
RETRY_FACTOR: Final = 2.0
RETRY_MS_MAX: Final = 1_000
RETRY_ATTEMPTS: Final = 4
