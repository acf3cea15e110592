-- Holdfast, PostgreSQL dialect (14 or later). SQLite has the same tables and, but for one, the same columns.
--
-- The schema's name stands for itself everywhere below, so the whole file can be moved to another
-- schema by replacing that one word. Identifiers that users choose sort by their bytes
-- (COLLATE "C"), which is what Python and SQLite do, and what lets a prefix use an index.
--
-- Functions raise SQLSTATEs of their own class, HF, which the client turns into its errors:
--   HF001 chunks missing       HF002 session not found    HF003 agent not found
--   HF004 checkpoint exists    HF005 session exists       HF006 agent exists
--   HF007 wrong isolation      HF008 state cannot be read HF009 references cannot be followed
--   HF010 workspace pack missing                          HF011 workspace packs in a circle
--   HF012 already resumed      HF013 nothing to go on from
--   HF014 lease lost           HF015 session is held      HF016 session is completed
--   HF017 stale writer         HF018 session of another agent

-- What every put checks has its check in a type, which a connection reads once. That of a table is read
-- from the catalog again by each statement.
CREATE DOMAIN holdfast.agent_type AS text COLLATE "C" CHECK (VALUE <> '');
CREATE DOMAIN holdfast.session_status AS text COLLATE "C"
    CHECK (VALUE IN ('active', 'paused', 'interrupted', 'completed', 'failed', 'stopped'));
CREATE DOMAIN holdfast.checkpoint_type AS varchar(50) COLLATE "C"
    CHECK (VALUE IN ('manual', 'auto', 'failure'));
CREATE DOMAIN holdfast.retention_class AS text COLLATE "C"
    CHECK (VALUE IN ('automatic', 'manual', 'feature', 'session', 'step', 'failure'));
CREATE DOMAIN holdfast.digest AS bytea CHECK (octet_length(VALUE) = 33);

CREATE TABLE holdfast.agents (
    tenant       text COLLATE "C" NOT NULL DEFAULT 'default',
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name         text COLLATE "C" NOT NULL,
    agent_type   holdfast.agent_type NOT NULL,
    status       text COLLATE "C" NOT NULL DEFAULT 'idle'
                 CHECK (status IN ('idle', 'running', 'paused', 'completed', 'failed', 'terminated')),
    parent_id    uuid,
    depth_level  integer NOT NULL DEFAULT 0 CHECK (depth_level >= 0),
    metadata     jsonb,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    UNIQUE (tenant, id),
    FOREIGN KEY (tenant, parent_id) REFERENCES holdfast.agents (tenant, id)
);

CREATE INDEX agents_by_age ON holdfast.agents (tenant, created_at DESC, id DESC);
-- Who removes an agent looks for those below it; that of a thread, of which there are many, has none above.
CREATE INDEX agents_by_parent ON holdfast.agents (tenant, parent_id) WHERE parent_id IS NOT NULL;

-- Every put updates its session's row. Room on the page keeps those updates out of the indexes.
CREATE TABLE holdfast.sessions (
    tenant           text COLLATE "C" NOT NULL DEFAULT 'default',
    id               text COLLATE "C" NOT NULL,
    agent_id         uuid NOT NULL,
    agent_type       holdfast.agent_type NOT NULL,
    task_description text,
    status           holdfast.session_status NOT NULL DEFAULT 'active',
    continues_id     text COLLATE "C",
    forked_from      text COLLATE "C",
    project_dir      text COLLATE "C",
    lease_owner      text COLLATE "C",
    lease_token      bigint NOT NULL DEFAULT 0,
    lease_since      timestamptz,
    lease_expires_at timestamptz,
    -- SQLite's own clock; here the server's time decides.
    lease_clock      text COLLATE "C",
    recoveries       integer NOT NULL DEFAULT 0,
    paused_at        timestamptz,
    paused_until     timestamptz,
    pause_reason     text,
    resumed_at       timestamptz,
    chain_length     bigint NOT NULL DEFAULT 0,
    chain_head       bytea NOT NULL DEFAULT '',
    -- Spares a put the look for its parent. SQLite needs no such thing and has no such column.
    newest_id        uuid,
    metadata         jsonb,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (tenant, agent_id) REFERENCES holdfast.agents (tenant, id)
) WITH (fillfactor = 70);

CREATE INDEX sessions_by_age ON holdfast.sessions (tenant, created_at DESC, id DESC);
CREATE INDEX sessions_by_agent ON holdfast.sessions (tenant, agent_id);
CREATE INDEX sessions_by_lease ON holdfast.sessions (tenant) WHERE lease_owner IS NOT NULL;
-- While a table has no statistics, every index that begins with the tenant looks like one row to the
-- planner, and of equals it takes the youngest: so this one comes last, or puts would read all sessions.
ALTER TABLE holdfast.sessions ADD PRIMARY KEY (tenant, id);

-- The checkpoint table. state_snapshot is the manifest of a checkpoint's state as a document for
-- SQL: small values stand in it, large ones are references to chunks, and
-- holdfast.checkpoint_state(id) returns the state whole. The documented keys, all optional:
--   conversation_history  array    the messages so far, each an object with role and content
--   variable_state        object   the agent's variables by name
--   execution_context     object   where the agent stood: node, step, tool call, settings
--   task_state, progress, agent_history, memory_refs, open_files, decisions, features, context
-- Restores read manifest, the same document as exact text: JSONB rewrites numbers and key order.
CREATE TABLE holdfast.session_checkpoints (
    tenant           text COLLATE "C" NOT NULL DEFAULT 'default',
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    external_id      text COLLATE "C",
    session_id       text COLLATE "C" NOT NULL,
    agent_id         uuid NOT NULL,
    namespace        text COLLATE "C" NOT NULL DEFAULT '',
    seq              bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    parent_id        text COLLATE "C",
    name             text COLLATE "C" NOT NULL,
    label            text COLLATE "C",
    description      text,
    checkpoint_type  holdfast.checkpoint_type NOT NULL DEFAULT 'manual',
    retention_class  holdfast.retention_class NOT NULL DEFAULT 'manual',
    state_snapshot   jsonb NOT NULL,
    manifest         text NOT NULL,
    refs             bytea NOT NULL DEFAULT '',
    run_id           text COLLATE "C",
    version          bigint NOT NULL DEFAULT 1,
    size_bytes       bigint NOT NULL DEFAULT 0,
    stored_bytes     bigint NOT NULL DEFAULT 0,
    -- Its place in the session's hash chain: the link before it, and its own.
    chain_number     bigint,
    chain_previous   bytea,
    chain_hash       bytea,
    git_branch       text,
    git_commit       text,
    git_uncommitted  boolean NOT NULL DEFAULT false,
    workspace_commit text COLLATE "C",
    resumable        boolean NOT NULL DEFAULT true,
    pinned           boolean NOT NULL DEFAULT false,
    consumed_at      timestamptz,
    quarantined_at   timestamptz,
    restoring_until  timestamptz,
    expires_at       timestamptz,
    metadata         jsonb,
    created_at       timestamptz NOT NULL DEFAULT now(),
    restored_at      timestamptz,
    FOREIGN KEY (tenant, session_id) REFERENCES holdfast.sessions (tenant, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant, agent_id) REFERENCES holdfast.agents (tenant, id)
);

-- Read backwards for the newest: a row is then added at the end, where a full page is not split in two.
CREATE UNIQUE INDEX checkpoints_by_seq
    ON holdfast.session_checkpoints (tenant, session_id, namespace, seq);
CREATE UNIQUE INDEX checkpoints_by_name
    ON holdfast.session_checkpoints (tenant, session_id, namespace, name);
