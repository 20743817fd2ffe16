-- name: facts
-- `reset_val` is the value before this session has set its own.
SELECT
    current_setting('fsync'), current_setting('full_page_writes'), s.reset_val, coalesce((
        SELECT CASE WHEN d.setrole = 0 THEN 'the database' ELSE 'the role' END
        FROM pg_db_role_setting d CROSS JOIN LATERAL unnest(d.setconfig) AS c (line)
        WHERE c.line LIKE 'synchronous_commit=%%'
            AND d.setrole IN (0, (SELECT r.oid FROM pg_roles r WHERE r.rolname = session_user))
            AND d.setdatabase IN (0, (SELECT b.oid FROM pg_database b WHERE b.datname = current_database()))
        ORDER BY d.setrole DESC, d.setdatabase DESC LIMIT 1), 'the server'),
    pg_is_in_recovery(),
    CASE WHEN to_regnamespace('holdfast') IS NULL
        THEN has_database_privilege(current_database(), 'CREATE')
        ELSE (SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'holdfast')
    END
FROM pg_settings s WHERE s.name = 'synchronous_commit'

-- name: is_read_only
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean
