-- Holdfast, SQLite dialect. PostgreSQL has the same tables and columns.
--
-- Times are ISO-8601 UTC with microseconds and a Z. Documents are JSON text.
-- state_snapshot is the manifest of a checkpoint's state: small values stand in it, large ones are
-- references to chunks. The documented keys of a state, all optional:
--   conversation_history  array    the messages so far, each an object with role and content
--   variable_state        object   the agent's variables by name
--   execution_context     object   where the agent stood: node, step, tool call, settings
--   task_state, progress, agent_history, memory_refs, open_files, decisions, features, context

-- What makes a file recognisable as ours: "Hold" in ASCII.
PRAGMA application_id = 1215261796;

CREATE TABLE agents (
    tenant       TEXT NOT NULL DEFAULT 'default',
    id           TEXT PRIMARY KEY NOT NULL
                 DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
                     || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2)
                     || '-' || hex(randomblob(6))))
                 CHECK (length(id) = 36 AND id GLOB '????????-????-????-????-????????????'
                     AND replace(id, '-', '') NOT GLOB '*[^0-9a-f]*'),
    name         TEXT NOT NULL,
    agent_type   TEXT NOT NULL CHECK (agent_type <> ''),
    status       TEXT NOT NULL DEFAULT 'idle'
                 CHECK (status IN ('idle', 'running', 'paused', 'completed', 'failed', 'terminated')),
    parent_id    TEXT,
    depth_level  INTEGER NOT NULL DEFAULT 0 CHECK (depth_level >= 0),
    metadata     TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    completed_at TEXT,
    UNIQUE (tenant, id),
    FOREIGN KEY (tenant, parent_id) REFERENCES agents (tenant, id)
) STRICT;

-- Who removes an agent looks for those below it; that of a thread, of which there are many, has none above.
CREATE INDEX agents_by_parent ON agents (tenant, parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE sessions (
    tenant           TEXT NOT NULL DEFAULT 'default',
    id               TEXT NOT NULL,
    agent_id         TEXT NOT NULL,
    agent_type       TEXT NOT NULL CHECK (agent_type <> ''),
    task_description TEXT,
    status           TEXT NOT NULL DEFAULT 'active'
                     CHECK (status IN
                         ('active', 'paused', 'interrupted', 'completed', 'failed', 'stopped')),
    continues_id     TEXT,
    forked_from      TEXT,
    project_dir      TEXT,
    lease_owner      TEXT,
    lease_token      INTEGER NOT NULL DEFAULT 0,
    lease_since      TEXT,
    lease_expires_at TEXT,
    -- What decides here, where every holder is on this machine: the id of a boot, a space, and the
    -- second of that boot at which the lease expires. Nobody sets that clock.
    lease_clock      TEXT,
    recoveries       INTEGER NOT NULL DEFAULT 0,
    paused_at        TEXT,
    paused_until     TEXT,
    pause_reason     TEXT,
    resumed_at       TEXT,
    chain_length     INTEGER NOT NULL DEFAULT 0,
    chain_head       BLOB NOT NULL DEFAULT x'',
    metadata         TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, agent_id) REFERENCES agents (tenant, id)
) STRICT;

CREATE INDEX sessions_by_age ON sessions (tenant, created_at DESC, id DESC);
CREATE INDEX sessions_by_agent ON sessions (tenant, agent_id);
CREATE INDEX sessions_by_lease ON sessions (tenant) WHERE lease_owner IS NOT NULL;

-- The order of checkpoints comes from here, never from a clock. A row is never handed out twice.
CREATE TABLE sequences (
    name  TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL
) STRICT;

INSERT INTO sequences (name, value) VALUES ('checkpoints', 0);

