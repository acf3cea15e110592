-- The statements of the SQLite store. PostgreSQL defines the same names; what only one dialect needs
-- begins with the dialect's name. Parameters are positional and stand in the order of the text, or have
-- their position as a number where one is needed twice.
--
-- A listing is a *.list statement, then any of its *.where fragments, then *.order. What has expired
-- is invisible from the moment of its expires_at on, and removed by checkpoints.purge_expired.
-- A plus before a column keeps the planner from searching by it.

-- name: agents.insert
INSERT INTO agents (tenant, id, name, agent_type, status, parent_id, depth_level, metadata,
    created_at, updated_at, completed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: agents.find
SELECT id, name, agent_type, status, parent_id, depth_level, metadata,
    created_at, updated_at, completed_at
FROM agents WHERE tenant = ? AND id = ?;

-- name: agents.list
SELECT id, name, agent_type, status, parent_id, depth_level, metadata,
    created_at, updated_at, completed_at
FROM agents WHERE tenant = ?

-- name: agents.where.status
AND status = ?

-- name: agents.where.parent_id
AND parent_id = ?

-- name: agents.order
ORDER BY created_at DESC, id DESC LIMIT ?

-- name: agents.update
UPDATE agents
SET status = ?, metadata = ?, updated_at = ?, completed_at = ?
WHERE tenant = ? AND id = ?;

-- name: sessions.insert
INSERT INTO sessions (tenant, id, agent_id, agent_type, task_description, continues_id, forked_from,
    metadata, created_at, updated_at, project_dir, lease_owner, lease_token, lease_since,
    lease_expires_at, lease_clock)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: sessions.find
SELECT id, agent_id, agent_type, task_description, status, continues_id, forked_from,
    paused_at, paused_until, pause_reason, resumed_at, metadata, created_at, updated_at,
    lease_owner, lease_token, lease_since, lease_expires_at, recoveries, project_dir
FROM sessions WHERE tenant = ? AND id = ?;

-- name: sessions.list
SELECT id, agent_id, agent_type, task_description, status, continues_id, forked_from,
    paused_at, paused_until, pause_reason, resumed_at, metadata, created_at, updated_at,
    lease_owner, lease_token, lease_since, lease_expires_at, recoveries, project_dir
FROM sessions WHERE tenant = ?

-- name: sessions.where.status
AND status = ?

-- name: sessions.where.agent_type
AND agent_type = ?

-- name: sessions.where.agent_id
AND agent_id = ?

-- name: sessions.where.agent_prefix
AND agent_id >= ? AND agent_id < ?

-- name: sessions.where.id_prefix
AND instr(id, ?) = 1

-- name: sessions.where.continued.yes
AND (tenant, id) IN (SELECT tenant, continues_id FROM sessions WHERE continues_id IS NOT NULL)

-- name: sessions.where.continued.no
AND (tenant, id) NOT IN (SELECT tenant, continues_id FROM sessions WHERE continues_id IS NOT NULL)

-- name: sessions.where.metadata
AND CASE WHEN json_valid(sessions.metadata) IS 0 THEN TRUE ELSE NOT EXISTS (
    SELECT 1 FROM json_each(?) AS wanted WHERE NOT EXISTS (
        SELECT 1 FROM json_each(sessions.metadata) AS stored
        WHERE stored.key = wanted.key AND stored.value IS wanted.value
            AND replace(stored.type, 'real', 'integer') = replace(wanted.type, 'real', 'integer'))) END

-- name: sessions.order
ORDER BY created_at DESC, id DESC LIMIT ?

-- name: sessions.update
UPDATE sessions
SET task_description = ?, status = ?, paused_at = ?, paused_until = ?, pause_reason = ?,
    resumed_at = ?, metadata = ?, updated_at = ?
WHERE tenant = ? AND id = ?;

-- name: leases.list
SELECT id, lease_owner, lease_token, lease_since, lease_expires_at, lease_clock
FROM sessions WHERE tenant = ? AND lease_owner IS NOT NULL

-- name: leases.where.id
AND id = ?

-- name: leases.renew
UPDATE sessions SET lease_expires_at = ?, lease_clock = ?
WHERE tenant = ? AND id = ? AND lease_token = ? AND lease_owner IS NOT NULL;

-- name: leases.release
UPDATE sessions SET lease_owner = NULL, lease_token = lease_token + 1, lease_since = NULL,
    lease_expires_at = NULL, lease_clock = NULL
WHERE tenant = ? AND id = ? AND lease_token = ? AND lease_owner IS NOT NULL;

-- name: sessions.delete
DELETE FROM sessions WHERE tenant = ? AND id = ?;

-- name: sessions.usage
-- Beside max(), SQLite takes the other columns from the row that has the maximum.
SELECT sessions.id, count(found.id), coalesce(sum(found.size_bytes), 0),
    coalesce(sum(found.stored_bytes), 0), found.id, max(found.seq)
FROM sessions LEFT JOIN session_checkpoints AS found
    ON found.tenant = sessions.tenant AND found.session_id = sessions.id
    AND (found.expires_at IS NULL OR found.expires_at > ?)
WHERE sessions.tenant = ?

-- name: sessions.usage.where.ids
AND sessions.id IN (SELECT value FROM json_each(?))

-- name: sessions.usage.order
GROUP BY sessions.id ORDER BY sessions.created_at DESC, sessions.id DESC

-- name: checkpoints.list
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at
FROM session_checkpoints WHERE tenant = ? AND (expires_at IS NULL OR expires_at > ?)

-- name: checkpoints.where.session_id
AND session_id = ?

-- name: checkpoints.where.namespace
AND namespace = ?

-- name: checkpoints.where.agent_id
AND agent_id = ?

-- name: checkpoints.where.agent_prefix
AND agent_id >= ? AND agent_id < ?

-- name: checkpoints.where.id
AND id = ?

-- name: checkpoints.where.id_prefix
AND instr(id, ?) = 1

-- name: checkpoints.where.name
AND name = ?

-- name: checkpoints.where.label
AND label = ?

-- name: checkpoints.where.external_id
AND external_id = ?

-- name: checkpoints.where.checkpoint_type
AND checkpoint_type = ?

-- name: checkpoints.where.retention_class
AND retention_class = ?

-- name: checkpoints.where.run_id
AND run_id = ?

-- name: checkpoints.where.version
AND version = ?

-- name: checkpoints.where.resumable.yes
AND resumable = 1 AND quarantined_at IS NULL

-- name: checkpoints.where.resumable.no
AND NOT (resumable = 1 AND quarantined_at IS NULL)

-- name: checkpoints.where.quarantined.yes
AND quarantined_at IS NOT NULL

-- name: checkpoints.where.quarantined.no
AND quarantined_at IS NULL

-- name: checkpoints.where.before_seq
AND seq < ?

-- name: checkpoints.where.metadata
AND CASE WHEN json_valid(session_checkpoints.metadata) IS 0 THEN TRUE ELSE NOT EXISTS (
    SELECT 1 FROM json_each(?) AS wanted WHERE NOT EXISTS (
        SELECT 1 FROM json_each(session_checkpoints.metadata) AS stored
        WHERE stored.key = wanted.key AND stored.value IS wanted.value
            AND replace(stored.type, 'real', 'integer') = replace(wanted.type, 'real', 'integer'))) END

-- name: checkpoints.order
ORDER BY seq DESC LIMIT ?

-- name: checkpoints.latest_of_agent
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at
FROM session_checkpoints
WHERE agent_id = ? AND tenant = ? AND (expires_at IS NULL OR expires_at > ?)
    AND quarantined_at IS NULL
ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: checkpoints.payload
-- All that a link of the chain is made of, so that the row proves itself.
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at,
    chain_number, chain_previous, chain_hash, state_snapshot, refs, quarantined_at
FROM session_checkpoints
WHERE id = ? AND tenant = ? AND (expires_at IS NULL OR expires_at > ? OR ?);

-- name: checkpoints.payloads
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at,
    chain_number, chain_previous, chain_hash, state_snapshot, refs, quarantined_at
FROM session_checkpoints
WHERE id IN (SELECT value FROM json_each(?)) AND +tenant = ?
    AND (expires_at IS NULL OR expires_at > ?);

-- name: checkpoints.newest
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at,
    chain_number, chain_previous, chain_hash, state_snapshot, refs, quarantined_at
FROM session_checkpoints WHERE tenant = ? AND (expires_at IS NULL OR expires_at > ?)

-- name: checkpoints.quarantine
UPDATE session_checkpoints SET quarantined_at = ?
WHERE +tenant = ? AND id IN (SELECT value FROM json_each(?)) AND quarantined_at IS NULL
RETURNING id;

-- name: checkpoints.lift_quarantine
UPDATE session_checkpoints SET quarantined_at = NULL
WHERE +tenant = ? AND id IN (SELECT value FROM json_each(?)) AND quarantined_at IS NOT NULL
RETURNING id;

-- name: checkpoints.count_quarantined
SELECT count(*) FROM session_checkpoints WHERE tenant = ? AND quarantined_at IS NOT NULL;

-- name: checkpoints.mark_restored
UPDATE session_checkpoints SET restored_at = ?
WHERE id = ? AND tenant = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: checkpoints.mark_restoring
UPDATE session_checkpoints SET restoring_until = ?
WHERE id = ? AND tenant = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: checkpoints.still_to_go
-- Of what a plan removes: all but what is being restored, and the lines that the plan does not hold for any
-- more. Those are found by the newest to resume from, unless that may go too, and by children that the plan does
-- not know.
WITH going AS MATERIALIZED (
    SELECT id, session_id, namespace, restoring_until FROM session_checkpoints
    WHERE +tenant = ?1 AND id IN (SELECT value FROM json_each(?2))
), lines AS MATERIALIZED (
    SELECT DISTINCT session_id, namespace FROM going
), newest AS (
    SELECT session_id, namespace, id, max(seq) FROM session_checkpoints
    WHERE tenant = ?1 AND (session_id, namespace) IN (SELECT session_id, namespace FROM lines)
        AND resumable AND quarantined_at IS NULL AND (expires_at IS NULL OR expires_at > ?4)
    GROUP BY session_id, namespace
), changed AS MATERIALIZED (
    SELECT session_id, namespace FROM newest WHERE NOT ?5 AND id IN (SELECT id FROM going)
    UNION
    SELECT c.session_id, c.namespace FROM session_checkpoints AS c
    WHERE c.tenant = ?1 AND (c.session_id, c.namespace) IN (SELECT session_id, namespace FROM lines)
        AND c.parent_id IS NOT NULL AND (c.expires_at IS NULL OR c.expires_at > ?4)
        AND c.id NOT IN (SELECT value FROM json_each(?2))
        AND c.id NOT IN (SELECT value FROM json_each(?3))
        AND EXISTS (
            SELECT 1 FROM session_checkpoints AS parent
            WHERE parent.tenant = ?1 AND parent.session_id = c.session_id
                AND parent.namespace = c.namespace AND parent.external_id = c.parent_id
                AND parent.id IN (SELECT id FROM going))
)
SELECT id FROM going
WHERE (session_id, namespace) NOT IN (SELECT session_id, namespace FROM changed)
    AND (restoring_until IS NULL OR restoring_until <= ?4);

-- name: checkpoints.delete
DELETE FROM session_checkpoints
WHERE +tenant = ? AND id IN (SELECT value FROM json_each(?))
RETURNING session_id, id, seq, chain_number, chain_previous, chain_hash;

-- name: checkpoints.expired
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at
FROM session_checkpoints WHERE tenant = ? AND expires_at <= ? ORDER BY seq DESC;

-- name: checkpoints.purge_expired
DELETE FROM session_checkpoints WHERE tenant = ? AND expires_at <= ?
RETURNING session_id, id, seq, chain_number, chain_previous, chain_hash;

-- name: chain.session
SELECT chain_length, chain_head FROM sessions WHERE tenant = ? AND id = ?;

-- name: chain.links
SELECT id, seq, chain_number, chain_previous, chain_hash FROM session_checkpoints
WHERE tenant = ? AND session_id = ? ORDER BY chain_number, seq;

-- name: chain.tombstones
SELECT first_number, last_number, seq, chain_hash FROM chain_tombstones
WHERE tenant = ? AND session_id = ? ORDER BY first_number;

-- name: checkpoints.ids
SELECT id FROM session_checkpoints
WHERE tenant = ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY seq;

-- name: checkpoints.workspace_commits
SELECT DISTINCT workspace_commit FROM session_checkpoints
WHERE tenant = ? AND workspace_commit IS NOT NULL;

-- name: chunks.read
SELECT digest, codec, data FROM chunks
WHERE tenant = ? AND digest IN (SELECT unhex(value) FROM json_each(?));

-- name: chunks.find
SELECT digest FROM chunks
WHERE tenant = ? AND digest IN (SELECT unhex(value) FROM json_each(?));

-- name: chunks.digests
SELECT digest FROM chunks WHERE tenant = ? AND digest < ? ORDER BY digest;

-- name: chunks.set_aside
UPDATE OR REPLACE chunks SET digest = ? WHERE tenant = ? AND digest = ?;

-- name: chunks.total_bytes
SELECT coalesce(sum(length(data)), 0) FROM chunks WHERE tenant = ?;

-- name: writes.read
-- The places first: without that, all writes of the tenant would be compared with them.
SELECT w.session_id, w.namespace, w.external_id, w.task_id, w.task_path, w.idx, w.channel, w.manifest,
    w.refs, w.row_sum
FROM json_each(?) AS place CROSS JOIN checkpoint_writes AS w
WHERE w.tenant = ? AND w.session_id = place.value ->> 0 AND w.namespace = place.value ->> 1
    AND w.external_id = place.value ->> 2
ORDER BY w.task_path, w.task_id, w.idx;

-- name: effects.begin
-- Answers with the row only if it is the draft's own: new, or in place of the attempt named last.
INSERT INTO effects (tenant, session_id, key, occurrence, name, fingerprint, status, attempt_id,
    result, refs, error, started_at, finished_at, begun_sum, outcome_sum)
SELECT tenant, id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM sessions WHERE tenant = ? AND id = ?
ON CONFLICT (tenant, session_id, key, occurrence) DO UPDATE
SET name = excluded.name, fingerprint = excluded.fingerprint, status = excluded.status,
    attempt_id = excluded.attempt_id, attempts = attempts + 1,
    result = excluded.result, refs = excluded.refs, error = excluded.error,
    started_at = excluded.started_at, finished_at = excluded.finished_at,
    begun_sum = excluded.begun_sum, outcome_sum = excluded.outcome_sum
WHERE attempt_id = ?
RETURNING session_id, key, occurrence, name, fingerprint, status, attempt_id, attempts, result,
    refs, error, started_at, finished_at;

-- name: effects.finish
UPDATE effects SET status = ?, result = ?, refs = ?, error = ?, outcome_sum = ?, finished_at = ?
WHERE tenant = ? AND session_id = ? AND key = ? AND occurrence = ? AND attempt_id = ?
RETURNING attempts;

-- name: effects.list
SELECT session_id, key, occurrence, name, fingerprint, status, attempt_id, attempts, result, refs,
    error, started_at, finished_at, begun_sum, outcome_sum
FROM effects WHERE tenant = ?

-- name: effects.where.session_id
AND session_id = ?

-- name: effects.where.key
AND key = ?

-- name: effects.where.occurrence
AND occurrence = ?

-- name: effects.where.status
AND status = ?

-- name: effects.order
ORDER BY started_at, key, occurrence LIMIT ?

-- name: effects.places
SELECT session_id, key, occurrence FROM effects WHERE tenant = ?
ORDER BY session_id, started_at, key, occurrence;

-- name: logs.insert
INSERT INTO session_logs (tenant, session_id, level, message, data, created_at)
VALUES (?, ?, ?, ?, ?, ?) RETURNING id;

-- name: logs.list
SELECT id, session_id, level, message, data, created_at
FROM session_logs WHERE tenant = ? AND session_id = ?

-- name: logs.where.level
AND level = ?

-- name: logs.where.key
AND CASE WHEN json_valid(session_logs.data)
    THEN EXISTS (SELECT 1 FROM json_each(session_logs.data) AS item WHERE item.key = ?)
    -- A line that cannot be read is found, so that it is named.
    ELSE session_logs.data IS NOT NULL END

-- name: logs.order
ORDER BY id LIMIT ? OFFSET ?

-- name: logs.order.newest
ORDER BY id DESC LIMIT ? OFFSET ?

-- name: packs.find
SELECT commit_id FROM workspace_packs
WHERE tenant = ? AND commit_id IN (SELECT value FROM json_each(?));

-- name: packs.below
-- The packs that a commit is made of, without those that are there already and what only they need.
WITH RECURSIVE below (commit_id) AS (
    SELECT ?2
    UNION
    SELECT base.value
    FROM below JOIN workspace_packs AS pack ON pack.tenant = ?1 AND pack.commit_id = below.commit_id,
        json_each(pack.needs) AS base
    WHERE base.value NOT IN (SELECT value FROM json_each(?3))
    LIMIT ?4)
SELECT pack.commit_id, pack.needs
FROM below JOIN workspace_packs AS pack ON pack.tenant = ?1 AND pack.commit_id = below.commit_id;

-- name: packs.data
SELECT data FROM workspace_packs WHERE tenant = ? AND commit_id = ?;

-- name: packs.usage
SELECT count(*), coalesce(sum(length(data)), 0) FROM workspace_packs WHERE tenant = ?;

-- name: sealing.read
SELECT seal FROM sealing WHERE tenant = ?;

-- What is sealed is so from its first row. Both ends of an index tell, whatever was added since.
-- name: sealing.standing
SELECT seal FROM sealing WHERE tenant = ?1
UNION ALL
SELECT NULL
WHERE NOT EXISTS (SELECT 1 FROM sealing WHERE tenant = ?1)
    AND ((SELECT substr(state_snapshot, 1, length(?2)) FROM session_checkpoints
            WHERE tenant = ?1 ORDER BY session_id LIMIT 1) = ?2
        OR (SELECT substr(state_snapshot, 1, length(?2)) FROM session_checkpoints
            WHERE tenant = ?1 ORDER BY session_id DESC LIMIT 1) = ?2);

-- name: sqlite.seal.is_used
SELECT EXISTS (SELECT 1 FROM agents WHERE tenant = ?1)
    OR EXISTS (SELECT 1 FROM chunks WHERE tenant = ?1)
    OR EXISTS (SELECT 1 FROM workspace_packs WHERE tenant = ?1);

-- name: sqlite.seal
INSERT INTO sealing (tenant, seal, sealed_at) VALUES (?, ?, ?)
ON CONFLICT (tenant) DO UPDATE SET seal = excluded.seal;

-- name: reseal.rows
SELECT {columns} FROM {table} WHERE tenant = ? {following} ORDER BY {keys} LIMIT ?;

-- name: reseal.row
UPDATE {table} SET {values} WHERE tenant = ? AND {row};

-- name: reseal.checkpoint
UPDATE session_checkpoints SET description = ?, metadata = ?, state_snapshot = ?,
    chain_previous = ?, chain_hash = ?
WHERE id = ?;

-- name: migrations.list
SELECT version, checksum FROM schema_migrations ORDER BY version;

-- name: migrations.insert
INSERT INTO schema_migrations (version, checksum, applied_at) VALUES (?, ?, ?);

-- name: sqlite.begin
BEGIN IMMEDIATE;

-- name: sqlite.begin_read
BEGIN;

-- name: sqlite.commit
COMMIT;

-- name: sqlite.rollback
ROLLBACK;

-- name: sqlite.savepoint
SAVEPOINT other;

-- name: sqlite.savepoint.undo
ROLLBACK TO other;

-- name: sqlite.savepoint.end
RELEASE other;

-- name: sqlite.tables
SELECT name FROM sqlite_schema;

-- name: sqlite.objects
SELECT type, name, sql FROM sqlite_schema
WHERE type IN ('table', 'view', 'trigger') AND name NOT LIKE 'sqlite#_%' ESCAPE '#';

-- name: sqlite.made
SELECT type, name FROM sqlite_schema;

-- name: sqlite.foreign_key_check
PRAGMA foreign_key_check;

-- name: sqlite.integrity_check
PRAGMA integrity_check;

-- name: sqlite.put.session
SELECT agent_id, status, chain_length, chain_head, lease_token, lease_owner, lease_clock, lease_since, lease_expires_at
FROM sessions WHERE tenant = ? AND id = ?;

-- name: sqlite.put.touch_session
UPDATE sessions SET updated_at = ?, chain_length = ?, chain_head = ? WHERE tenant = ? AND id = ?;

-- name: sqlite.put.standing
-- What stands against a draft: an equal id, name, external id or label.
SELECT 'id', id, seq, tenant = ? AND session_id = ?, expires_at <= ?
FROM session_checkpoints WHERE id = ?
UNION ALL
SELECT 'name', id, seq, 1, expires_at <= ? FROM session_checkpoints
WHERE tenant = ? AND session_id = ? AND namespace = ? AND name = ?
UNION ALL
SELECT 'external_id', id, seq, 1, expires_at <= ? FROM session_checkpoints
WHERE tenant = ? AND session_id = ? AND namespace = ? AND external_id = ?
UNION ALL
SELECT 'label', id, seq, 1, expires_at <= ? FROM session_checkpoints
WHERE tenant = ? AND session_id = ? AND namespace = ? AND label = ?;

-- name: sqlite.put.newest
SELECT id, coalesce(external_id, id) FROM session_checkpoints
WHERE tenant = ? AND session_id = ? AND namespace = ? AND (expires_at IS NULL OR expires_at > ?)
ORDER BY seq DESC LIMIT 1;

-- name: sqlite.delete.writes
DELETE FROM checkpoint_writes
WHERE tenant = ? AND (session_id, namespace, external_id) IN (
    SELECT session_id, namespace, coalesce(external_id, id) FROM session_checkpoints
    WHERE +tenant = ? AND id IN (SELECT value FROM json_each(?)));

-- name: sqlite.put.last_label
-- The highest number after the label; what follows a hyphen and is no such number does not count.
SELECT max(CAST(substr(label, length(?1) + 2) AS INTEGER)) FROM session_checkpoints
WHERE tenant = ?2 AND session_id = ?3 AND namespace = ?4
    AND label > ?1 || '-' AND label < ?1 || '.'
    AND substr(label, length(?1) + 2) NOT GLOB '*[^0-9]*' AND length(label) < length(?1) + 12;

-- name: sqlite.put.consume
UPDATE session_checkpoints SET consumed_at = ?
WHERE id = ? AND tenant = ? AND session_id = ? AND namespace = ?
    AND (expires_at IS NULL OR expires_at > ?) AND consumed_at IS NULL;

-- name: sqlite.put.consumed
SELECT 1 FROM session_checkpoints
WHERE id = ? AND tenant = ? AND session_id = ? AND namespace = ?
    AND (expires_at IS NULL OR expires_at > ?);

-- name: sqlite.put.stored
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at
FROM session_checkpoints WHERE id = ?;

-- name: sqlite.put.chunk
-- Without RETURNING, for which SQLite would build a table: what it added is counted.
INSERT INTO chunks (tenant, digest, codec, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: sqlite.put.missing
SELECT wanted.value FROM json_each(?) AS wanted
WHERE NOT EXISTS (
    SELECT 1 FROM chunks WHERE chunks.tenant = ? AND chunks.digest = unhex(wanted.value));

-- name: sqlite.put.next_seq
UPDATE sequences SET value = value + 1 WHERE name = 'checkpoints';

-- name: sqlite.put.first_seq
-- Nothing, unless that is above the newest checkpoint of the line that it is for.
UPDATE sequences SET value = value + 1
WHERE name = 'checkpoints' AND value >= coalesce((
    SELECT max(seq) FROM session_checkpoints WHERE tenant = ? AND session_id = ? AND namespace = ?), 0);

-- name: sqlite.put.mended_seq
-- The number above all others, for a sequence that is damaged.
INSERT INTO sequences (name, value)
SELECT 'checkpoints', coalesce(max(seq), 0) + 1 FROM session_checkpoints WHERE true
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: sqlite.put.drawn_seq
SELECT value FROM sequences WHERE name = 'checkpoints';

-- name: sqlite.check_sequence
SELECT (SELECT value FROM sequences WHERE name = 'checkpoints'), coalesce(max(seq), 0)
FROM session_checkpoints;

-- name: sqlite.put.checkpoint
INSERT INTO session_checkpoints (tenant, id, session_id, agent_id, namespace, seq, external_id,
    parent_id, name, label, description, checkpoint_type, retention_class, run_id, version,
    size_bytes, stored_bytes, git_branch, git_commit, git_uncommitted, workspace_commit, resumable,
    pinned, expires_at, metadata, created_at, chain_number, chain_previous, chain_hash,
    state_snapshot, refs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: sqlite.put.excess
-- What lies above the cap of the draft's class or past the age of its own, but never the newest
-- resumable one. A limit of 0 means that there is no cap.
SELECT id FROM (
    SELECT id FROM (
        SELECT id FROM session_checkpoints
        WHERE tenant = ?1 AND session_id = ?2 AND namespace = ?3 AND retention_class = ?5
            AND pinned = 0 AND (expires_at IS NULL OR expires_at > ?4)
        ORDER BY seq DESC LIMIT ?6 OFFSET ?7)
    UNION ALL
    SELECT old.id FROM json_each(?8) AS rule CROSS JOIN session_checkpoints AS old
    WHERE old.tenant = ?1 AND old.session_id = ?2 AND old.namespace = ?3
        AND old.retention_class = rule.key AND old.created_at < rule.value
        AND old.pinned = 0 AND (old.expires_at IS NULL OR old.expires_at > ?4))
WHERE id IS NOT (
    SELECT id FROM session_checkpoints
    WHERE tenant = ?1 AND session_id = ?2 AND namespace = ?3 AND resumable = 1
        AND quarantined_at IS NULL AND (expires_at IS NULL OR expires_at > ?4)
    ORDER BY seq DESC LIMIT 1);

-- name: sqlite.put.trim
DELETE FROM session_checkpoints
WHERE +tenant = ? AND id IN (SELECT value FROM json_each(?))
    AND (restoring_until IS NULL OR restoring_until <= ?)
RETURNING session_id, id, seq, chain_number, chain_previous, chain_hash;

-- name: sqlite.chain.set
UPDATE sessions SET chain_length = ?, chain_head = ? WHERE tenant = ? AND id = ?;

-- name: sqlite.chain.extend
-- Lets the run of tombstones that ends just before these links end with them.
UPDATE chain_tombstones SET last_number = ?4, seq = ?5, chain_hash = ?6
WHERE tenant = ?1 AND session_id = ?2 AND last_number = ?3 - 1 AND first_number = (
    SELECT max(first_number) FROM chain_tombstones
    WHERE tenant = ?1 AND session_id = ?2 AND first_number < ?3);

-- name: sqlite.chain.bury
INSERT OR REPLACE INTO chain_tombstones (tenant, session_id, first_number, last_number, seq, chain_hash)
VALUES (?, ?, ?, ?, ?, ?);

-- name: sqlite.chain.following
DELETE FROM chain_tombstones WHERE tenant = ? AND session_id = ? AND first_number = ?
RETURNING last_number, seq, chain_hash;

-- name: sqlite.packs.put
INSERT INTO workspace_packs (tenant, commit_id, needs, touched_at, data) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET needs = excluded.needs, touched_at = excluded.touched_at,
    data = excluded.data;

-- name: sqlite.packs.touch
UPDATE workspace_packs SET touched_at = ? WHERE tenant = ? AND commit_id = ?;

-- name: sqlite.packs.all
SELECT commit_id, needs, touched_at, length(data) FROM workspace_packs WHERE tenant = ?;

-- name: sqlite.packs.delete
DELETE FROM workspace_packs WHERE tenant = ? AND commit_id IN (SELECT value FROM json_each(?));

-- name: sqlite.packs.of_sessions
SELECT DISTINCT workspace_commit FROM session_checkpoints
WHERE tenant = ? AND session_id IN (SELECT value FROM json_each(?))
    AND workspace_commit IS NOT NULL;

-- name: sqlite.effects.count
-- An attempt in the place of another one: its number is in the sum of how it began.
UPDATE effects SET begun_sum = ? WHERE tenant = ? AND session_id = ? AND key = ? AND occurrence = ?;

-- name: sqlite.write.insert
INSERT INTO checkpoint_writes (tenant, session_id, namespace, external_id, task_id, idx,
    task_path, channel, manifest, refs, created_at, row_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: sqlite.write.replace
INSERT INTO checkpoint_writes (tenant, session_id, namespace, external_id, task_id, idx,
    task_path, channel, manifest, refs, created_at, row_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET task_path = excluded.task_path, channel = excluded.channel,
    manifest = excluded.manifest, refs = excluded.refs, created_at = excluded.created_at,
    row_sum = excluded.row_sum;

-- name: sqlite.leases.set
UPDATE sessions SET lease_owner = ?, lease_token = ?, lease_since = ?, lease_expires_at = ?,
    lease_clock = ?
WHERE tenant = ? AND id = ?;

-- name: sqlite.leases.interrupt
UPDATE sessions SET status = ?, recoveries = recoveries + 1, updated_at = ?, lease_owner = NULL,
    lease_token = lease_token + 1, lease_since = NULL, lease_expires_at = NULL, lease_clock = NULL
WHERE tenant = ? AND id = ?;

-- name: sqlite.fence.checkpoints
SELECT DISTINCT session_id FROM session_checkpoints
WHERE +tenant = ? AND id IN (SELECT value FROM json_each(?));

-- name: sqlite.copy.sources
SELECT id, session_id, agent_id, namespace, seq, external_id, parent_id, name, label, description,
    checkpoint_type, retention_class, run_id, version, size_bytes, stored_bytes,
    git_branch, git_commit, git_uncommitted, workspace_commit, resumable, pinned, expires_at,
    metadata, created_at, restored_at,
    chain_number, chain_previous, chain_hash, state_snapshot, refs, quarantined_at, consumed_at
FROM session_checkpoints
WHERE tenant = ? AND session_id = ? AND (expires_at IS NULL OR expires_at > ?)
ORDER BY seq;

-- name: sqlite.copy.checkpoint
-- A copy adds its own row only, was never restored itself and is a link of its own session's chain.
INSERT INTO session_checkpoints (tenant, id, session_id, agent_id, namespace, seq, external_id,
    parent_id, name, label, description, checkpoint_type, retention_class, run_id, version,
    size_bytes, stored_bytes, git_branch, git_commit, git_uncommitted, workspace_commit, resumable,
    pinned, expires_at, metadata, created_at, chain_number, chain_previous, chain_hash,
    state_snapshot, refs, consumed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: sqlite.sessions.ids
SELECT id FROM sessions WHERE tenant = ?;

-- name: sqlite.erase.agents
DELETE FROM agents WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2))
    AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.tenant = ?1 AND s.agent_id = agents.id)
    AND NOT EXISTS (
        SELECT 1 FROM session_checkpoints AS c WHERE c.tenant = ?1 AND c.agent_id = agents.id)
    AND NOT EXISTS (
        SELECT 1 FROM agents AS child WHERE child.tenant = ?1 AND child.parent_id = agents.id)
RETURNING id;

-- name: sqlite.erase.links
UPDATE sessions SET continues_id = NULL
WHERE tenant = ? AND continues_id IN (SELECT value FROM json_each(?));

-- name: sqlite.erase.tenant
-- What hangs on sessions goes with them. Children before their parents.
DELETE FROM sessions WHERE tenant = :tenant;
DELETE FROM chunks WHERE tenant = :tenant;
DELETE FROM workspace_packs WHERE tenant = :tenant;

-- name: sqlite.erase.deepest_agents
DELETE FROM agents WHERE tenant = ?1
    AND depth_level = (SELECT max(depth_level) FROM agents WHERE tenant = ?1);

-- name: sqlite.erase.found
SELECT id FROM sessions WHERE tenant = ? AND id IN (SELECT value FROM json_each(?)) LIMIT 1;

-- name: sqlite.erase.foreign
SELECT id, agent_type FROM sessions
WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2)) AND (?3 = '' OR instr(agent_id, ?3) <> 1)
ORDER BY id LIMIT 1;

-- name: sqlite.erase.checkpoints
DELETE FROM session_checkpoints
WHERE tenant = ? AND session_id IN (SELECT value FROM json_each(?)) AND namespace = ?
RETURNING session_id, id, seq, chain_number, chain_previous, chain_hash;

-- name: sqlite.erase.writes
DELETE FROM checkpoint_writes
WHERE tenant = ? AND session_id IN (SELECT value FROM json_each(?)) AND namespace = ?;

-- name: sqlite.erase.empty_sessions
DELETE FROM sessions
WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2)) AND ?3 <> '' AND instr(agent_id, ?3) = 1
    AND NOT EXISTS (
        SELECT 1 FROM session_checkpoints AS c
        WHERE c.tenant = sessions.tenant AND c.session_id = sessions.id)
    AND NOT EXISTS (
        SELECT 1 FROM checkpoint_writes AS w
        WHERE w.tenant = sessions.tenant AND w.session_id = sessions.id)
    AND NOT EXISTS (
        SELECT 1 FROM effects AS e
        WHERE e.tenant = sessions.tenant AND e.session_id = sessions.id)