CREATE UNIQUE INDEX checkpoints_by_external_id
    ON holdfast.session_checkpoints (tenant, session_id, namespace, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX checkpoints_by_agent
    ON holdfast.session_checkpoints (agent_id, created_at DESC, id DESC);
-- Finds what a put has to trim without reading the session's checkpoints of other classes.
CREATE INDEX checkpoints_by_class
    ON holdfast.session_checkpoints (tenant, session_id, namespace, retention_class, seq)
    WHERE NOT pinned;
CREATE INDEX checkpoints_by_expiry
    ON holdfast.session_checkpoints (tenant, expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX checkpoints_by_label
    ON holdfast.session_checkpoints (tenant, session_id, namespace, label)
    WHERE label IS NOT NULL;
CREATE INDEX checkpoints_by_workspace
    ON holdfast.session_checkpoints (tenant, workspace_commit)
    WHERE workspace_commit IS NOT NULL;
CREATE INDEX checkpoints_in_quarantine
    ON holdfast.session_checkpoints (tenant, session_id) WHERE quarantined_at IS NOT NULL;

-- What is left of links that a trim, a deletion or a replacement took away: each row stands for a run
-- of numbers, with the seq and the hash of the last.
CREATE TABLE holdfast.chain_tombstones (
    tenant       text COLLATE "C" NOT NULL DEFAULT 'default',
    session_id   text COLLATE "C" NOT NULL,
    first_number bigint NOT NULL,
    last_number  bigint NOT NULL CHECK (last_number >= first_number),
    seq          bigint NOT NULL,
    chain_hash   bytea NOT NULL,
    PRIMARY KEY (tenant, session_id, first_number),
    FOREIGN KEY (tenant, session_id) REFERENCES holdfast.sessions (tenant, id) ON DELETE CASCADE
) WITH (fillfactor = 70);

-- Content, stored once under its digest. Codec 0 is plain: compression is left to TOAST, so that SQL
-- can read what is stored. What fits on a page is left as it is: to compress it, and to store in pieces
-- what is still too large, would take a small put as long as all the rest of it.
CREATE TABLE holdfast.chunks (
    tenant text COLLATE "C" NOT NULL DEFAULT 'default',
    digest holdfast.digest NOT NULL,
    codec  smallint NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (tenant, digest)
) WITH (toast_tuple_target = 8160);

ALTER TABLE holdfast.chunks ALTER COLUMN data SET STORAGE EXTENDED;

-- A server may have been built without lz4; the setting's own list says what it knows.
DO $$
DECLARE
    method text := 'pglz';
BEGIN
    IF EXISTS (SELECT FROM pg_settings
                WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        method := 'lz4';
    END IF;
    EXECUTE 'ALTER TABLE holdfast.chunks ALTER COLUMN data SET COMPRESSION ' || method;
END $$;

CREATE TABLE holdfast.checkpoint_writes (
    tenant      text COLLATE "C" NOT NULL DEFAULT 'default',
    session_id  text COLLATE "C" NOT NULL,
    namespace   text COLLATE "C" NOT NULL DEFAULT '',
    external_id text COLLATE "C" NOT NULL,
    task_id     text COLLATE "C" NOT NULL,
    idx         bigint NOT NULL,
    task_path   text COLLATE "C" NOT NULL DEFAULT '',
    channel     text COLLATE "C" NOT NULL,
    manifest    text NOT NULL,
    refs        bytea NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    row_sum     bytea NOT NULL,
    PRIMARY KEY (tenant, session_id, namespace, external_id, task_id, idx),
    FOREIGN KEY (tenant, session_id) REFERENCES holdfast.sessions (tenant, id) ON DELETE CASCADE
);

CREATE TABLE holdfast.effects (
    tenant      text COLLATE "C" NOT NULL DEFAULT 'default',
    session_id  text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    occurrence  integer NOT NULL DEFAULT 0 CHECK (occurrence >= 0),
    name        text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    status      text COLLATE "C" NOT NULL
                CHECK (status IN ('started', 'done', 'failed', 'unknown')),
    attempt_id  uuid NOT NULL,
    attempts    integer NOT NULL DEFAULT 1,
    result      text,
    refs        bytea NOT NULL DEFAULT '',
    error       jsonb,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    begun_sum   bytea NOT NULL,
    outcome_sum bytea NOT NULL,
    PRIMARY KEY (tenant, session_id, key, occurrence),
    FOREIGN KEY (tenant, session_id) REFERENCES holdfast.sessions (tenant, id) ON DELETE CASCADE
) WITH (fillfactor = 70);

CREATE TABLE holdfast.session_logs (
    id         bigint PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
    tenant     text COLLATE "C" NOT NULL DEFAULT 'default',
    session_id text COLLATE "C" NOT NULL,
    level      text COLLATE "C" NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error')),
    message    text NOT NULL,
    data       jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (tenant, session_id) REFERENCES holdfast.sessions (tenant, id) ON DELETE CASCADE
);

CREATE INDEX logs_by_session ON holdfast.session_logs (tenant, session_id, id);

-- Shared by all sessions of a tenant, as chunks are: a fork has the files of what it was forked from.
CREATE TABLE holdfast.workspace_packs (
    tenant     text COLLATE "C" NOT NULL DEFAULT 'default',
    commit_id  text COLLATE "C" NOT NULL,
    needs      jsonb NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT now(),
    data       bytea NOT NULL,
    PRIMARY KEY (tenant, commit_id)
);

-- A git pack is compressed already.
ALTER TABLE holdfast.workspace_packs ALTER COLUMN data SET STORAGE EXTERNAL;

-- Whose rows are sealed, and the proof of the key. Plain text does not get in beside them.
CREATE TABLE holdfast.sealing (
    tenant    text COLLATE "C" PRIMARY KEY,
    seal      text NOT NULL,
    sealed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE holdfast.schema_migrations (
    version    integer PRIMARY KEY,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Statistics are samples of rows, and they outlast the rows: what was erased could still be read there. So
-- none are kept of columns with content, which no index holds. What is looked for keeps its own: ids, names
-- of checkpoints, keys of steps, types and statuses.
ALTER TABLE holdfast.agents
    ALTER COLUMN name SET STATISTICS 0,
    ALTER COLUMN metadata SET STATISTICS 0;
ALTER TABLE holdfast.sessions
    ALTER COLUMN task_description SET STATISTICS 0,
    ALTER COLUMN pause_reason SET STATISTICS 0,
    ALTER COLUMN metadata SET STATISTICS 0,
    ALTER COLUMN project_dir SET STATISTICS 0;
ALTER TABLE holdfast.session_checkpoints
    ALTER COLUMN description SET STATISTICS 0,
    ALTER COLUMN state_snapshot SET STATISTICS 0,
    ALTER COLUMN manifest SET STATISTICS 0,
    ALTER COLUMN refs SET STATISTICS 0,
    ALTER COLUMN git_branch SET STATISTICS 0,
    ALTER COLUMN git_commit SET STATISTICS 0,
    ALTER COLUMN metadata SET STATISTICS 0;
ALTER TABLE holdfast.chunks
    ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE holdfast.checkpoint_writes
    ALTER COLUMN task_path SET STATISTICS 0,
    ALTER COLUMN channel SET STATISTICS 0,
    ALTER COLUMN manifest SET STATISTICS 0,
    ALTER COLUMN refs SET STATISTICS 0,
    ALTER COLUMN row_sum SET STATISTICS 0;
ALTER TABLE holdfast.effects
    ALTER COLUMN name SET STATISTICS 0,
    ALTER COLUMN fingerprint SET STATISTICS 0,
    ALTER COLUMN result SET STATISTICS 0,
    ALTER COLUMN refs SET STATISTICS 0,
    ALTER COLUMN error SET STATISTICS 0,
    ALTER COLUMN begun_sum SET STATISTICS 0,
    ALTER COLUMN outcome_sum SET STATISTICS 0;
ALTER TABLE holdfast.session_logs
    ALTER COLUMN message SET STATISTICS 0,
    ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE holdfast.workspace_packs
    ALTER COLUMN data SET STATISTICS 0;

COMMENT ON TABLE holdfast.agents IS 'Who works: agents and their sub-agents.';
COMMENT ON TABLE holdfast.sessions IS 'Lines of work (threads), each of one agent.';
COMMENT ON TABLE holdfast.session_checkpoints IS 'Immutable save points of sessions.';
COMMENT ON TABLE holdfast.chain_tombstones IS
    'Runs of links that were trimmed, deleted or replaced, with the last hash of each.';
COMMENT ON TABLE holdfast.chunks IS 'Content of states, stored once under its digest.';
COMMENT ON TABLE holdfast.checkpoint_writes IS
    'Pending writes of tasks; they may arrive before the checkpoint they belong to.';
COMMENT ON TABLE holdfast.effects IS 'Steps with side effects, so that none runs twice.';
COMMENT ON TABLE holdfast.session_logs IS 'What happened in a session, append-only.';
COMMENT ON TABLE holdfast.workspace_packs IS 'Git packs of workspace snapshots.';
COMMENT ON TABLE holdfast.sealing IS 'Tenants whose content is sealed with a key.';
COMMENT ON TABLE holdfast.schema_migrations IS 'Which migrations were applied, with their checksums.';

COMMENT ON COLUMN holdfast.sessions.continues_id IS 'The session whose work this one goes on with.';
COMMENT ON COLUMN holdfast.sessions.project_dir IS 'The directory that it was created in.';
COMMENT ON COLUMN holdfast.sessions.lease_owner IS 'Who holds the session; null when nobody does.';
COMMENT ON COLUMN holdfast.sessions.lease_token IS 'The fence: a writer with another token lost it.';
COMMENT ON COLUMN holdfast.sessions.lease_expires_at IS
    'From then on somebody else may take it; until somebody does, its token counts.';
COMMENT ON COLUMN holdfast.sessions.recoveries IS 'How often its worker was found dead.';
COMMENT ON COLUMN holdfast.sessions.newest_id IS
    'The newest checkpoint without a namespace, if that was put here and never expires; null says nothing.';
COMMENT ON COLUMN holdfast.session_checkpoints.id IS 'Made by the client, so that a retry is safe.';
COMMENT ON COLUMN holdfast.session_checkpoints.external_id IS
    'Another system''s id of this checkpoint, unique in its session and namespace.';
COMMENT ON COLUMN holdfast.session_checkpoints.agent_id IS 'The agent whose state this is.';
COMMENT ON COLUMN holdfast.session_checkpoints.seq IS
    'Order of checkpoints, drawn while the session is locked; clocks and ids do not order them.';
COMMENT ON COLUMN holdfast.session_checkpoints.parent_id IS
    'The checkpoint it was made from; without a foreign key, since a parent may have been trimmed.';
COMMENT ON COLUMN holdfast.session_checkpoints.checkpoint_type IS
    'manual (asked for), auto (made by a rule) or failure (made when an agent failed).';
COMMENT ON COLUMN holdfast.session_checkpoints.retention_class IS
    'Which rule removes it: automatic, manual, feature, session, step or failure.';
COMMENT ON COLUMN holdfast.session_checkpoints.state_snapshot IS
    'The manifest of the state, for SQL: {"v": 1, "seqs": [[kind, count], ...], "state": {...}}. '
    'Small values stand in it, {"$t": "ref", "v": i} is the i-th sequence of chunks. '
    'Documented keys of the state, all optional: '
    'conversation_history (array: the messages so far, each an object with role and content), '
    'variable_state (object: the agent''s variables by name), '
    'execution_context (object: where the agent stood: node, step, tool call, settings). '
    'checkpoint_state(id) returns the whole state.';
COMMENT ON COLUMN holdfast.session_checkpoints.manifest IS
    'The same document as exact text: what is restored and digested.';
COMMENT ON COLUMN holdfast.session_checkpoints.refs IS
    'Records of 40 bytes: digest (33), level and tier (1), length of the content below (6).';
COMMENT ON COLUMN holdfast.session_checkpoints.size_bytes IS 'Size of the whole state.';
COMMENT ON COLUMN holdfast.session_checkpoints.stored_bytes IS 'What this checkpoint added.';
COMMENT ON COLUMN holdfast.session_checkpoints.chain_hash IS
    'SHA-256 of the link before it and of all of this row that never changes.';
COMMENT ON COLUMN holdfast.session_checkpoints.quarantined_at IS
    'When it failed verification: it is not used until it verifies again.';
COMMENT ON COLUMN holdfast.session_checkpoints.restoring_until IS
    'A restore is reading it: it is not trimmed before that moment.';
COMMENT ON COLUMN holdfast.session_checkpoints.expires_at IS 'Not returned from this moment on.';
COMMENT ON COLUMN holdfast.session_checkpoints.metadata IS 'The caller''s own data, filterable.';
COMMENT ON COLUMN holdfast.session_checkpoints.created_at IS 'When it was made.';
COMMENT ON COLUMN holdfast.session_checkpoints.restored_at IS
    'When it was last restored; null if never.';
COMMENT ON COLUMN holdfast.session_checkpoints.workspace_commit IS
    'The snapshot of the project''s files: a commit of the private git store.';
COMMENT ON COLUMN holdfast.workspace_packs.needs IS
    'The commits that must be there before this pack can be applied.';
COMMENT ON COLUMN holdfast.workspace_packs.touched_at IS
    'When it was last put; a young one may belong to a checkpoint that is still to come.';
COMMENT ON COLUMN holdfast.effects.key IS
    'What the step is: the key that it was given, or its name and the digest of its arguments.';
COMMENT ON COLUMN holdfast.effects.occurrence IS 'Which use of the same step in a run it is.';
COMMENT ON COLUMN holdfast.effects.fingerprint IS
    'Digest of name and arguments; empty when they have none and a key was given.';
COMMENT ON COLUMN holdfast.effects.status IS
    'started, done (never run again), failed, or unknown: begun, and nobody saw the end.';
COMMENT ON COLUMN holdfast.effects.attempt_id IS 'Only the attempt of this id may finish it.';
COMMENT ON COLUMN holdfast.effects.result IS
    'The manifest of what the step returned, under the key "result" of a state.';
COMMENT ON COLUMN holdfast.effects.begun_sum IS
    'Of place, attempt, name, fingerprint and number of the attempt: whoever reads the row compares.';
COMMENT ON COLUMN holdfast.effects.outcome_sum IS
    'Of place, attempt, status, result, references and error: whoever reads the row compares.';
COMMENT ON COLUMN holdfast.checkpoint_writes.row_sum IS
    'Of all other columns but created_at: whoever reads the row compares.';
COMMENT ON COLUMN holdfast.chunks.digest IS
    'One byte that names the algorithm (18: SHA-256), then the digest of the plain bytes.';
COMMENT ON COLUMN holdfast.chunks.codec IS '0: plain.';

-- Tenants ---------------------------------------------------------------------------------------

-- Names the tenant that the rest of the transaction works for: the rows of the others do not exist for
-- a role that does not own the tables. It ends with the transaction, so nothing of it is left on a
-- pooled connection. It is true, so that it can stand in a condition. Being STABLE and without a
-- column it is asked once, before any table is read, which lets one statement say it and rely on it.
CREATE FUNCTION holdfast.as_tenant(p_tenant text)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF current_setting('holdfast' || '.tenant', true) IS DISTINCT FROM p_tenant THEN
        PERFORM set_config('holdfast' || '.tenant', p_tenant, true);
    END IF;
    RETURN true;
END $$;

-- The policy of every table with a tenant. An equality would do, were it not for the planner: it draws
-- conclusions from two equalities of one column and may look at the setting before a statement has said
-- whom it works for. From an array it does not, and uses the same indexes.
DO $$
DECLARE
    of_tenant regclass;
BEGIN
    FOR of_tenant IN
        SELECT c.oid FROM pg_class AS c
         WHERE c.relnamespace = to_regnamespace(rtrim('holdfast.', '.')) AND c.relkind = 'r'
           AND EXISTS (SELECT FROM pg_attribute AS a
                        WHERE a.attrelid = c.oid AND a.attname = 'tenant')
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', of_tenant);
        EXECUTE format(
            'CREATE POLICY of_tenant ON %s USING (tenant = ANY (ARRAY[('
            'SELECT current_setting(%L, true))]))', of_tenant, 'holdfast' || '.tenant');
    END LOOP;
END $$;

-- References ------------------------------------------------------------------------------------

-- Takes packed references apart. Adding nothing makes one plain copy of a value that may be
-- compressed; without it every substring would decompress the whole again.
CREATE FUNCTION holdfast.refs_in(p_refs bytea)
RETURNS TABLE (ord integer, digest bytea, level integer)
LANGUAGE sql IMMUTABLE AS $$
    SELECT i, substring(run.refs FROM i * 40 + 1 FOR 33), get_byte(run.refs, i * 40 + 33) >> 4
      FROM (SELECT p_refs || ''::bytea AS refs OFFSET 0) AS run,
           generate_series(0, octet_length(run.refs) / 40 - 1) AS i
$$;

-- Every chunk below these references, index chunks too, in one statement. Level by level with plans
-- that are kept: planning one recursive query would take longer than reading the chunks.
CREATE FUNCTION holdfast.chunk_closure(p_tenant text, p_refs bytea)
RETURNS TABLE (digest bytea, codec smallint, data bytea)
LANGUAGE plpgsql STABLE ROWS 100 AS $$
#variable_conflict use_column
DECLARE
    leaves bytea[];
    indexes bytea[];
    below bytea[];
BEGIN
    SELECT coalesce(array_agg(DISTINCT r.digest) FILTER (WHERE r.level = 0), '{}'),
           coalesce(array_agg(DISTINCT r.digest) FILTER (WHERE r.level > 0), '{}')
      INTO leaves, indexes
      FROM holdfast.refs_in(p_refs) AS r;
    -- References have at most eight levels; what claims to have more is not followed for ever.
    FOR depth IN 1 .. 8 LOOP
        EXIT WHEN indexes = '{}';
        RETURN QUERY SELECT k.digest::bytea, k.codec, k.data FROM holdfast.chunks AS k
                      WHERE k.tenant = p_tenant AND k.digest = ANY (indexes);
        SELECT leaves || coalesce(array_agg(DISTINCT r.digest) FILTER (WHERE r.level = 0), '{}'),
               coalesce(array_agg(DISTINCT r.digest) FILTER (WHERE r.level > 0), '{}')
          INTO leaves, below
          FROM holdfast.chunks AS k CROSS JOIN LATERAL holdfast.refs_in(k.data) AS r
         WHERE k.tenant = p_tenant AND k.digest = ANY (indexes);
        indexes := below;
    END LOOP;
    RETURN QUERY SELECT k.digest::bytea, k.codec, k.data FROM holdfast.chunks AS k
                  WHERE k.tenant = p_tenant AND k.digest = ANY (leaves);
END $$;

-- The digests that checkpoints, pending writes and effects need. With p_since only checkpoints and
-- effects whose row may be younger than that transaction are looked at; a row's own transaction may be
-- a subtransaction, which is why the comparison is with the oldest one that was running. Writes are
-- always looked at, since a checkpoint that arrives can adopt an old one. p_without leaves out sessions,
-- or only what p_namespace holds in them, and writes older than p_orphaned_before whose checkpoint is
-- not there do not count. An index chunk is unreadable when it is not there: what was below it is
-- unknown then.
CREATE FUNCTION holdfast.live_digests(
    p_tenant text, p_since xid, p_without text[], p_namespace text, p_orphaned_before timestamptz
)
RETURNS TABLE (digest bytea, unreadable boolean)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE roots (refs) AS (
        SELECT c.refs
          FROM holdfast.session_checkpoints AS c
         WHERE c.tenant = p_tenant AND c.refs <> ''
           AND (p_without IS NULL OR c.session_id <> ALL (p_without)
                OR c.namespace <> p_namespace)
           AND (p_since IS NULL OR age(c.xmin) <= age(p_since))
        UNION ALL
        SELECT w.refs
          FROM holdfast.checkpoint_writes AS w
         WHERE w.tenant = p_tenant AND w.refs <> ''
           AND (p_without IS NULL OR w.session_id <> ALL (p_without)
                OR w.namespace <> p_namespace)
           AND (w.created_at >= p_orphaned_before OR EXISTS (
                SELECT FROM holdfast.session_checkpoints AS c
                 WHERE c.tenant = w.tenant AND c.session_id = w.session_id
                   AND c.namespace = w.namespace AND c.external_id = w.external_id))
        UNION ALL
        SELECT e.refs
          FROM holdfast.effects AS e
         WHERE e.tenant = p_tenant AND e.refs <> ''
           AND (p_without IS NULL OR e.session_id <> ALL (p_without)
                OR p_namespace IS NOT NULL)
           AND (p_since IS NULL OR age(e.xmin) <= age(p_since))
    ), below (digest, level) AS (
        SELECT top.digest, top.level
          FROM roots CROSS JOIN LATERAL holdfast.refs_in(roots.refs) AS top
        UNION
        SELECT child.digest, child.level
          FROM below
          JOIN holdfast.chunks AS k ON k.tenant = p_tenant AND k.digest = below.digest
         CROSS JOIN LATERAL holdfast.refs_in(k.data) AS child
         WHERE below.level > 0
    )
    SELECT below.digest, below.level > 0 AND NOT EXISTS (
               SELECT FROM holdfast.chunks AS k
                WHERE k.tenant = p_tenant AND k.digest = below.digest
                  AND k.codec = 0 AND octet_length(k.data) % 40 = 0)
      FROM below
$$;

-- Reading a state with SQL ----------------------------------------------------------------------

-- The plain content below references, in order.
CREATE FUNCTION holdfast.content_of(p_tenant text, p_refs bytea)
RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
DECLARE
    content bytea;
    unreadable bigint;
BEGIN
    WITH RECURSIVE tree (path, digest, level) AS (
        SELECT ARRAY[top.ord], top.digest, top.level FROM holdfast.refs_in(p_refs) AS top
        UNION ALL
        SELECT tree.path || child.ord, child.digest, child.level
          FROM tree
          JOIN holdfast.chunks AS k ON k.tenant = p_tenant AND k.digest = tree.digest
         CROSS JOIN LATERAL holdfast.refs_in(k.data) AS child
         WHERE tree.level > 0
    )
    SELECT coalesce(string_agg(k.data, ''::bytea ORDER BY tree.path)
                    FILTER (WHERE tree.level = 0), ''::bytea),
           count(*) FILTER (WHERE k.codec IS DISTINCT FROM 0)
      INTO content, unreadable
      FROM tree
      LEFT JOIN holdfast.chunks AS k ON k.tenant = p_tenant AND k.digest = tree.digest;
    IF unreadable > 0 THEN
        RAISE EXCEPTION 'the state cannot be read: % of its chunks are missing or sealed', unreadable
            USING ERRCODE = 'HF008';
    END IF;
    RETURN content;
END $$;

-- Puts the parts where a skeleton refers to them. References stand in objects only and never inside
-- a tagged value, so arrays and other tags are not looked into.
CREATE FUNCTION holdfast.resolve_refs(p_value jsonb, p_parts jsonb[])
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_value IS NULL OR jsonb_typeof(p_value) <> 'object' OR p_value = '{}' THEN
        RETURN p_value;
    ELSIF p_value ->> '$t' = 'ref' THEN
        RETURN holdfast.resolve_refs(p_parts[(p_value ->> 'v')::integer + 1], p_parts);
    ELSIF p_value ? '$t' THEN
        RETURN p_value;
    END IF;
    RETURN (SELECT jsonb_object_agg(e.key, holdfast.resolve_refs(e.value, p_parts))
              FROM jsonb_each(p_value) AS e);
END $$;

-- A checkpoint's whole state. Values that JSON cannot say stay tagged: {"$t": "datetime", "v": ...}.
CREATE FUNCTION holdfast.checkpoint_state(p_id uuid)
RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    stored record;
    part record;
    content bytea;
    parts jsonb[] := '{}';
    at integer := 0;
BEGIN
    SELECT c.tenant, c.state_snapshot, c.refs INTO stored
      FROM holdfast.session_checkpoints AS c WHERE c.id = p_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF stored.state_snapshot ? 'sealed' THEN
        RAISE EXCEPTION
            'the state of checkpoint % is sealed; read it with Holdfast and its key', p_id
            USING ERRCODE = 'HF020';
    END IF;
    IF stored.state_snapshot -> 'v' IS DISTINCT FROM '1' OR NOT stored.state_snapshot ? 'state' THEN
        RAISE EXCEPTION 'the state of checkpoint % is of another version', p_id
            USING ERRCODE = 'HF008';
    END IF;
    FOR part IN
        SELECT rtrim(s.value ->> 0, '+') AS kind, (s.value ->> 1)::integer AS refs
          FROM jsonb_array_elements(stored.state_snapshot -> 'seqs') WITH ORDINALITY AS s (value, ord)
         ORDER BY s.ord
    LOOP
        content := holdfast.content_of(
            stored.tenant, substring(stored.refs FROM at * 40 + 1 FOR part.refs * 40));
        at := at + part.refs;
        parts := parts || CASE
            WHEN part.kind = 'list' THEN
                ('[' || substr(convert_from(content, 'UTF8'), 2) || ']')::jsonb
            WHEN part.kind = 'json' THEN convert_from(content, 'UTF8')::jsonb
            WHEN part.kind = 'str' AND position('\x00'::bytea IN content) = 0 THEN
                to_jsonb(convert_from(content, 'UTF8'))
            ELSE jsonb_build_object(
                '$t', part.kind, 'v', replace(encode(content, 'base64'), E'\n', ''))
        END;
    END LOOP;
    RETURN holdfast.resolve_refs(stored.state_snapshot -> 'state', parts);
END $$;

-- Writing ---------------------------------------------------------------------------------------

-- A client that turned synchronous_commit off does not mean checkpoints: what is acknowledged is on
-- disk. Every statement that changes something calls this, and it holds for its transaction; a setting
-- of the connection would be lost behind a pooler. It is true, so that it can stand in a condition.
CREATE FUNCTION holdfast.durably()
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN true;
END $$;

-- Sealing -----------------------------------------------------------------------------------------

CREATE FUNCTION holdfast.refuse_plaintext()
RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.sealing AS s WHERE s.tenant = NEW.tenant)
        AND position('$sealed' IN coalesce(NEW.metadata::text, '')) = 0
    THEN
        RAISE EXCEPTION 'this store was sealed, and session % was written without the key', NEW.id
            USING ERRCODE = 'HF020';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER sessions_are_sealed BEFORE INSERT ON holdfast.sessions
    FOR EACH ROW EXECUTE FUNCTION holdfast.refuse_plaintext();

-- Seals an empty tenant, or replaces the proof when the key has changed. Returns the proof that holds.
-- Nobody adds a session meanwhile: there is none before, and after it the trigger sees the seal.
CREATE FUNCTION holdfast.seal_tenant(p_tenant text, p_seal text, p_instead_of text)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    standing text;
BEGIN
    PERFORM holdfast.durably(), holdfast.as_tenant(p_tenant);
    SELECT s.seal INTO standing FROM holdfast.sealing AS s WHERE s.tenant = p_tenant FOR UPDATE;
    -- Writers of all tenants wait for this lock, so it is taken once: whoever opens what is sealed needs none.
    IF standing IS NULL AND p_instead_of IS NULL THEN
        LOCK TABLE holdfast.agents, holdfast.sessions IN SHARE ROW EXCLUSIVE MODE;
        SELECT s.seal INTO standing FROM holdfast.sealing AS s WHERE s.tenant = p_tenant FOR UPDATE;
    END IF;
    IF standing IS NOT NULL THEN
        IF standing = p_instead_of THEN
            UPDATE holdfast.sealing AS s SET seal = p_seal WHERE s.tenant = p_tenant;
            RETURN p_seal;
        END IF;
        RETURN standing;
    END IF;
    IF EXISTS (SELECT FROM holdfast.agents AS a WHERE a.tenant = p_tenant)
        OR EXISTS (SELECT FROM holdfast.chunks AS c WHERE c.tenant = p_tenant)
        OR EXISTS (SELECT FROM holdfast.workspace_packs AS w WHERE w.tenant = p_tenant)
    THEN
        RAISE EXCEPTION 'the store holds plain text' USING ERRCODE = 'HF021';
    END IF;
    INSERT INTO holdfast.sealing (tenant, seal) VALUES (p_tenant, p_seal);
    RETURN p_seal;
END $$;

CREATE FUNCTION holdfast.refuse_isolation()
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'checkpoints are written in READ COMMITTED transactions, not %',
        upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF007';
END $$;

-- Puts queue up behind whoever waits here, so a sweep gives up before they feel it.
CREATE FUNCTION holdfast.lock_out_writers(p_tenant text)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    patience text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '5s', true);
    PERFORM pg_advisory_xact_lock(
        'holdfast.chunks'::regclass::oid::integer, hashtext(p_tenant));
    PERFORM set_config('lock_timeout', patience, true);
    RETURN true;
END $$;

-- Whatever adds references holds the tenant's lock shared, the sweep exclusively. Every statement of
-- the functions below must see what was committed before it, so a transaction with one snapshot
-- for all of them is refused. It is true, so that it can stand in a condition. It says itself what
-- as_tenant() and durably() do, and is one expression, which becomes part of whatever calls it: every
-- put does.
CREATE FUNCTION holdfast.lock_tenant(p_tenant text, p_exclusive boolean)
RETURNS boolean
LANGUAGE sql AS $$
    SELECT set_config('holdfast' || '.tenant', p_tenant, true) IS NOT NULL
       AND CASE WHEN current_setting('synchronous_commit') = 'off'
                THEN set_config('synchronous_commit', 'on', true) IS NOT NULL
                ELSE true END
       AND CASE WHEN current_setting('transaction_isolation')
                     NOT IN ('read committed', 'read uncommitted') THEN holdfast.refuse_isolation()
                WHEN p_exclusive THEN holdfast.lock_out_writers(p_tenant)
                ELSE pg_advisory_xact_lock_shared(
                    'holdfast.chunks'::regclass::oid::integer, hashtext(p_tenant)) IS NOT NULL END
$$;

-- Stores an agent unless its id is taken, and tells which.
CREATE FUNCTION holdfast.add_agent(p_tenant text, p_agent jsonb)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    draft holdfast.agents := jsonb_populate_record(NULL::holdfast.agents, p_agent);
    depth integer := 0;
    moment timestamptz := clock_timestamp();
BEGIN
    IF draft.parent_id IS NOT NULL THEN
        SELECT a.depth_level + 1 INTO depth
          FROM holdfast.agents AS a WHERE a.tenant = p_tenant AND a.id = draft.parent_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no agent % to be a parent', draft.parent_id
                USING ERRCODE = 'HF003';
        END IF;
    END IF;
    INSERT INTO holdfast.agents (tenant, id, name, agent_type, status, parent_id, depth_level,
                                 metadata, created_at, updated_at, completed_at)
    VALUES (p_tenant, draft.id, draft.name, draft.agent_type, draft.status, draft.parent_id, depth,
            draft.metadata, moment, moment,
            CASE WHEN draft.status IN ('completed', 'failed', 'terminated') THEN moment END)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- What the tokens of a new session's lease begin at; they rise from there. It is drawn, so that whoever
-- held an erased session does not hold the next one with the same id.
CREATE FUNCTION holdfast.first_token()
RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT floor(random() * 1099511627776)::bigint;
$$;

-- Stores a session unless its id is taken, and tells which; its agent too, if the draft has one.
CREATE FUNCTION holdfast.add_session(p_tenant text, p_session jsonb)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    draft holdfast.sessions := jsonb_populate_record(NULL::holdfast.sessions, p_session);
    moment timestamptz;
    came_with_it boolean := false;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.agents AS a
                    WHERE a.tenant = p_tenant AND a.id = draft.agent_id) THEN
        IF jsonb_typeof(p_session -> 'agent') IS DISTINCT FROM 'object' THEN
            RAISE EXCEPTION 'there is no agent %', draft.agent_id USING ERRCODE = 'HF003';
        END IF;
        -- Another writer may have been faster, which is fine unless it was another tenant's. A statement of its
        -- own sees what that one has committed.
        came_with_it := holdfast.add_agent(p_tenant, p_session -> 'agent');
        IF NOT came_with_it THEN
            IF NOT EXISTS (SELECT FROM holdfast.agents AS a
                            WHERE a.tenant = p_tenant AND a.id = draft.agent_id) THEN
                RAISE EXCEPTION 'an agent % exists already', draft.agent_id
                    USING ERRCODE = 'HF006';
            END IF;
        END IF;
    END IF;
    moment := clock_timestamp();
    INSERT INTO holdfast.sessions (tenant, id, agent_id, agent_type, task_description, continues_id,
                                   forked_from, project_dir, metadata, created_at, updated_at,
                                   lease_owner, lease_token, lease_since, lease_expires_at)
    VALUES (p_tenant, draft.id, draft.agent_id, draft.agent_type, draft.task_description,
            draft.continues_id, draft.forked_from, draft.project_dir, draft.metadata, moment, moment,
            draft.lease_owner, holdfast.first_token(),
            CASE WHEN draft.lease_owner IS NOT NULL THEN moment END,
            CASE WHEN draft.lease_owner IS NOT NULL
                 THEN moment + make_interval(secs => (p_session ->> 'lease_ttl')::double precision)
            END)
    ON CONFLICT (tenant, id) DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    -- The session that was there first has an agent of its own, and nobody would remove this one.
    IF came_with_it THEN
        DELETE FROM holdfast.agents AS a WHERE a.tenant = p_tenant AND a.id = draft.agent_id;
    END IF;
    RETURN false;
END $$;

CREATE FUNCTION holdfast.create_agent(p_tenant text, p_agent jsonb)
RETURNS holdfast.agents
LANGUAGE plpgsql AS $$
DECLARE
    stored holdfast.agents;
BEGIN
    PERFORM holdfast.lock_tenant(p_tenant, false);
    IF NOT holdfast.add_agent(p_tenant, p_agent) THEN
        RAISE EXCEPTION 'an agent % exists already', p_agent ->> 'id' USING ERRCODE = 'HF006';
    END IF;
    SELECT a.* INTO stored FROM holdfast.agents AS a
     WHERE a.tenant = p_tenant AND a.id = (p_agent ->> 'id')::uuid;
    RETURN stored;
END $$;

CREATE FUNCTION holdfast.create_session(p_tenant text, p_session jsonb)
RETURNS holdfast.sessions
LANGUAGE plpgsql AS $$
DECLARE
    stored holdfast.sessions;
BEGIN
    PERFORM holdfast.lock_tenant(p_tenant, false);
    -- Asked first, so that a taken id is named before an agent that does not exist.
    IF EXISTS (SELECT FROM holdfast.sessions AS s
                WHERE s.tenant = p_tenant AND s.id = p_session ->> 'id')
       OR NOT holdfast.add_session(p_tenant, p_session) THEN
        RAISE EXCEPTION 'a session % exists already', p_session ->> 'id' USING ERRCODE = 'HF005';
    END IF;
    SELECT s.* INTO stored FROM holdfast.sessions AS s
     WHERE s.tenant = p_tenant AND s.id = p_session ->> 'id';
    RETURN stored;
END $$;

-- Leases ----------------------------------------------------------------------------------------

-- Whether a session that the caller has locked may be written: with a fence, while its lease has that
-- token; without one, while nobody holds it. A write without a fence ends a lease that has expired, so
-- that its holder, should it wake up, is told. True, so that it can stand in a condition.
CREATE FUNCTION holdfast.check_fence(p_session holdfast.sessions, p_fence bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF p_fence IS NOT NULL THEN
        IF p_session.lease_token <> p_fence THEN
            RAISE EXCEPTION 'session % was taken over by another worker. Nothing was written: '
                'resume it to go on', p_session.id USING ERRCODE = 'HF014';
        END IF;
    ELSIF p_session.lease_owner IS NOT NULL THEN
        IF p_session.lease_expires_at > clock_timestamp() THEN
            RAISE EXCEPTION 'session % is held by % since % and until %. Nothing was written: let '
                'its holder finish, or take it over', p_session.id,
                CASE WHEN p_session.lease_owner LIKE 'process:%:%:%:%'
                     THEN 'process ' || split_part(p_session.lease_owner, ':', 4) || ' on '
                         || split_part(p_session.lease_owner, ':', 2)
                     ELSE p_session.lease_owner END,
                to_char(p_session.lease_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC'),
                to_char(p_session.lease_expires_at AT TIME ZONE 'UTC', 'HH24:MI:SS UTC')
                USING ERRCODE = 'HF015';
        END IF;
        UPDATE holdfast.sessions AS s
           SET lease_owner = NULL, lease_token = s.lease_token + 1, lease_since = NULL,
               lease_expires_at = NULL
         WHERE s.tenant = p_session.tenant AND s.id = p_session.id;
    END IF;
    RETURN true;
END $$;

-- The same for a session that is not locked yet; it is locked here until the transaction ends. Without
-- a fence nothing is asked: this is for what upkeep may do as well.
CREATE FUNCTION holdfast.fenced(p_tenant text, p_session text, p_fence bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    held holdfast.sessions;
BEGIN
    IF p_fence IS NULL THEN
        RETURN true;
    END IF;
    SELECT s.* INTO held FROM holdfast.sessions AS s
     WHERE s.tenant = p_tenant AND s.id = p_session FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session %', p_session USING ERRCODE = 'HF002';
    END IF;
    RETURN holdfast.check_fence(held, p_fence);
END $$;

-- Takes or joins a lease, and says how it stands afterwards. It is given when nobody has it, when it
-- has expired, to its owner, and to whoever takes it from the very holder that p_over says.
CREATE FUNCTION holdfast.acquire_lease(
    p_tenant text, p_session text, p_owner text, p_seconds double precision, p_over bigint,
    OUT granted boolean, OUT held holdfast.sessions, OUT expired boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
BEGIN
    PERFORM holdfast.as_tenant(p_tenant);
    PERFORM holdfast.durably();
    SELECT s.* INTO held FROM holdfast.sessions AS s
     WHERE s.tenant = p_tenant AND s.id = p_session FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no session %', p_session USING ERRCODE = 'HF002';
    END IF;
    moment := clock_timestamp();
    granted := held.lease_owner IS NULL OR held.lease_expires_at <= moment
        OR held.lease_owner = p_owner OR (held.lease_token = p_over) IS TRUE;
    IF NOT granted THEN
        expired := false;
        RETURN;
    END IF;
    IF held.lease_owner IS DISTINCT FROM p_owner THEN
        held.lease_owner := p_owner;
        held.lease_token := held.lease_token + 1;
        held.lease_since := moment;
    END IF;
    held.lease_expires_at := moment + make_interval(secs => p_seconds);
    expired := held.lease_expires_at <= moment;
    UPDATE holdfast.sessions AS s
       SET lease_owner = held.lease_owner, lease_token = held.lease_token,
           lease_since = held.lease_since, lease_expires_at = held.lease_expires_at
     WHERE s.tenant = p_tenant AND s.id = p_session;
END $$;

-- How many of these chunks are not there.
CREATE FUNCTION holdfast.missing_chunks(p_tenant text, p_digests bytea[])
RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT count(*) FROM unnest(p_digests) AS expected (digest)
             WHERE NOT EXISTS (SELECT FROM holdfast.chunks AS k
                                WHERE k.tenant = p_tenant AND k.digest = expected.digest));
END $$;

-- Adds chunks, which arrive in the order of their digests, so that two writers cannot wait for each
-- other, and checks that the others are there. Returns the bytes that are new. One by one: most puts bring
-- one or two, and a statement that takes them all costs more than they do.
CREATE FUNCTION holdfast.add_chunks(
    p_tenant text, p_digests bytea[], p_data bytea[], p_expects bytea[]
)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    added bigint := 0;
    missing bigint;
BEGIN
    FOR place IN 1 .. coalesce(cardinality(p_digests), 0) LOOP
        INSERT INTO holdfast.chunks (tenant, digest, codec, data)
        VALUES (p_tenant, p_digests[place], 0, p_data[place])
        ON CONFLICT (tenant, digest) DO NOTHING;
        IF FOUND THEN
            added := added + octet_length(p_data[place]);
        END IF;
    END LOOP;
    IF cardinality(p_expects) > 0 THEN
        missing := holdfast.missing_chunks(p_tenant, p_expects);
        IF missing > 0 THEN
            RAISE EXCEPTION '% of % expected chunks are not stored', missing, cardinality(p_expects)
                USING ERRCODE = 'HF001';
        END IF;
    END IF;
    RETURN added;
END $$;

-- A link of a hash chain: the one before it, what is added here to a row, and the digest of all that
-- its writer says. Texts are preceded by their sizes. The library does the same.
CREATE FUNCTION holdfast.link_hash(
    p_previous bytea, p_number bigint, p_seq bigint, p_agent uuid, p_stored bigint,
    p_created timestamptz, p_parent text, p_label text, p_metadata jsonb, p_content bytea
)
RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT sha256(p_previous || convert_to(concat_ws(E'\n', p_number, p_seq, p_agent, p_stored,
        to_char(p_created AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        coalesce(octet_length(p_parent)::text, '-'), coalesce(octet_length(p_label)::text, '-'),
        coalesce(octet_length(p_metadata::text)::text, '-'),
        concat(p_parent, p_label, p_metadata::text)), 'UTF8') || p_content)
$$;

-- Leaves tombstones for links of a session that the caller has locked: one for each run of numbers,
-- one with the runs that it touches. A row that had lost its link leaves none.
CREATE FUNCTION holdfast.bury(
    p_tenant text, p_session text, p_numbers bigint[], p_seqs bigint[], p_hashes bytea[]
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    run record;
    following holdfast.chain_tombstones;
BEGIN
    FOR run IN
        SELECT min(link.n) AS first, max(link.n) AS last,
               (array_agg(link.seq ORDER BY link.n DESC))[1] AS seq,
               (array_agg(link.hash ORDER BY link.n DESC))[1] AS hash
          FROM (SELECT l.n, l.seq, l.hash, l.n - row_number() OVER (ORDER BY l.n) AS island
                  FROM unnest(p_numbers, p_seqs, p_hashes) AS l (n, seq, hash)
                 WHERE l.n IS NOT NULL AND l.hash IS NOT NULL) AS link
         GROUP BY link.island ORDER BY 1
    LOOP
        DELETE FROM holdfast.chain_tombstones AS t
         WHERE t.tenant = p_tenant AND t.session_id = p_session AND t.first_number = run.last + 1
        RETURNING t.* INTO following;
        IF FOUND THEN
            run.last := following.last_number;
            run.seq := following.seq;
            run.hash := following.chain_hash;
        END IF;
        UPDATE holdfast.chain_tombstones AS t
           SET last_number = run.last, seq = run.seq, chain_hash = run.hash
         WHERE t.tenant = p_tenant AND t.session_id = p_session
           AND t.last_number = run.first - 1 AND t.first_number = (
                SELECT max(b.first_number) FROM holdfast.chain_tombstones AS b
                 WHERE b.tenant = p_tenant AND b.session_id = p_session
                   AND b.first_number < run.first);
        IF NOT FOUND THEN
            INSERT INTO holdfast.chain_tombstones AS t (
                tenant, session_id, first_number, last_number, seq, chain_hash)
            VALUES (p_tenant, p_session, run.first, run.last, run.seq, run.hash)
            ON CONFLICT (tenant, session_id, first_number) DO UPDATE
               SET last_number = excluded.last_number, seq = excluded.seq,
                   chain_hash = excluded.chain_hash;
        END IF;
    END LOOP;
END $$;

-- Removes checkpoints with the writes that tasks left at them, and returns how many there were. Their
-- sessions are locked first, in the order of their ids: a put holds one before it trims.
CREATE FUNCTION holdfast.remove_checkpoints(
    p_tenant text, p_ids uuid[], p_fence bigint, p_spare_restoring boolean, p_writes boolean
)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    removed bigint;
    owners text[];
    held text;
BEGIN
    PERFORM holdfast.as_tenant(p_tenant);
    PERFORM holdfast.durably();
    owners := ARRAY(
        SELECT DISTINCT c.session_id FROM holdfast.session_checkpoints AS c
         WHERE c.tenant = p_tenant AND c.id = ANY (p_ids) ORDER BY c.session_id);
    FOREACH held IN ARRAY owners LOOP
        -- The newest may be among them; this locks as well.
        UPDATE holdfast.sessions AS s SET newest_id = NULL
         WHERE s.tenant = p_tenant AND s.id = held;
        PERFORM holdfast.fenced(p_tenant, held, p_fence);
    END LOOP;
    -- What was put since, into a session that is not locked, comes after this removal.
    WITH gone AS (
        DELETE FROM holdfast.session_checkpoints AS c
         WHERE c.tenant = p_tenant AND c.id = ANY (p_ids) AND c.session_id = ANY (owners)
           AND (NOT p_spare_restoring OR c.restoring_until IS NULL OR c.restoring_until <= now())
        RETURNING c.session_id, c.namespace, coalesce(c.external_id, c.id::text) AS external_id,
                  c.chain_number, c.seq, c.chain_hash
    ), writes AS (
        DELETE FROM holdfast.checkpoint_writes AS w USING gone
         WHERE p_writes AND w.tenant = p_tenant AND w.session_id = gone.session_id
           AND w.namespace = gone.namespace AND w.external_id = gone.external_id
    ), links AS (
        SELECT gone.session_id, count(*) AS links, array_agg(gone.chain_number) AS numbers,
               array_agg(gone.seq) AS seqs, array_agg(gone.chain_hash) AS hashes
          FROM gone GROUP BY gone.session_id
    ), buried AS MATERIALIZED (
        SELECT links.links,
               holdfast.bury(p_tenant, links.session_id, links.numbers, links.seqs, links.hashes)
          FROM links
    )
    SELECT coalesce(sum(buried.links), 0) INTO removed FROM buried;
    RETURN removed;
END $$;

-- The label itself if its session and namespace do not have it yet, else with the next number. Only
-- who holds the session's row may ask: nobody else can take it meanwhile.
CREATE FUNCTION holdfast.free_label(
    p_tenant text, p_session text, p_namespace text, p_label text
)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    highest bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.session_checkpoints AS c
                    WHERE c.tenant = p_tenant AND c.session_id = p_session
                      AND c.namespace = p_namespace AND c.label = p_label) THEN
        RETURN p_label;
    END IF;
    -- A full stop follows the hyphen in the order of bytes. What is no number does not count.
    SELECT max(substring(c.label FROM length(p_label) + 2)::bigint) INTO highest
      FROM holdfast.session_checkpoints AS c
     WHERE c.tenant = p_tenant AND c.session_id = p_session AND c.namespace = p_namespace
       AND c.label > p_label || '-' AND c.label < p_label || '.'
       AND substring(c.label FROM length(p_label) + 2) ~ '^[0-9]{1,10}$';
    RETURN p_label || '-' || greatest(coalesce(highest, 1), 1) + 1;
END $$;

-- Stores what comes with an effect, if anything does, safe from a sweep until the transaction ends. It
-- is true, so that it can stand in a condition.
CREATE FUNCTION holdfast.keep_chunks(p_tenant text, p_digests bytea[], p_data bytea[])
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(p_digests) > 0 THEN
        PERFORM holdfast.lock_tenant(p_tenant, false);
        PERFORM holdfast.add_chunks(p_tenant, p_digests, p_data, '{}');
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM holdfast.durably();
    END IF;
    RETURN true;
END $$;

-- The newest checkpoint that has not expired. Only who holds the session's row may rely on it.
CREATE FUNCTION holdfast.newest_of(
    p_tenant text, p_session text, p_namespace text, p_present timestamptz
)
RETURNS uuid
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT c.id FROM holdfast.session_checkpoints AS c
             WHERE c.tenant = p_tenant AND c.session_id = p_session
               AND c.namespace = p_namespace
               AND (c.expires_at IS NULL OR c.expires_at > p_present)
             ORDER BY c.seq DESC LIMIT 1);
END $$;

-- The chunks that this transaction has brought go again: the put that did stored nothing else. Nobody
-- can rely on them yet, since nobody has seen them; but for what the transaction itself wrote before, so only
-- a put that is the first to write asks for it. What others leave is swept.
CREATE FUNCTION holdfast.take_back_chunks(p_tenant text, p_digests bytea[])
RETURNS void
LANGUAGE sql AS $$
    DELETE FROM holdfast.chunks AS k
     WHERE k.tenant = p_tenant AND k.digest = ANY (p_digests)
       AND k.xmin = pg_current_xact_id()::xid
$$;

-- Refuses a put to a session that the caller has locked: held by another writer, or sealed and this not.
CREATE FUNCTION holdfast.check_writer(
    p_tenant text, p_session text, p_fence bigint, p_manifest text
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    held holdfast.sessions;
BEGIN
    SELECT s.* INTO held FROM holdfast.sessions AS s
     WHERE s.tenant = p_tenant AND s.id = p_session;
    PERFORM holdfast.check_fence(held, p_fence);
    -- In a store of plain text the mark is but a key that somebody chose.
    IF held.metadata ? '$sealed' AND NOT starts_with(p_manifest, '{"sealed":"')
        AND EXISTS (SELECT FROM holdfast.sealing AS s WHERE s.tenant = p_tenant)
    THEN
        RAISE EXCEPTION 'session % is sealed, and this was written without the key', p_session
            USING ERRCODE = 'HF020';
    END IF;
END $$;

-- What is stored under an id as a document, or null. Another session's is refused.
CREATE FUNCTION holdfast.stored_already(p_tenant text, p_session text, p_id uuid)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    standing holdfast.session_checkpoints;
BEGIN
    SELECT c.* INTO standing FROM holdfast.session_checkpoints AS c WHERE c.id = p_id;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF standing.tenant <> p_tenant OR standing.session_id <> p_session THEN
        RAISE EXCEPTION 'another session has a checkpoint with the id %', p_id
            USING ERRCODE = 'HF004';
    END IF;
    RETURN to_jsonb(standing) - ARRAY['manifest', 'state_snapshot', 'refs']
        || jsonb_build_object('metadata', standing.metadata::text);
END $$;

-- Refuses a draft that its session is not open for, or that says what it relies on when that is not so.
-- Its session is locked, so of all that go on from one checkpoint exactly one gets here first.
CREATE FUNCTION holdfast.admit(
    p_tenant text, p_draft jsonb, p_session text, p_namespace text, p_external_id text,
    p_present timestamptz
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    origin uuid := (p_draft ->> 'consumes')::uuid;
    follows text := p_draft ->> 'follows';
BEGIN
    IF EXISTS (SELECT FROM holdfast.sessions AS s
                WHERE s.tenant = p_tenant AND s.id = p_session AND s.status = 'completed') THEN
        RAISE EXCEPTION 'session % is completed; fork it to go on. Nothing was stored', p_session
            USING ERRCODE = 'HF016';
    END IF;

    IF p_draft ? 'purge_expired' THEN
        PERFORM holdfast.remove_checkpoints(p_tenant, ARRAY(
            SELECT c.id FROM holdfast.session_checkpoints AS c
             WHERE c.tenant = p_tenant AND c.session_id = p_session
               AND c.namespace = p_namespace AND c.expires_at <= p_present), NULL, true, false);
    END IF;

    IF origin IS NOT NULL THEN
        UPDATE holdfast.session_checkpoints AS c SET consumed_at = p_present
         WHERE c.id = origin AND c.tenant = p_tenant AND c.session_id = p_session
           AND c.namespace = p_namespace AND (c.expires_at IS NULL OR c.expires_at > p_present)
           AND c.consumed_at IS NULL;
        IF NOT FOUND THEN
            IF EXISTS (
                SELECT FROM holdfast.session_checkpoints AS c
                 WHERE c.id = origin AND c.tenant = p_tenant AND c.session_id = p_session
                   AND c.namespace = p_namespace
                   AND (c.expires_at IS NULL OR c.expires_at > p_present)) THEN
                RAISE EXCEPTION 'checkpoint % of session % was resumed already. Nothing was stored: '
                    'go on from the session''s newest checkpoint', origin, p_session
                    USING ERRCODE = 'HF012';
            END IF;
            RAISE EXCEPTION 'session % has no checkpoint % to go on from: it was trimmed, deleted or '
                'has expired. Nothing was stored', p_session, origin USING ERRCODE = 'HF013';
        END IF;
    END IF;

    IF follows IS NOT NULL AND follows <> coalesce((
        SELECT coalesce(c.external_id, c.id::text) FROM holdfast.session_checkpoints AS c
         WHERE c.tenant = p_tenant AND c.session_id = p_session
           AND c.namespace = p_namespace AND (c.expires_at IS NULL OR c.expires_at > p_present)
         ORDER BY c.seq DESC LIMIT 1), '') AND NOT EXISTS (
        SELECT FROM holdfast.session_checkpoints AS c
         WHERE c.tenant = p_tenant AND c.session_id = p_session
           AND c.namespace = p_namespace AND c.external_id = p_external_id
           AND (c.expires_at IS NULL OR c.expires_at > p_present)) THEN
        RAISE EXCEPTION 'checkpoint "%" is not the newest of session %, namespace "%": somebody else '
            'went on from there. Nothing was stored: read the newest and repeat the work',
            follows, p_session, p_namespace USING ERRCODE = 'HF017';
    END IF;

    IF p_draft ? 'pack_required' THEN
        PERFORM holdfast.require_packs(p_tenant, ARRAY[p_draft ->> 'workspace_commit']);
    END IF;
END $$;

-- Stores a checkpoint in one round trip, whole or not at all, and trims. A single statement could
-- not: it would keep its snapshot from before the wait for the lock, and trim by it. Its statements are
-- planned once: plans for the very values of the first puts would be no better, and cost more than a put.
-- So does every expression that stands alone, since a transaction prepares each anew: what belongs to a row
-- is said in the statement that reads or writes it, and what is rare is asked for all at once.
-- p_draft has what most drafts leave out, and is then null; p_owner is the document of the session, which is
-- parsed only where there is none yet. The first chunk stands outside the arrays, since most puts bring one
-- and an array is unpacked into memory of its own. Returns what is stored under the id already, as a document, or else
-- what is decided here, in lines: the ids of what was removed, the agent, its place, its bytes, when, its
-- metadata, its parent if that was to be the newest, and its label, which may have several.
CREATE FUNCTION holdfast.put(
    p_tenant text, p_session text, p_namespace text, p_id uuid, p_name text, p_external_id text,
    p_parent text, p_newest boolean, p_type text, p_class text, p_version bigint, p_size bigint,
    p_fence bigint, p_metadata jsonb, p_manifest text, p_refs bytea, p_content bytea,
    p_digest bytea, p_chunk bytea, p_digests bytea[], p_data bytea[], p_expects bytea[],
    p_draft jsonb, p_owner text
)
RETURNS text
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    worker uuid;
    number bigint;
    previous bytea;
    known uuid;
    present timestamptz;
    added bigint := 0;
    alone boolean;
    special boolean;
    stored text;
    removed uuid[];
    position_kept bigint;
    place bigint;
    size bigint;
    moment timestamptz;
    parent text;
    named text;
    link bytea;
    gone uuid[];
    taken record;
    numbers bigint[];
    seqs bigint[];
    hashes bytea[];
BEGIN
    alone := holdfast.lock_tenant(p_tenant, false) AND pg_current_xact_id_if_assigned() IS NULL;

    -- The session's row is the lock that puts wait for. A session that is erased between two of
    -- these statements is made again.
    LOOP
        SELECT s.agent_id, s.chain_length + 1, s.chain_head, s.newest_id, clock_timestamp(),
               s.status = 'completed'
               OR CASE WHEN p_fence IS NULL THEN s.lease_owner IS NOT NULL
                       ELSE s.lease_token <> p_fence END
               OR s.metadata ? '$sealed' AND NOT starts_with(p_manifest, '{"sealed":"')
               OR p_draft ?| ARRAY['purge_expired', 'consumes', 'follows', 'pack_required']
          INTO worker, number, previous, known, present, special
          FROM holdfast.sessions AS s
         WHERE s.tenant = p_tenant AND s.id = p_session FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        IF p_owner IS NULL THEN
            RAISE EXCEPTION 'there is no session %', p_session USING ERRCODE = 'HF002';
        END IF;
        PERFORM holdfast.add_session(p_tenant, p_owner::jsonb);
    END LOOP;
    IF special THEN
        PERFORM holdfast.check_writer(p_tenant, p_session, p_fence, p_manifest);
        -- What is stored already is the answer to a retry, whatever else would refuse it. Where nothing
        -- does, the row itself will find its place taken.
        stored := holdfast.stored_already(p_tenant, p_session, p_id);
        IF stored IS NOT NULL THEN
            RETURN stored;
        END IF;
        PERFORM holdfast.admit(
            p_tenant, p_draft, p_session, p_namespace, p_external_id, present);
    END IF;
    IF p_digest IS NOT NULL THEN
        INSERT INTO holdfast.chunks (tenant, digest, codec, data)
        VALUES (p_tenant, p_digest, 0, p_chunk)
        ON CONFLICT (tenant, digest) DO NOTHING;
        IF FOUND THEN
            added := octet_length(p_chunk);
        END IF;
        IF p_digests IS NOT NULL THEN
            added := added + holdfast.add_chunks(p_tenant, p_digests, p_data, NULL);
        END IF;
    END IF;
    IF p_expects IS NOT NULL AND holdfast.missing_chunks(p_tenant, p_expects) > 0 THEN
        stored := holdfast.stored_already(p_tenant, p_session, p_id);
        IF stored IS NOT NULL THEN
            IF alone THEN
                PERFORM holdfast.take_back_chunks(p_tenant, p_digests || p_digest);
            END IF;
            RETURN stored;
        END IF;
        -- Refuses it, unless another writer has brought them since.
        PERFORM holdfast.add_chunks(p_tenant, NULL, NULL, p_expects);
    END IF;

    -- What stands in the way is looked for only when something does.
    LOOP
        INSERT INTO holdfast.session_checkpoints AS c (
            tenant, id, external_id, session_id, agent_id, namespace, seq, parent_id, name, label,
            description, checkpoint_type, retention_class, state_snapshot, manifest, refs, run_id,
            version, size_bytes, stored_bytes, chain_number, chain_previous, chain_hash, git_branch,
            git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at, metadata,
            created_at)
        SELECT p_tenant, p_id, p_external_id, p_session, worker, p_namespace, drawn.seq,
               drawn.parent_id, p_name, drawn.label, p_draft ->> 'description', p_type, p_class,
               p_manifest::jsonb, p_manifest, p_refs, p_draft ->> 'run_id', p_version, p_size,
               drawn.stored_bytes, number, previous,
               holdfast.link_hash(
                   previous, number, drawn.seq, worker, drawn.stored_bytes, drawn.created_at,
                   drawn.parent_id, drawn.label, p_metadata, p_content),
               p_draft ->> 'git_branch', p_draft ->> 'git_commit',
               (p_draft ? 'git_uncommitted') IS TRUE, p_draft ->> 'workspace_commit',
               (p_draft ? 'not_resumable') IS NOT TRUE, (p_draft ? 'pinned') IS TRUE,
               (p_draft ->> 'expires_at')::timestamptz, p_metadata, drawn.created_at
          FROM (SELECT coalesce(position_kept, nextval('holdfast.session_checkpoints_seq_seq'))
                           AS seq,
                       CASE WHEN p_newest IS NOT TRUE THEN p_parent
                            WHEN known IS NOT NULL AND p_namespace = '' THEN known::text
                            ELSE holdfast.newest_of(
                                p_tenant, p_session, p_namespace, present)::text
                       END AS parent_id,
                       CASE WHEN p_draft ? 'label' THEN holdfast.free_label(
                            p_tenant, p_session, p_namespace, p_draft ->> 'label')
                       END AS label,
                       octet_length(p_manifest) + octet_length(p_refs) + added AS stored_bytes,
                       coalesce((p_draft ->> 'created_at')::timestamptz, present) AS created_at
               ) AS drawn
        ON CONFLICT DO NOTHING
        RETURNING c.seq, c.stored_bytes, c.created_at, c.parent_id, c.label, c.chain_hash
             INTO place, size, moment, parent, named, link;
        EXIT WHEN FOUND;

        stored := holdfast.stored_already(p_tenant, p_session, p_id);
        IF stored IS NOT NULL THEN
            IF alone THEN
                PERFORM holdfast.take_back_chunks(p_tenant, p_digests || p_digest);
            END IF;
            RETURN stored;
        END IF;
        -- What has expired is gone for everybody who asks, so it stands in nobody's way.
        FOR taken IN
            SELECT c.id, c.seq, c.chain_number, c.chain_hash,
                   (c.expires_at <= present) IS TRUE AS expired,
                   (c.external_id = p_external_id) IS TRUE AS same_external
              FROM holdfast.session_checkpoints AS c
             WHERE c.tenant = p_tenant AND c.session_id = p_session AND c.namespace = p_namespace
               AND c.name = p_name
            UNION
            SELECT c.id, c.seq, c.chain_number, c.chain_hash, (c.expires_at <= present) IS TRUE, true
              FROM holdfast.session_checkpoints AS c
             WHERE c.tenant = p_tenant AND c.session_id = p_session AND c.namespace = p_namespace
               AND c.external_id = p_external_id
             ORDER BY seq
        LOOP
            IF NOT taken.expired THEN
                IF (p_draft ? 'replace') IS NOT TRUE THEN
                    RAISE EXCEPTION 'session % has a checkpoint with the % % already. Nothing was '
                        'stored: choose another, or replace it with overwrite=True (on the command '
                        'line: --overwrite)', p_session,
                        CASE WHEN taken.same_external THEN 'external id' ELSE 'name' END,
                        CASE WHEN taken.same_external THEN p_external_id ELSE p_name END
                        USING ERRCODE = 'HF004';
                END IF;
                IF taken.same_external THEN
                    position_kept := taken.seq;
                END IF;
            END IF;
            DELETE FROM holdfast.session_checkpoints AS c WHERE c.id = taken.id;
            known := NULL;
            PERFORM holdfast.bury(p_tenant, p_session, ARRAY[taken.chain_number],
                                  ARRAY[taken.seq], ARRAY[taken.chain_hash]);
            removed := removed || taken.id;
        END LOOP;
        IF NOT FOUND THEN
            -- Another tenant's, which a role that does not own the tables cannot see.
            RAISE EXCEPTION 'another session has a checkpoint with the id %', p_id
                USING ERRCODE = 'HF004';
        END IF;
    END LOOP;

    IF p_draft ?| ARRAY['keep', 'max_age'] THEN
        IF p_draft ? 'keep' THEN
            gone := ARRAY(
                SELECT c.id FROM holdfast.session_checkpoints AS c
                 WHERE c.tenant = p_tenant AND c.session_id = p_session AND c.namespace = p_namespace
                   AND c.retention_class = p_class
                   AND NOT c.pinned AND (c.expires_at IS NULL OR c.expires_at > present)
                 ORDER BY c.seq DESC OFFSET (p_draft -> 'keep')::bigint);
        END IF;
        IF p_draft ? 'max_age' THEN
            gone := gone || ARRAY(
                SELECT c.id
                  FROM jsonb_each_text(p_draft -> 'max_age') AS rule
                  JOIN holdfast.session_checkpoints AS c
                    ON c.tenant = p_tenant AND c.session_id = p_session AND c.namespace = p_namespace
                   AND c.retention_class = rule.key
                 WHERE NOT c.pinned AND (c.expires_at IS NULL OR c.expires_at > present)
                   AND c.created_at < present - make_interval(secs => rule.value::double precision));
        END IF;
        IF gone <> '{}' THEN
            WITH trimmed AS (
                DELETE FROM holdfast.session_checkpoints AS c
                 WHERE c.id = ANY (gone)
                   AND (c.restoring_until IS NULL OR c.restoring_until <= present)
                   AND c.id IS DISTINCT FROM (
                        SELECT n.id FROM holdfast.session_checkpoints AS n
                         WHERE n.tenant = p_tenant AND n.session_id = p_session
                           AND n.namespace = p_namespace AND n.resumable
                           AND n.quarantined_at IS NULL
                           AND (n.expires_at IS NULL OR n.expires_at > present)
                         ORDER BY n.seq DESC LIMIT 1)
                RETURNING c.id, c.seq, c.chain_number, c.chain_hash
            )
            SELECT removed || coalesce(array_agg(trimmed.id ORDER BY trimmed.seq), '{}'),
                   array_agg(trimmed.chain_number), array_agg(trimmed.seq),
                   array_agg(trimmed.chain_hash)
              INTO removed, numbers, seqs, hashes
              FROM trimmed;
            PERFORM holdfast.bury(p_tenant, p_session, numbers, seqs, hashes);
        END IF;
    END IF;

    UPDATE holdfast.sessions AS s
       SET updated_at = present, chain_length = number, chain_head = link,
           newest_id = CASE WHEN p_namespace <> '' THEN s.newest_id
                            WHEN p_draft IS NULL THEN p_id
                            WHEN position_kept IS NULL AND NOT p_draft ? 'expires_at'
                                 AND (p_id = ANY (removed)) IS NOT TRUE THEN p_id END
     WHERE s.tenant = p_tenant AND s.id = p_session;
    RETURN format(
        E'%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s', array_to_string(removed, ' '), worker, place, size,
        extract(epoch FROM moment), p_metadata, CASE WHEN p_newest THEN parent END, named);
END $$;

-- Packs of workspaces. A pack is stored only when those that it needs are, and a sweep keeps what a
-- kept pack needs, so every stored pack can be applied.

-- The packs that some commits are made of, without those that are there already.
CREATE FUNCTION holdfast.packs_below(p_tenant text, p_commits text[], p_have text[])
RETURNS TABLE (commit_id text, needs jsonb)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE below (commit_id) AS (
        SELECT wanted.commit_id FROM unnest(p_commits) AS wanted (commit_id)
        UNION
        SELECT base.commit_id
          FROM below
          JOIN holdfast.workspace_packs AS w
            ON w.tenant = p_tenant AND w.commit_id = below.commit_id
         CROSS JOIN LATERAL jsonb_array_elements_text(w.needs) AS base (commit_id)
         WHERE base.commit_id <> ALL (p_have)
    )
    SELECT w.commit_id, w.needs
      FROM below
      JOIN holdfast.workspace_packs AS w
        ON w.tenant = p_tenant AND w.commit_id = below.commit_id
$$;

CREATE FUNCTION holdfast.require_packs(p_tenant text, p_commits text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    missing text := (
        SELECT min(wanted.commit_id) FROM unnest(p_commits) AS wanted (commit_id)
         WHERE NOT EXISTS (SELECT FROM holdfast.workspace_packs AS w
                            WHERE w.tenant = p_tenant AND w.commit_id = wanted.commit_id));
BEGIN
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'the workspace pack of commit % is not stored. Nothing was stored: put '
            'that pack and repeat it', missing USING ERRCODE = 'HF010';
    END IF;
END $$;

-- Stores a pack, or only says that it is still of use when it is there, and tells which.
CREATE FUNCTION holdfast.put_pack(
    p_tenant text, p_commit text, p_needs text[], p_data bytea, p_replace boolean
)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM holdfast.lock_tenant(p_tenant, false);
    IF NOT p_replace THEN
        UPDATE holdfast.workspace_packs AS w SET touched_at = clock_timestamp()
         WHERE w.tenant = p_tenant AND w.commit_id = p_commit;
        IF FOUND THEN
            RETURN false;
        END IF;
    END IF;
    PERFORM holdfast.require_packs(p_tenant, p_needs);
    IF EXISTS (SELECT FROM holdfast.packs_below(p_tenant, p_needs, '{}') AS b
                WHERE b.commit_id = p_commit) THEN
        RAISE EXCEPTION 'the pack of commit % needs packs that need it. Nothing was stored',
            p_commit USING ERRCODE = 'HF011';
    END IF;
    INSERT INTO holdfast.workspace_packs AS w (tenant, commit_id, needs, touched_at, data)
    VALUES (p_tenant, p_commit, to_jsonb(p_needs), clock_timestamp(), p_data)
    ON CONFLICT (tenant, commit_id) DO UPDATE
       SET needs = excluded.needs, touched_at = excluded.touched_at, data = excluded.data
     WHERE p_replace;
    RETURN FOUND;
END $$;

-- Removes packs that neither a checkpoint nor a pack that stays needs: of p_commits, or of all that
-- were last put before p_before. A put that requires a pack looks for it under the lock that is taken
-- here exclusively, so it finds it and keeps it, or is refused.
CREATE FUNCTION holdfast.remove_packs(
    p_tenant text, p_commits text[], p_before timestamptz, p_dry_run boolean,
    OUT packs bigint, OUT bytes bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    doomed text[];
BEGIN
    PERFORM holdfast.as_tenant(p_tenant);
    IF NOT p_dry_run THEN
        PERFORM holdfast.lock_tenant(p_tenant, true);
    END IF;
    WITH stored AS MATERIALIZED (
        SELECT w.commit_id,
               CASE WHEN p_commits IS NULL THEN w.touched_at < p_before
                    ELSE w.commit_id = ANY (p_commits) END AS may_go
          FROM holdfast.workspace_packs AS w WHERE w.tenant = p_tenant
    ), roots AS (
        SELECT s.commit_id FROM stored AS s WHERE NOT s.may_go
        UNION
        SELECT c.workspace_commit FROM holdfast.session_checkpoints AS c
         WHERE c.tenant = p_tenant AND c.workspace_commit IS NOT NULL
    )
    SELECT coalesce(array_agg(s.commit_id), '{}') INTO doomed
      FROM stored AS s
     WHERE s.may_go AND s.commit_id NOT IN (
            SELECT b.commit_id
              FROM holdfast.packs_below(
                       p_tenant, ARRAY(SELECT r.commit_id FROM roots AS r), '{}') AS b);
    SELECT count(*), coalesce(sum(octet_length(w.data)), 0) INTO packs, bytes
      FROM holdfast.workspace_packs AS w
     WHERE w.tenant = p_tenant AND w.commit_id = ANY (doomed);
    IF NOT p_dry_run THEN
        DELETE FROM holdfast.workspace_packs AS w
         WHERE w.tenant = p_tenant AND w.commit_id = ANY (doomed);
    END IF;
END $$;

-- Stores pending writes in one round trip. p_writes holds the small columns of each, p_manifests and
-- p_refs and p_sums the rest in the same order.
CREATE FUNCTION holdfast.put_writes(
    p_tenant text, p_session jsonb, p_namespace text, p_external_id text, p_writes jsonb,
    p_manifests text[], p_refs bytea[], p_sums bytea[], p_digests bytea[], p_data bytea[],
    p_expects bytea[], p_fence bigint
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    owner holdfast.sessions;
    draft record;
BEGIN
    PERFORM holdfast.lock_tenant(p_tenant, false);
    LOOP
        -- Holds the session against being erased or taken over until the writes are in.
        SELECT s.* INTO owner FROM holdfast.sessions AS s
         WHERE s.tenant = p_tenant AND s.id = p_session ->> 'id' FOR SHARE;
        EXIT WHEN FOUND;
        PERFORM holdfast.add_session(p_tenant, p_session);
    END LOOP;
    PERFORM holdfast.check_fence(owner, p_fence);
    PERFORM holdfast.add_chunks(p_tenant, p_digests, p_data, p_expects);
    FOR draft IN
        SELECT w.value ->> 'task_id' AS task_id, (w.value ->> 'idx')::bigint AS idx,
               w.value ->> 'task_path' AS task_path, w.value ->> 'channel' AS channel,
               (w.value -> 'replace')::boolean AS replaces, w.ord
          FROM jsonb_array_elements(p_writes) WITH ORDINALITY AS w (value, ord)
         ORDER BY 1, 2, w.ord
    LOOP
        INSERT INTO holdfast.checkpoint_writes AS w (
            tenant, session_id, namespace, external_id, task_id, idx, task_path, channel, manifest,
            refs, created_at, row_sum)
        VALUES (
            p_tenant, p_session ->> 'id', p_namespace, p_external_id, draft.task_id, draft.idx,
            draft.task_path, draft.channel, p_manifests[draft.ord], p_refs[draft.ord],
            clock_timestamp(), p_sums[draft.ord])
        ON CONFLICT (tenant, session_id, namespace, external_id, task_id, idx) DO UPDATE
           SET task_path = excluded.task_path, channel = excluded.channel,
               manifest = excluded.manifest, refs = excluded.refs,
               created_at = excluded.created_at, row_sum = excluded.row_sum
         WHERE draft.replaces;
    END LOOP;
END $$;

-- Copies checkpoints into a new session. p_new_ids are the ids of the copies of p_ids, in the same
-- order. A copy was never restored itself. p_contents are the digests of what the copies say, for the
-- chain of the new session.
CREATE FUNCTION holdfast.copy_session(
    p_tenant text, p_source text, p_draft jsonb, p_ids uuid[], p_new_ids uuid[],
    p_contents bytea[]
)
RETURNS holdfast.sessions
LANGUAGE plpgsql AS $$
DECLARE
    stored holdfast.sessions;
    source record;
    place bigint;
    size bigint;
    link bytea;
BEGIN
    stored := holdfast.create_session(p_tenant, p_draft);
    FOR source IN
        SELECT c.*, pair.new_id, pair.content,
               coalesce(parent.new_id::text, c.parent_id) AS new_parent_id
          FROM unnest(p_ids, p_new_ids, p_contents) AS pair (id, new_id, content)
          JOIN holdfast.session_checkpoints AS c
            ON c.tenant = p_tenant AND c.session_id = p_source AND c.id = pair.id
          LEFT JOIN unnest(p_ids, p_new_ids) AS parent (id, new_id)
            ON parent.id::text = c.parent_id
         ORDER BY c.seq
    LOOP
        place := nextval('holdfast.session_checkpoints_seq_seq');
        size := octet_length(source.manifest) + octet_length(source.refs);
        link := holdfast.link_hash(
            stored.chain_head, stored.chain_length + 1, place, stored.agent_id, size,
            source.created_at, source.new_parent_id, source.label, source.metadata,
            source.content);
        INSERT INTO holdfast.session_checkpoints (
            tenant, id, external_id, session_id, agent_id, namespace, seq, parent_id, name, label,
            description, checkpoint_type, retention_class, state_snapshot, manifest, refs, run_id,
            version, size_bytes, stored_bytes, chain_number, chain_previous, chain_hash,
            git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned,
            consumed_at, quarantined_at, expires_at, metadata, created_at)
        VALUES (
            p_tenant, source.new_id, source.external_id, stored.id, stored.agent_id,
            source.namespace, place, source.new_parent_id, source.name, source.label,
            source.description, source.checkpoint_type, source.retention_class,
            source.state_snapshot, source.manifest, source.refs, source.run_id, source.version,
            source.size_bytes, size, stored.chain_length + 1, stored.chain_head, link,
            source.git_branch, source.git_commit, source.git_uncommitted, source.workspace_commit,
            source.resumable, source.pinned, source.consumed_at, source.quarantined_at,
            source.expires_at, source.metadata, source.created_at);
        stored.chain_length := stored.chain_length + 1;
        stored.chain_head := link;
    END LOOP;
    UPDATE holdfast.sessions AS s
       SET chain_length = stored.chain_length, chain_head = stored.chain_head
     WHERE s.tenant = p_tenant AND s.id = stored.id;
    RETURN stored;
END $$;

-- The long look of a sweep, without any lock: which chunks nothing needs once p_without is gone, which
-- digests are needed, and whether an index chunk is unreadable.
CREATE FUNCTION holdfast.find_dead(
    p_tenant text, p_without text[], p_namespace text, p_orphaned_before timestamptz,
    OUT dead bytea[], OUT live bytea[], OUT broken boolean
)
LANGUAGE sql STABLE AS $$
    WITH needed AS MATERIALIZED (
        SELECT l.digest, l.unreadable
          FROM holdfast.live_digests(
                   p_tenant, NULL, p_without, p_namespace, p_orphaned_before) AS l
    )
    SELECT ARRAY(SELECT k.digest FROM holdfast.chunks AS k WHERE k.tenant = p_tenant
                 EXCEPT SELECT needed.digest FROM needed),
           ARRAY(SELECT needed.digest FROM needed),
           EXISTS (SELECT FROM needed WHERE needed.unreadable)
$$;

-- The short end of a sweep, under the tenant's lock. A writer who remembers an index chunk asks only
-- for that one, so an index chunk must never outlive what is below it. That is why all dead chunks go
-- at once, also those that came since the look: a new index over old chunks may be dead again already.
CREATE FUNCTION holdfast.remove_dead(
    p_tenant text, p_dead bytea[], p_live bytea[], p_since xid, p_orphaned_before timestamptz,
    OUT chunks bigint, OUT bytes bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    young bytea[] := ARRAY(
        SELECT k.digest FROM holdfast.chunks AS k
         WHERE k.tenant = p_tenant AND age(k.xmin) <= age(p_since));
    doomed bytea[];
BEGIN
    IF young <> '{}' THEN
        young := ARRAY(SELECT unnest(young) EXCEPT SELECT unnest(p_live));
    END IF;
    doomed := ARRAY(
        SELECT unnest(p_dead || young)
        EXCEPT
        SELECT l.digest
          FROM holdfast.live_digests(p_tenant, p_since, NULL, NULL, p_orphaned_before) AS l);
    WITH freed AS (
        DELETE FROM holdfast.chunks AS k
         WHERE k.tenant = p_tenant AND k.digest = ANY (doomed)
        RETURNING pg_column_size(k.data) AS size
    )
    SELECT count(*), coalesce(sum(freed.size), 0) INTO chunks, bytes FROM freed;
END $$;

-- The packs that the files of some sessions are made of.
CREATE FUNCTION holdfast.snapshots_of(p_tenant text, p_sessions text[])
RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT b.commit_id
          FROM holdfast.packs_below(p_tenant, ARRAY(
                   SELECT DISTINCT c.workspace_commit FROM holdfast.session_checkpoints AS c
                    WHERE c.tenant = p_tenant AND c.session_id = ANY (p_sessions)
                      AND c.workspace_commit IS NOT NULL), '{}') AS b)
$$;

-- Lets go of what other rows say of erased sessions: that one went on from another. An agent whom nobody
-- needs any more goes with them, and then perhaps the one above it. Needs the tenant's lock.
CREATE FUNCTION holdfast.forget_sessions(p_tenant text, p_sessions text[], p_agents uuid[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.sessions AS s SET continues_id = NULL
     WHERE s.tenant = p_tenant AND s.continues_id = ANY (p_sessions);
    LOOP
        DELETE FROM holdfast.agents AS a
         WHERE a.tenant = p_tenant AND a.id = ANY (p_agents)
           AND NOT EXISTS (SELECT FROM holdfast.sessions AS s
                            WHERE s.tenant = p_tenant AND s.agent_id = a.id)
           AND NOT EXISTS (SELECT FROM holdfast.session_checkpoints AS c
                            WHERE c.tenant = p_tenant AND c.agent_id = a.id)
           AND NOT EXISTS (SELECT FROM holdfast.agents AS child
                            WHERE child.tenant = p_tenant AND child.parent_id = a.id);
        EXIT WHEN NOT FOUND;
    END LOOP;
END $$;

-- Whether an agent is one of those whose ids begin so: "" stands for nobody.
CREATE FUNCTION holdfast.is_of(p_agent uuid, p_prefix text)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_prefix <> '' AND starts_with(p_agent::text, lower(p_prefix))
$$;

-- Refuses to erase what is another agent's. Needs the tenant's lock.
CREATE FUNCTION holdfast.refuse_foreign(p_tenant text, p_sessions text[], p_prefix text)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    foreign_one record;
BEGIN
    SELECT s.id, s.agent_type INTO foreign_one FROM holdfast.sessions AS s
     WHERE s.tenant = p_tenant AND s.id = ANY (p_sessions)
       AND holdfast.is_of(s.agent_id, p_prefix) IS NOT TRUE
     ORDER BY s.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'session % belongs to another agent, of the type %. Nothing was erased: do it '
            'where the session was made, or with `holdfast erase`', foreign_one.id,
            foreign_one.agent_type USING ERRCODE = 'HF018';
    END IF;
END $$;

-- Removes chunks that nothing refers to; with p_session it first erases that session, with p_prefix only
-- if the id of its agent begins so. The long look happens without the lock. Under it follows what has become referenced
-- since, and then the whole removal, so nobody ever sees an index chunk without the chunks below it.
CREATE FUNCTION holdfast.sweep(
    p_tenant text, p_session text, p_dry_run boolean, p_prefix text DEFAULT NULL,
    OUT chunks bigint, OUT bytes bigint, OUT writes bigint, OUT erased boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    since xid := pg_snapshot_xmin(pg_current_snapshot())::xid;
    orphaned_before timestamptz := clock_timestamp() - interval '1 day';
    look record;
    snapshots text[];
    worker uuid;
BEGIN
    PERFORM holdfast.as_tenant(p_tenant);
    chunks := 0;
    bytes := 0;
    writes := 0;
    erased := false;
    IF p_session IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM holdfast.sessions AS s
                        WHERE s.tenant = p_tenant AND s.id = p_session) THEN
            RETURN;
        END IF;
        orphaned_before := '-infinity';
    END IF;
    SELECT f.* INTO look
      FROM holdfast.find_dead(
               p_tenant, CASE WHEN p_session IS NOT NULL THEN ARRAY[p_session] END, NULL,
               orphaned_before) AS f;
    IF look.broken AND p_session IS NULL THEN
        RAISE EXCEPTION 'an index chunk cannot be read, so what lies below it is unknown'
            USING ERRCODE = 'HF009';
    END IF;

    IF p_dry_run THEN
        SELECT count(*), coalesce(sum(pg_column_size(k.data)), 0) INTO chunks, bytes
          FROM holdfast.chunks AS k
         WHERE k.tenant = p_tenant AND k.digest = ANY (look.dead);
        SELECT count(*) INTO writes
          FROM holdfast.checkpoint_writes AS w
         WHERE w.tenant = p_tenant AND w.created_at < orphaned_before
           AND NOT EXISTS (
                SELECT FROM holdfast.session_checkpoints AS c
                 WHERE c.tenant = w.tenant AND c.session_id = w.session_id
                   AND c.namespace = w.namespace AND c.external_id = w.external_id);
        RETURN;
    END IF;

    PERFORM holdfast.lock_tenant(p_tenant, true);
    IF p_session IS NOT NULL THEN
        IF p_prefix IS NOT NULL THEN
            PERFORM holdfast.refuse_foreign(p_tenant, ARRAY[p_session], p_prefix);
        END IF;
        snapshots := holdfast.snapshots_of(p_tenant, ARRAY[p_session]);
        DELETE FROM holdfast.sessions AS s WHERE s.tenant = p_tenant AND s.id = p_session
        RETURNING s.agent_id INTO worker;
        erased := FOUND;
        PERFORM holdfast.forget_sessions(p_tenant, ARRAY[p_session], ARRAY[worker]);
        IF snapshots <> '{}' THEN
            PERFORM holdfast.remove_packs(p_tenant, snapshots, NULL, false);
        END IF;
    END IF;
    DELETE FROM holdfast.checkpoint_writes AS w
     WHERE w.tenant = p_tenant AND w.created_at < orphaned_before
       AND NOT EXISTS (
            SELECT FROM holdfast.session_checkpoints AS c
             WHERE c.tenant = w.tenant AND c.session_id = w.session_id
               AND c.namespace = w.namespace AND c.external_id = w.external_id);
    GET DIAGNOSTICS writes = ROW_COUNT;
    IF NOT look.broken THEN
        SELECT r.chunks, r.bytes INTO chunks, bytes
          FROM holdfast.remove_dead(p_tenant, look.dead, look.live, since, orphaned_before) AS r;
    END IF;
END $$;

-- Erases what one namespace holds in some threads, and at once all content that nothing refers to
-- then, what was trimmed before included. A thread that is left empty goes too, if its agent's id begins with
-- p_prefix. The namespace '' is a session's own line of work, which another agent may not erase. Below an
-- unreadable index chunk anything may be needed: then all chunks stay, as when a session is erased.
CREATE FUNCTION holdfast.erase_threads(
    p_tenant text, p_threads text[], p_namespace text, p_prefix text
)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    since xid := pg_snapshot_xmin(pg_current_snapshot())::xid;
    look record;
    erased bigint;
    snapshots text[];
    emptied_threads text[];
    workers uuid[];
BEGIN
    PERFORM holdfast.as_tenant(p_tenant);
    IF NOT EXISTS (SELECT FROM holdfast.sessions AS s
                    WHERE s.tenant = p_tenant AND s.id = ANY (p_threads)) THEN
        RETURN 0;
    END IF;
    SELECT f.* INTO look
      FROM holdfast.find_dead(p_tenant, p_threads, p_namespace, '-infinity') AS f;

    PERFORM holdfast.lock_tenant(p_tenant, true);
    IF p_namespace = '' THEN
        PERFORM holdfast.refuse_foreign(p_tenant, p_threads, p_prefix);
    END IF;
    snapshots := holdfast.snapshots_of(p_tenant, p_threads);
    erased := holdfast.remove_checkpoints(
        p_tenant, ARRAY(
            SELECT c.id FROM holdfast.session_checkpoints AS c
             WHERE c.tenant = p_tenant AND c.session_id = ANY (p_threads)
               AND c.namespace = p_namespace), NULL, false, false);
    IF snapshots <> '{}' THEN
        PERFORM holdfast.remove_packs(p_tenant, snapshots, NULL, false);
    END IF;
    DELETE FROM holdfast.checkpoint_writes AS w
     WHERE w.tenant = p_tenant AND w.session_id = ANY (p_threads) AND w.namespace = p_namespace;
    WITH emptied AS (
        DELETE FROM holdfast.sessions AS s
         WHERE s.tenant = p_tenant AND s.id = ANY (p_threads) AND holdfast.is_of(s.agent_id, p_prefix)
           AND NOT EXISTS (SELECT FROM holdfast.session_checkpoints AS c
                            WHERE c.tenant = s.tenant AND c.session_id = s.id)
           AND NOT EXISTS (SELECT FROM holdfast.checkpoint_writes AS w
                            WHERE w.tenant = s.tenant AND w.session_id = s.id)
           AND NOT EXISTS (SELECT FROM holdfast.effects AS e
                            WHERE e.tenant = s.tenant AND e.session_id = s.id)
        RETURNING s.id, s.agent_id
    )
    SELECT array_agg(emptied.id), array_agg(emptied.agent_id) INTO emptied_threads, workers
      FROM emptied;
    PERFORM holdfast.forget_sessions(p_tenant, emptied_threads, workers);
    IF NOT look.broken THEN
        PERFORM holdfast.remove_dead(p_tenant, look.dead, look.live, since, '-infinity');
    END IF;
    RETURN erased;
END $$;

-- Erases all that a tenant has, and returns how many sessions it had.
CREATE FUNCTION holdfast.erase_tenant(p_tenant text)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    erased bigint;
BEGIN
    PERFORM holdfast.lock_tenant(p_tenant, true);
    DELETE FROM holdfast.sessions AS s WHERE s.tenant = p_tenant;
    GET DIAGNOSTICS erased = ROW_COUNT;
    DELETE FROM holdfast.agents AS a WHERE a.tenant = p_tenant;
    DELETE FROM holdfast.chunks AS k WHERE k.tenant = p_tenant;
    DELETE FROM holdfast.workspace_packs AS w WHERE w.tenant = p_tenant;
    RETURN erased;
END $$;

-- DOWN

DROP FUNCTION holdfast.erase_tenant(text);
DROP FUNCTION holdfast.erase_threads(text, text[], text, text);
DROP FUNCTION holdfast.sweep(text, text, boolean, text);
DROP FUNCTION holdfast.refuse_foreign(text, text[], text);
DROP FUNCTION holdfast.is_of(uuid, text);
DROP FUNCTION holdfast.forget_sessions(text, text[], uuid[]);
DROP FUNCTION holdfast.snapshots_of(text, text[]);
DROP FUNCTION holdfast.remove_dead(text, bytea[], bytea[], xid, timestamptz);
DROP FUNCTION holdfast.find_dead(text, text[], text, timestamptz);
DROP FUNCTION holdfast.copy_session(text, text, jsonb, uuid[], uuid[], bytea[]);
DROP FUNCTION holdfast.put_writes(
    text, jsonb, text, text, jsonb, text[], bytea[], bytea[], bytea[], bytea[], bytea[], bigint);
DROP FUNCTION holdfast.remove_packs(text, text[], timestamptz, boolean);
DROP FUNCTION holdfast.put_pack(text, text, text[], bytea, boolean);
DROP FUNCTION holdfast.require_packs(text, text[]);
DROP FUNCTION holdfast.packs_below(text, text[], text[]);
DROP FUNCTION holdfast.put(
    text, text, text, uuid, text, text, text, boolean, text, text, bigint, bigint, bigint, jsonb, text,
    bytea, bytea, bytea, bytea, bytea[], bytea[], bytea[], jsonb, text);
DROP FUNCTION holdfast.admit(text, jsonb, text, text, text, timestamptz);
DROP FUNCTION holdfast.take_back_chunks(text, bytea[]);
DROP FUNCTION holdfast.stored_already(text, text, uuid);
DROP FUNCTION holdfast.check_writer(text, text, bigint, text);
DROP FUNCTION holdfast.newest_of(text, text, text, timestamptz);
DROP FUNCTION holdfast.free_label(text, text, text, text);
DROP FUNCTION holdfast.remove_checkpoints(text, uuid[], bigint, boolean, boolean);
DROP FUNCTION holdfast.bury(text, text, bigint[], bigint[], bytea[]);
DROP FUNCTION holdfast.link_hash(
    bytea, bigint, bigint, uuid, bigint, timestamptz, text, text, jsonb, bytea);
DROP FUNCTION holdfast.keep_chunks(text, bytea[], bytea[]);
DROP FUNCTION holdfast.add_chunks(text, bytea[], bytea[], bytea[]);
DROP FUNCTION holdfast.missing_chunks(text, bytea[]);
DROP FUNCTION holdfast.acquire_lease(text, text, text, double precision, bigint);
DROP FUNCTION holdfast.fenced(text, text, bigint);
DROP FUNCTION holdfast.check_fence(holdfast.sessions, bigint);
DROP FUNCTION holdfast.create_session(text, jsonb);
DROP FUNCTION holdfast.create_agent(text, jsonb);
DROP FUNCTION holdfast.add_session(text, jsonb);
DROP FUNCTION holdfast.first_token();
DROP FUNCTION holdfast.add_agent(text, jsonb);
DROP FUNCTION holdfast.lock_tenant(text, boolean);
DROP FUNCTION holdfast.lock_out_writers(text);
DROP FUNCTION holdfast.refuse_isolation();
DROP FUNCTION holdfast.seal_tenant(text, text, text);
DROP TRIGGER sessions_are_sealed ON holdfast.sessions;
DROP FUNCTION holdfast.refuse_plaintext();
DROP FUNCTION holdfast.durably();
DROP FUNCTION holdfast.checkpoint_state(uuid);
DROP FUNCTION holdfast.resolve_refs(jsonb, jsonb[]);
DROP FUNCTION holdfast.content_of(text, bytea);
DROP FUNCTION holdfast.live_digests(text, xid, text[], text, timestamptz);
DROP FUNCTION holdfast.chunk_closure(text, bytea);
DROP FUNCTION holdfast.refs_in(bytea);
DROP FUNCTION holdfast.as_tenant(text);
DROP TABLE holdfast.sealing;
DROP TABLE holdfast.workspace_packs;
DROP TABLE holdfast.session_logs;
DROP TABLE holdfast.effects;
DROP TABLE holdfast.checkpoint_writes;
DROP TABLE holdfast.chunks;
DROP TABLE holdfast.chain_tombstones;
DROP TABLE holdfast.session_checkpoints;
DROP TABLE holdfast.sessions;
DROP TABLE holdfast.agents;
DROP TABLE holdfast.schema_migrations;
DROP DOMAIN holdfast.digest;
DROP DOMAIN holdfast.retention_class;
DROP DOMAIN holdfast.checkpoint_type;
DROP DOMAIN holdfast.session_status;
DROP DOMAIN holdfast.agent_type;
