-- What checkpointers need besides the tables of Holdfast. The loader fills in what stands in braces;
-- names are validated and quoted by then, texts are quoted literals.

-- name: prepare
-- Takes the lock of all that create or change the schema; it is held to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.schema_migrations', 0));

DO $prepare$
DECLARE
    newest integer;
BEGIN
    -- IF NOT EXISTS asks for the right to create schemas even where there is nothing to create.
    IF to_regnamespace(rtrim('holdfast.', '.')) IS NULL THEN
        EXECUTE 'CREATE SCHEMA ' || rtrim('holdfast.', '.');
    END IF;
    IF to_regnamespace({schema_text}) IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
    IF to_regclass('holdfast.schema_migrations') IS NOT NULL THEN
        SELECT max(m.version) INTO newest FROM holdfast.schema_migrations AS m;
        IF newest > {newest} THEN
            RAISE EXCEPTION 'the database has schema version %, this Holdfast knows up to {newest}',
                newest USING ERRCODE = 'HF010';
        END IF;
    END IF;
END $prepare$;

-- name: migration
-- {name}
DO $ensure$
DECLARE
    applied text;
BEGIN
    IF to_regclass('holdfast.schema_migrations') IS NOT NULL THEN
        SELECT m.checksum INTO applied FROM holdfast.schema_migrations AS m
         WHERE m.version = {version};
    END IF;
    IF applied IS NULL THEN
        EXECUTE $migration$
{up}
$migration$;
        INSERT INTO holdfast.schema_migrations (version, checksum) VALUES ({version}, {checksum});
    ELSIF applied <> {checksum} THEN
        RAISE EXCEPTION 'migration {name} was applied with other text than this Holdfast has'
            USING ERRCODE = 'HF011';
    END IF;
END $ensure$;

-- name: functions
-- Erases what one namespace holds in some threads, and at once all content that nothing refers to
-- then, what was trimmed before included. A thread that checkpointers made and that is empty goes too.
-- As everywhere, the long look at what is referenced happens before the lock, and what came since is
-- looked at under it.
CREATE OR REPLACE FUNCTION holdfast.erase_threads(
    p_tenant text, p_threads text[], p_namespace text, p_agent uuid
)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    since xid := pg_snapshot_xmin(pg_current_snapshot())::xid;
    candidates bytea[] := '{}';
    erased bigint;
BEGIN
    IF EXISTS (SELECT FROM holdfast.session_checkpoints AS c
                WHERE c.tenant = p_tenant AND c.session_id = ANY (p_threads)
                  AND c.namespace = p_namespace) THEN
        candidates := ARRAY(
            WITH RECURSIVE below (digest, level) AS (
                SELECT top.digest, top.level
                  FROM (SELECT c.refs FROM holdfast.session_checkpoints AS c
                         WHERE c.tenant = p_tenant AND c.refs <> ''
                           AND NOT (c.session_id = ANY (p_threads) AND c.namespace = p_namespace)
                        UNION ALL
                        SELECT w.refs FROM holdfast.checkpoint_writes AS w
                         WHERE w.tenant = p_tenant AND w.refs <> ''
                           AND NOT (w.session_id = ANY (p_threads) AND w.namespace = p_namespace)
                       ) AS root
                 CROSS JOIN LATERAL holdfast.refs_in(root.refs) AS top
                UNION
                SELECT child.digest, child.level
                  FROM below
                  JOIN holdfast.chunks AS k ON k.tenant = p_tenant AND k.digest = below.digest
                 CROSS JOIN LATERAL holdfast.refs_in(k.data) AS child
                 WHERE below.level > 0
            )
            SELECT k.digest FROM holdfast.chunks AS k WHERE k.tenant = p_tenant
            EXCEPT
            SELECT below.digest FROM below);
    END IF;

    PERFORM holdfast.lock_tenant(p_tenant, true);
    DELETE FROM holdfast.session_checkpoints AS c
     WHERE c.tenant = p_tenant AND c.session_id = ANY (p_threads) AND c.namespace = p_namespace;
    GET DIAGNOSTICS erased = ROW_COUNT;
    DELETE FROM holdfast.checkpoint_writes AS w
     WHERE w.tenant = p_tenant AND w.session_id = ANY (p_threads) AND w.namespace = p_namespace;
    DELETE FROM holdfast.sessions AS s
     WHERE s.tenant = p_tenant AND s.id = ANY (p_threads) AND s.agent_id = p_agent
       AND NOT EXISTS (SELECT FROM holdfast.session_checkpoints AS c
                        WHERE c.tenant = s.tenant AND c.session_id = s.id)
       AND NOT EXISTS (SELECT FROM holdfast.checkpoint_writes AS w
                        WHERE w.tenant = s.tenant AND w.session_id = s.id);
    IF cardinality(candidates) > 0 THEN
        DELETE FROM holdfast.chunks AS k
         WHERE k.tenant = p_tenant AND k.digest IN (
                SELECT unnest(candidates)
                EXCEPT
                SELECT l.digest
                  FROM holdfast.live_digests(p_tenant, since, NULL, '-infinity') AS l);
    END IF;
    RETURN erased;
END $$;

-- name: view
-- The table as its readers know it: the columns of one tenant's checkpoints in one namespace.
CREATE OR REPLACE VIEW {schema}.{table} AS
SELECT c.session_id AS thread_id,
       c.id::text AS checkpoint_id,
       holdfast.checkpoint_state(c.id) AS snapshot,
       c.version::integer AS version,
       c.size_bytes::integer AS size_bytes,
       c.created_at
  FROM holdfast.session_checkpoints AS c
 WHERE c.tenant = {tenant} AND c.namespace = {namespace}
   AND (c.expires_at IS NULL OR c.expires_at > now());

-- A view reads with its owner's rights unless told otherwise, past any policy on the rows.
DO $view$
BEGIN
    IF current_setting('server_version_num')::integer >= 150000 THEN
        ALTER VIEW {schema}.{table} SET (security_invoker = true);
    END IF;
END $view$;

-- name: put.expired
-- Goes before a put: removes what has expired in its thread. It waits for nobody, so that the order in
-- which PostgreSQL does the two does not matter.
WITH expired AS (
    DELETE FROM holdfast.session_checkpoints
    WHERE id IN (
        SELECT c.id FROM holdfast.session_checkpoints AS c
        WHERE c.tenant = %(tenant)s AND c.session_id = %(thread_id)s AND c.namespace = %(namespace)s
            AND c.expires_at <= now() AND (c.restoring_until IS NULL OR c.restoring_until <= now())
        FOR UPDATE SKIP LOCKED))

-- name: purge
WITH gone AS (
    DELETE FROM holdfast.session_checkpoints AS c
    WHERE c.tenant = %(tenant)s AND c.namespace = %(namespace)s
        AND c.expires_at <= now() AND (c.restoring_until IS NULL OR c.restoring_until <= now())
    RETURNING c.id)
SELECT count(*) AS purged FROM gone

-- name: delete
WITH gone AS (
    DELETE FROM holdfast.session_checkpoints AS c
    WHERE c.tenant = %(tenant)s AND c.session_id = %(thread_id)s AND c.namespace = %(namespace)s
        AND c.id = %(id)s::uuid
    RETURNING c.id)
SELECT count(*) AS erased FROM gone

-- name: erase
SELECT holdfast.erase_threads(
    %(tenant)s, %(thread_ids)s::text[], %(namespace)s, %(agent_id)s::uuid) AS erased