CREATE TABLE session_checkpoints (
    tenant           TEXT NOT NULL DEFAULT 'default',
    id               TEXT PRIMARY KEY NOT NULL
                     DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
                         || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2)
                         || '-' || hex(randomblob(6))))
                     CHECK (length(id) = 36 AND id GLOB '????????-????-????-????-????????????'
                         AND replace(id, '-', '') NOT GLOB '*[^0-9a-f]*'),
    external_id      TEXT,
    session_id       TEXT NOT NULL,
    agent_id         TEXT NOT NULL,
    namespace        TEXT NOT NULL DEFAULT '',
    seq              INTEGER NOT NULL,
    parent_id        TEXT,
    name             TEXT NOT NULL,
    label            TEXT,
    description      TEXT,
    checkpoint_type  TEXT NOT NULL DEFAULT 'manual'
                     -- Spelt out: for IN with so many values SQLite would build a table in each insert.
                     CHECK (checkpoint_type = 'manual' OR checkpoint_type = 'auto'
                         OR checkpoint_type = 'failure'),
    retention_class  TEXT NOT NULL DEFAULT 'manual'
                     CHECK (retention_class = 'step' OR retention_class = 'automatic'
                         OR retention_class = 'manual' OR retention_class = 'feature'
                         OR retention_class = 'session' OR retention_class = 'failure'),
    run_id           TEXT,
    version          INTEGER NOT NULL DEFAULT 1,
    size_bytes       INTEGER NOT NULL DEFAULT 0,
    stored_bytes     INTEGER NOT NULL DEFAULT 0,
    -- Its place in the session's hash chain: the link before it, and its own.
    chain_number     INTEGER,
    chain_previous   BLOB,
    chain_hash       BLOB,
    git_branch       TEXT,
    git_commit       TEXT,
    git_uncommitted  INTEGER NOT NULL DEFAULT 0 CHECK (git_uncommitted IN (0, 1)),
    workspace_commit TEXT,
    resumable        INTEGER NOT NULL DEFAULT 1 CHECK (resumable IN (0, 1)),
    pinned           INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    consumed_at      TEXT,
    quarantined_at   TEXT,
    restoring_until  TEXT,
    expires_at       TEXT,
    metadata         TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    restored_at      TEXT,
    -- The payload stands last: SQLite reads a row from its start, and a listing stops before it.
    -- JSON text is kept byte for byte, so the document for SQL and the one that is restored are
    -- stored once; PostgreSQL, whose JSONB rewrites numbers and key order, keeps both.
    state_snapshot   TEXT NOT NULL CHECK (json_valid(state_snapshot)),
    manifest         TEXT GENERATED ALWAYS AS (state_snapshot) VIRTUAL,
    refs             BLOB NOT NULL DEFAULT x'',
    UNIQUE (tenant, session_id, namespace, name),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant, agent_id) REFERENCES agents (tenant, id)
) STRICT;

-- Read backwards for the newest: a row is then added at the end, where a full page is not split in two.
CREATE UNIQUE INDEX checkpoints_by_seq
    ON session_checkpoints (tenant, session_id, namespace, seq);