RETURNING id, agent_id;

-- name: sqlite.gc.roots
SELECT refs FROM session_checkpoints WHERE tenant = ? AND refs <> x''
UNION ALL
SELECT refs FROM checkpoint_writes
WHERE tenant = ? AND refs <> x'' AND rowid NOT IN (SELECT value FROM json_each(?))
UNION ALL
SELECT refs FROM effects WHERE tenant = ? AND refs <> x'';

-- name: sqlite.gc.chunks
SELECT rowid, digest, length(data) FROM chunks WHERE tenant = ?;

-- name: sqlite.gc.delete_chunk
DELETE FROM chunks WHERE rowid = ?;

-- name: sqlite.gc.orphaned_writes
SELECT rowid FROM checkpoint_writes AS orphan
WHERE tenant = ? AND created_at <= ? AND NOT EXISTS (
    SELECT 1 FROM session_checkpoints AS found
    WHERE found.tenant = orphan.tenant AND found.session_id = orphan.session_id
        AND found.namespace = orphan.namespace AND found.external_id = orphan.external_id);

-- name: sqlite.gc.delete_write
DELETE FROM checkpoint_writes WHERE rowid = ?;

-- name: sqlite.transfer.consumed
SELECT id, consumed_at FROM session_checkpoints
WHERE tenant = ? AND session_id = ? AND consumed_at IS NOT NULL
    AND (expires_at IS NULL OR expires_at > ?);

-- name: writes.session
SELECT session_id, namespace, external_id, task_id, task_path, idx, channel, manifest, refs, row_sum,
    created_at
FROM checkpoint_writes WHERE tenant = ? AND session_id = ?
ORDER BY namespace, external_id, task_path, task_id, idx;

-- name: writes.places
SELECT DISTINCT session_id, namespace, external_id FROM checkpoint_writes WHERE tenant = ?
ORDER BY session_id, namespace, external_id;

-- name: sqlite.transfer.session
INSERT INTO sessions (tenant, id, agent_id, agent_type, task_description, status, continues_id,
    forked_from, paused_at, paused_until, pause_reason, resumed_at, metadata, created_at, updated_at,
    recoveries, project_dir, lease_token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: sqlite.transfer.checkpoint
INSERT INTO session_checkpoints (tenant, id, session_id, agent_id, namespace, seq, external_id,
    parent_id, name, label, description, checkpoint_type, retention_class, run_id, version,
    size_bytes, stored_bytes, git_branch, git_commit, git_uncommitted, workspace_commit, resumable,
    pinned, expires_at, metadata, created_at, chain_number, chain_previous, chain_hash, restored_at,
    consumed_at, state_snapshot, refs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: sqlite.transfer.effect
INSERT INTO effects (tenant, session_id, key, occurrence, name, fingerprint, status, attempt_id,
    attempts, result, refs, error, started_at, finished_at, begun_sum, outcome_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: sqlite.salvage.schema
-- As bytes, since what was altered may be no text any more.
SELECT rowid, CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
FROM sqlite_schema WHERE sql IS NOT NULL;

-- name: sqlite.salvage.schema_pages
SELECT pageno FROM dbstat WHERE name = 'sqlite_schema';

-- name: sqlite.salvage.put_right
UPDATE sqlite_schema SET type = ?, name = ?, tbl_name = ?, sql = ? WHERE rowid = ?;

-- name: sqlite.salvage.buried
SELECT tenant, session_id, first_number, last_number, seq, chain_hash FROM chain_tombstones
ORDER BY tenant {order}, session_id {order}, first_number {order};

-- name: sqlite.salvage.session_keys
SELECT tenant, id FROM sessions;

-- name: sqlite.salvage.rows
-- In these four, names in braces are of our own schema.
SELECT {columns} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ? ORDER BY rowid;

-- name: sqlite.salvage.add
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: sqlite.salvage.last_row
SELECT max(rowid) FROM {table};

-- name: sqlite.salvage.row_ids
SELECT rowid FROM {table} INDEXED BY {index} ORDER BY rowid {order};

-- name: sqlite.salvage.indexes
SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?;

-- name: sqlite.salvage.checkpoint_ids
SELECT id FROM session_checkpoints INDEXED BY sqlite_autoindex_session_checkpoints_1 ORDER BY id;

-- name: sqlite.salvage.owners
-- An agent belongs to whom most of its sessions and checkpoints belong to.
UPDATE agents SET tenant = (
    SELECT tenant FROM (
        SELECT tenant FROM sessions WHERE agent_id = agents.id
        UNION ALL SELECT tenant FROM session_checkpoints WHERE agent_id = agents.id)
    GROUP BY tenant ORDER BY count(*) DESC, tenant LIMIT 1)
WHERE id IN (
    SELECT a.id FROM sessions AS s JOIN agents AS a ON a.id = s.agent_id WHERE a.tenant <> s.tenant
    UNION SELECT a.id FROM session_checkpoints AS c JOIN agents AS a ON a.id = c.agent_id
    WHERE a.tenant <> c.tenant);

-- name: sqlite.salvage.strange_checkpoints
DELETE FROM session_checkpoints WHERE id IN (
    SELECT c.id FROM session_checkpoints AS c JOIN agents AS a ON a.id = c.agent_id
    WHERE a.tenant <> c.tenant)
RETURNING id;

-- name: sqlite.salvage.strange_sessions
DELETE FROM sessions WHERE rowid IN (
    SELECT s.rowid FROM sessions AS s JOIN agents AS a ON a.id = s.agent_id WHERE a.tenant <> s.tenant)
RETURNING id;

-- name: sqlite.salvage.parents
UPDATE agents SET parent_id = NULL WHERE parent_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM agents AS above WHERE above.tenant = agents.tenant AND above.id = agents.parent_id);

-- name: sqlite.salvage.sessions
-- Where nothing tells whose a session was, it gets an agent of its own kind.
INSERT INTO sessions (tenant, id, agent_id, agent_type, status)
SELECT tenant, session_id, coalesce(max(agent_id), '00000000-0000-4000-8000-000000000000'),
    'unknown', 'interrupted'
FROM (
    SELECT tenant, session_id, agent_id FROM session_checkpoints
    UNION ALL SELECT tenant, session_id, NULL FROM checkpoint_writes
    UNION ALL SELECT tenant, session_id, NULL FROM effects
    UNION ALL SELECT tenant, session_id, NULL FROM session_logs) AS owned
WHERE NOT EXISTS (
    SELECT 1 FROM sessions AS there WHERE there.tenant = owned.tenant AND there.id = owned.session_id)
GROUP BY tenant, session_id
RETURNING id;

-- name: sqlite.salvage.agents
INSERT INTO agents (tenant, id, name, agent_type)
SELECT DISTINCT tenant, agent_id, 'unknown', 'unknown' FROM (
    SELECT tenant, agent_id FROM sessions
    UNION SELECT tenant, agent_id FROM session_checkpoints) AS used
WHERE NOT EXISTS (
    SELECT 1 FROM agents AS there WHERE there.tenant = used.tenant AND there.id = used.agent_id);

-- name: sqlite.salvage.sequence
UPDATE sequences SET value = (SELECT coalesce(max(seq), 0) FROM session_checkpoints)
WHERE name = 'checkpoints';

-- name: sqlite.salvage.tombstones
DELETE FROM chain_tombstones;

-- name: sqlite.salvage.chains
SELECT tenant, id, chain_length, chain_head FROM sessions;

-- name: sqlite.salvage.tenants
SELECT DISTINCT tenant FROM sessions ORDER BY tenant;

-- name: sqlite.salvage.seals
SELECT tenant, seal FROM sealing;

-- name: sqlite.salvage.lost_seals
SELECT DISTINCT tenant FROM sessions
WHERE json_extract(metadata, '$."$sealed"') LIKE 'sealed:%'
    AND tenant NOT IN (SELECT tenant FROM sealing) ORDER BY tenant;

-- name: sqlite.salvage.agent_ids
SELECT id FROM agents WHERE tenant = ? ORDER BY id;

-- name: sqlite.salvage.log_ids
SELECT id FROM session_logs WHERE tenant = ? AND session_id = ? ORDER BY id;

-- name: sqlite.salvage.forget_result
UPDATE effects SET status = 'unknown', result = NULL, refs = x'', error = NULL
WHERE tenant = ? AND session_id = ? AND key = ? AND occurrence = ?
RETURNING session_id, key, occurrence, name, fingerprint, status, attempt_id, attempts, result,
    refs, error;

-- name: sqlite.salvage.sums
UPDATE effects SET begun_sum = ?, outcome_sum = ?
WHERE tenant = ? AND session_id = ? AND key = ? AND occurrence = ?;

-- name: sqlite.salvage.forget_agent_metadata
UPDATE agents SET metadata = NULL WHERE tenant = ? AND id = ?;

-- name: sqlite.salvage.forget_metadata
UPDATE sessions SET metadata = NULL WHERE tenant = ? AND id = ?;

-- name: sqlite.salvage.forget_task
UPDATE sessions SET task_description = NULL WHERE tenant = ? AND id = ?;

-- name: sqlite.salvage.forget_pause_reason
UPDATE sessions SET pause_reason = NULL WHERE tenant = ? AND id = ?;

-- name: sqlite.salvage.forget_log_line
DELETE FROM session_logs WHERE tenant = ? AND id = ?;

-- name: sqlite.salvage.forget_write
DELETE FROM checkpoint_writes
WHERE tenant = ? AND session_id = ? AND namespace = ? AND external_id = ? AND task_id = ? AND idx = ?;

-- name: langgraph.columns
-- Tables of LangGraph's SqliteSaver, which are only read.
SELECT name FROM pragma_table_info('writes');

-- name: langgraph.threads
SELECT thread_id, count(*) FROM checkpoints GROUP BY thread_id ORDER BY thread_id;

-- name: langgraph.ids
SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?
ORDER BY checkpoint_id, checkpoint_ns;

-- name: langgraph.checkpoint
SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?;

-- name: langgraph.writes
SELECT task_id, task_path, idx, channel, type, value FROM writes
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx;

-- name: langgraph.writes.without_path
SELECT task_id, '', idx, channel, type, value FROM writes
WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx;
