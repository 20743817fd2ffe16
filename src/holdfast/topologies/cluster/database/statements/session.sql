-- name: open
-- An outage must not lose a commit that was answered, on the server or on its synchronous standby: `remote_apply` is the
-- only stronger setting than `on`.
SELECT
    pg_backend_pid(),
    set_config('statement_timeout', %(timeout_ms)s, false),
    set_config('idle_in_transaction_session_timeout', %(timeout_ms)s, false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
    set_config('plan_cache_mode', %(plans)s, false),
    set_config('enable_seqscan', 'off', false),
    set_config('jit', 'off', false)

-- name: check
SELECT pg_backend_pid(), (SELECT s.setting FROM pg_settings s WHERE s.name = 'statement_timeout')