CREATE UNIQUE INDEX checkpoints_by_external_id
    ON session_checkpoints (tenant, session_id, namespace, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX checkpoints_by_class
    ON session_checkpoints (tenant, session_id, namespace, retention_class, seq)
    WHERE pinned = 0;
CREATE INDEX checkpoints_by_agent
    ON session_checkpoints (agent_id, created_at DESC, id DESC);
CREATE INDEX checkpoints_by_expiry
    ON session_checkpoints (tenant, expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX checkpoints_by_label
    ON session_checkpoints (tenant, session_id, namespace, label) WHERE label IS NOT NULL;
CREATE INDEX checkpoints_by_workspace
    ON session_checkpoints (tenant, workspace_commit) WHERE workspace_commit IS NOT NULL;
CREATE INDEX checkpoints_in_quarantine
    ON session_checkpoints (tenant, session_id) WHERE quarantined_at IS NOT NULL;

-- What is left of links that a trim, a deletion or a replacement took away: each row stands for a run
-- of numbers, with the seq and the hash of the last.
CREATE TABLE chain_tombstones (
    tenant       TEXT NOT NULL DEFAULT 'default',
    session_id   TEXT NOT NULL,
    first_number INTEGER NOT NULL,
    last_number  INTEGER NOT NULL CHECK (last_number >= first_number),
    seq          INTEGER NOT NULL,
    chain_hash   BLOB NOT NULL,
    PRIMARY KEY (tenant, session_id, first_number),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Content, stored once under its digest. Codec 0 is plain, 1 is zstd.
CREATE TABLE chunks (
    tenant TEXT NOT NULL DEFAULT 'default',
    digest BLOB NOT NULL CHECK (length(digest) = 33),
    codec  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT;

CREATE TABLE checkpoint_writes (
    tenant      TEXT NOT NULL DEFAULT 'default',
    session_id  TEXT NOT NULL,
    namespace   TEXT NOT NULL DEFAULT '',
    external_id TEXT NOT NULL,
    task_id     TEXT NOT NULL,
    idx         INTEGER NOT NULL,
    task_path   TEXT NOT NULL DEFAULT '',
    channel     TEXT NOT NULL,
    manifest    TEXT NOT NULL CHECK (json_valid(manifest)),
    refs        BLOB NOT NULL DEFAULT x'',
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    -- Of all the columns before, but the time: whoever reads the row compares.
    row_sum     BLOB NOT NULL,
    PRIMARY KEY (tenant, session_id, namespace, external_id, task_id, idx),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE effects (
    tenant      TEXT NOT NULL DEFAULT 'default',
    session_id  TEXT NOT NULL,
    key         TEXT NOT NULL,
    occurrence  INTEGER NOT NULL DEFAULT 0 CHECK (occurrence >= 0),
    name        TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    status      TEXT NOT NULL
                CHECK (status = 'started' OR status = 'done' OR status = 'failed' OR status = 'unknown'),
    attempt_id  TEXT NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 1,
    result      TEXT CHECK (result IS NULL OR json_valid(result)),
    refs        BLOB NOT NULL DEFAULT x'',
    error       TEXT CHECK (error IS NULL OR json_valid(error)),
    started_at  TEXT NOT NULL,
    finished_at TEXT,
    -- Of how the attempt began and of what came of it, each with its place; times are in neither.
    begun_sum   BLOB NOT NULL,
    outcome_sum BLOB NOT NULL,
    PRIMARY KEY (tenant, session_id, key, occurrence),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE session_logs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant     TEXT NOT NULL DEFAULT 'default',
    session_id TEXT NOT NULL,
    level      TEXT NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error')),
    message    TEXT NOT NULL,
    data       TEXT CHECK (data IS NULL OR json_valid(data)),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX logs_by_session ON session_logs (tenant, session_id, id);

-- Shared by all sessions of a tenant, as chunks are: a fork has the files of what it was forked from.
-- needs is a JSON array of the commits that must be there before this pack can be applied.
CREATE TABLE workspace_packs (
    tenant     TEXT NOT NULL DEFAULT 'default',
    commit_id  TEXT NOT NULL,
    needs      TEXT NOT NULL CHECK (json_valid(needs)),
    touched_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    data       BLOB NOT NULL,
    PRIMARY KEY (tenant, commit_id)
) STRICT;

-- Whose rows are sealed, and the proof of the key. Plain text does not get in beside them.
CREATE TABLE sealing (
    tenant    TEXT PRIMARY KEY NOT NULL,
    seal      TEXT NOT NULL,
    sealed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) STRICT;

CREATE TRIGGER sessions_are_sealed BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM sealing WHERE sealing.tenant = NEW.tenant)
    AND instr(coalesce(NEW.metadata, ''), '$sealed') = 0
BEGIN
    SELECT RAISE(ABORT, 'this store was sealed, and the session was written without the key');
END;

CREATE TABLE schema_migrations (
    version    INTEGER PRIMARY KEY NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT;

-- DOWN

DROP TRIGGER sessions_are_sealed;
DROP TABLE sealing;
DROP TABLE workspace_packs;
DROP TABLE session_logs;
DROP TABLE effects;
DROP TABLE checkpoint_writes;
DROP TABLE chunks;
DROP TABLE chain_tombstones;
DROP TABLE session_checkpoints;
DROP TABLE sequences;
DROP TABLE sessions;
DROP TABLE agents;
DROP TABLE schema_migrations;
