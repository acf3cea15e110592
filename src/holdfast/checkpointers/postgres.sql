-- What checkpointers need besides the tables of Holdfast. The loader fills in what stands in braces;
-- names are validated and quoted by then, texts are quoted literals.

-- name: prepare
-- Takes the lock of all that create or change the schema; it is held to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.schema_migrations', 0)),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', true) END;

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
 WHERE c.tenant = {tenant} AND holdfast.as_tenant({tenant}) AND c.namespace = {namespace}
   AND (c.expires_at IS NULL OR c.expires_at > now());

-- A view reads with its owner's rights unless told otherwise, past any policy on the rows.
DO $view$
BEGIN
    IF current_setting('server_version_num')::integer >= 150000 THEN
        ALTER VIEW {schema}.{table} SET (security_invoker = true);
    END IF;
END $view$;

-- name: purge
SELECT holdfast.remove_checkpoints(%(tenant)s, ARRAY(
    SELECT c.id FROM holdfast.session_checkpoints AS c
    WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.namespace = %(namespace)s
        AND c.expires_at <= now()), NULL, true, false) AS purged

-- name: delete
SELECT holdfast.remove_checkpoints(%(tenant)s, ARRAY(
    SELECT c.id FROM holdfast.session_checkpoints AS c
    WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
        AND c.session_id = %(thread_id)s AND c.namespace = %(namespace)s
        AND c.id = %(id)s::uuid), NULL, false, false) AS erased

-- name: erase
SELECT holdfast.erase_threads(
    %(tenant)s, %(thread_ids)s::text[], %(namespace)s, %(agent_prefix)s) AS erased
