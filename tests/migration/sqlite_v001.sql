PRAGMA application_id = 1215261796;
BEGIN TRANSACTION;
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
INSERT INTO "agents" VALUES('default','01900000-0000-7000-8000-00000000000a','keeper','implementer','idle',NULL,0,NULL,'2026-01-02T03:04:05.678901Z','2026-01-02T03:04:05.678901Z',NULL);
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
INSERT INTO "checkpoint_writes" VALUES('default','release','','1ef-1','task',0,'','messages','{"step":1}',X'12194EA3A0ECE5DEB44D2D37CF20A3B2A6C3ED053E3F4461101438982D8B50813E0000000000000F','2026-01-02T03:04:05.678901Z',X'28B90F1572A0624C1751CE2CF097B80504AF5A00B0D805DAA690EC8D9685AE6D');
CREATE TABLE chunks (
    tenant TEXT NOT NULL DEFAULT 'default',
    digest BLOB NOT NULL CHECK (length(digest) = 33),
    codec  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT;
INSERT INTO "chunks" VALUES('default',X'12A952F24564BCBAA48B7572D5A25F5BE630DB9EC7EF99B378A1DF33CE3D6E3BC6',0,X'61206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E2061206C617267652070617274206F6620612073746174652C207361696420616761696E20616E6420616761696E2E20');
INSERT INTO "chunks" VALUES('default',X'12F9B0078B5DF596D2EA19010C001BBD009E651DE2C57E8FB7E355F31EB9D3F739',0,X'73686F7274');
INSERT INTO "chunks" VALUES('default',X'1298EEB384AE0ABCEDC30D56F8FCAE8A888D51F435E9C2AC14155FA2EB979FC5E5',0,X'12A952F24564BCBAA48B7572D5A25F5BE630DB9EC7EF99B378A1DF33CE3D6E3BC6000000000003AC12F9B0078B5DF596D2EA19010C001BBD009E651DE2C57E8FB7E355F31EB9D3F73900000000000005');
INSERT INTO "chunks" VALUES('default',X'12194EA3A0ECE5DEB44D2D37CF20A3B2A6C3ED053E3F4461101438982D8B50813E',0,X'612070656E64696E672076616C7565');
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
CREATE TABLE schema_migrations (
    version    INTEGER PRIMARY KEY NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT;
INSERT INTO "schema_migrations" VALUES(1,'sha256:77ed9675c742153ce80c2463cd09a6ba980699949d2fcc490eef7cec8d570e79','2026-11-19T06:12:34.095176Z');
CREATE TABLE sealing (
    tenant    TEXT PRIMARY KEY NOT NULL,
    seal      TEXT NOT NULL,
    sealed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) STRICT;
CREATE TABLE sequences (
    name  TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL
) STRICT;
INSERT INTO "sequences" VALUES('checkpoints',2);
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
INSERT INTO "session_checkpoints" VALUES('default','01900000-0000-7000-8000-000000000001','1ef-1','release','01900000-0000-7000-8000-00000000000a','',1,NULL,'first',NULL,NULL,'manual','manual',NULL,1,945,1097,1,X'',X'16E2CF3CF751BB5642ABECA2EEA487F3B51CC7ABA3A4D59627F13DF975F58F3E',NULL,NULL,0,NULL,1,0,NULL,NULL,NULL,NULL,'{"step":1}','2026-01-02T03:04:05.678901Z',NULL,'{"conversation_history":[{"role":"user","content":"hello ü"}],"n":1.10}',X'12A952F24564BCBAA48B7572D5A25F5BE630DB9EC7EF99B378A1DF33CE3D6E3BC6000000000003AC12F9B0078B5DF596D2EA19010C001BBD009E651DE2C57E8FB7E355F31EB9D3F73900000000000005');
INSERT INTO "session_checkpoints" VALUES('default','01900000-0000-7000-8000-000000000002',NULL,'release','01900000-0000-7000-8000-00000000000a','',2,'01900000-0000-7000-8000-000000000001','second',NULL,NULL,'failure','failure',NULL,1,0,130,2,X'16E2CF3CF751BB5642ABECA2EEA487F3B51CC7ABA3A4D59627F13DF975F58F3E',X'EB0732E3D115488043BD2167BA1B2868728D04C6EA61229FB01A05AAA163BC37','main',NULL,1,NULL,1,0,NULL,NULL,NULL,NULL,NULL,'2026-01-02T03:04:05.678901Z',NULL,'{"step":1}',X'1298EEB384AE0ABCEDC30D56F8FCAE8A888D51F435E9C2AC14155FA2EB979FC5E5100000000003B1');
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
INSERT INTO "session_logs" VALUES(1,'default','release','warning','careful','{"k":[1,2]}','2026-01-02T03:04:05.678901Z');
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
INSERT INTO "sessions" VALUES('default','release','01900000-0000-7000-8000-00000000000a','implementer','Keep this readable','active',NULL,NULL,NULL,NULL,686756248936,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,2,X'EB0732E3D115488043BD2167BA1B2868728D04C6EA61229FB01A05AAA163BC37','{"team":"core","n":1}','2026-01-02T03:04:05.678901Z','2026-01-02T03:04:05.678901Z');
CREATE TABLE workspace_packs (
    tenant     TEXT NOT NULL DEFAULT 'default',
    commit_id  TEXT NOT NULL,
    needs      TEXT NOT NULL CHECK (json_valid(needs)),
    touched_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    data       BLOB NOT NULL,
    PRIMARY KEY (tenant, commit_id)
) STRICT;
CREATE INDEX agents_by_parent ON agents (tenant, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX sessions_by_age ON sessions (tenant, created_at DESC, id DESC);
CREATE INDEX sessions_by_agent ON sessions (tenant, agent_id);
CREATE INDEX sessions_by_lease ON sessions (tenant) WHERE lease_owner IS NOT NULL;
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
CREATE INDEX logs_by_session ON session_logs (tenant, session_id, id);
CREATE TRIGGER sessions_are_sealed BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM sealing WHERE sealing.tenant = NEW.tenant)
    AND instr(coalesce(NEW.metadata, ''), '$sealed') = 0
BEGIN
    SELECT RAISE(ABORT, 'this store was sealed, and the session was written without the key');
END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('session_logs',1);
COMMIT;
