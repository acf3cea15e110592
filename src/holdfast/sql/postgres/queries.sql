-- The statements of the PostgreSQL store. SQLite defines the same names; what only one dialect needs
-- begins with the dialect's name. Parameters are named. A checkpoint's row is always called c.
--
-- A listing is a *.list statement, then any of its *.where fragments, then *.order. What has expired
-- is invisible from the moment of its expires_at on, and removed by checkpoints.purge_expired.
--
-- What changes something is durable when it returns, whatever the connection says about
-- synchronous_commit: it calls a function that locks the tenant, or has durably() in its condition.
--
-- A role that does not own the tables sees the rows of the tenant only that its transaction names. So
-- every statement names it: it calls a function that does, or has as_tenant() in its condition.

-- name: agents.insert
SELECT a.id, a.name, a.agent_type, a.status, a.parent_id, a.depth_level, a.metadata::text,
    a.created_at, a.updated_at, a.completed_at
FROM holdfast.create_agent(%(tenant)s, %(draft)s::jsonb) AS a;

-- name: agents.find
SELECT a.id, a.name, a.agent_type, a.status, a.parent_id, a.depth_level, a.metadata::text,
    a.created_at, a.updated_at, a.completed_at
FROM holdfast.agents AS a WHERE a.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND a.id = %(id)s::uuid;

-- name: agents.list
SELECT a.id, a.name, a.agent_type, a.status, a.parent_id, a.depth_level, a.metadata::text,
    a.created_at, a.updated_at, a.completed_at
FROM holdfast.agents AS a WHERE a.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)

-- name: agents.where.status
AND a.status = %(status)s

-- name: agents.where.parent_id
AND a.parent_id = %(parent_id)s::uuid

-- name: agents.order
ORDER BY a.created_at DESC, a.id DESC LIMIT %(limit)s::bigint

-- name: agents.update
UPDATE holdfast.agents AS a
SET status = coalesce(%(status)s::text, a.status),
    metadata = coalesce(%(metadata)s::jsonb, a.metadata),
    updated_at = clock_timestamp(),
    completed_at = CASE
        WHEN %(status)s::text IS NULL THEN a.completed_at
        WHEN %(status)s::text IN ('completed', 'failed', 'terminated')
            THEN clock_timestamp()
    END
WHERE a.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND a.id = %(id)s::uuid AND holdfast.durably()
RETURNING a.id, a.name, a.agent_type, a.status, a.parent_id, a.depth_level, a.metadata::text,
    a.created_at, a.updated_at, a.completed_at;

-- name: sessions.insert
SELECT s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id, s.forked_from,
    s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text, s.created_at,
    s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, s.recoveries,
    s.project_dir
FROM holdfast.create_session(%(tenant)s, %(draft)s::jsonb) AS s;

-- name: sessions.find
SELECT s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id, s.forked_from,
    s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text, s.created_at,
    s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, s.recoveries,
    s.project_dir
FROM holdfast.sessions AS s WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.id = %(id)s;

-- name: sessions.list
SELECT s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id, s.forked_from,
    s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text, s.created_at,
    s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, s.recoveries,
    s.project_dir
FROM holdfast.sessions AS s WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)

-- name: sessions.where.status
AND s.status = %(status)s

-- name: sessions.where.agent_type
AND s.agent_type = %(agent_type)s

-- name: sessions.where.agent_id
AND s.agent_id = %(agent_id)s::uuid

-- name: sessions.where.agent_prefix
AND s.agent_id BETWEEN %(first_agent)s::uuid AND %(last_agent)s::uuid

-- name: sessions.where.id_prefix
AND starts_with(s.id, %(id_prefix)s)

-- name: sessions.where.continued.yes
AND s.id IN (
    SELECT later.continues_id FROM holdfast.sessions AS later
    WHERE later.tenant = %(tenant)s AND later.continues_id IS NOT NULL)

-- name: sessions.where.continued.no
AND s.id NOT IN (
    SELECT later.continues_id FROM holdfast.sessions AS later
    WHERE later.tenant = %(tenant)s AND later.continues_id IS NOT NULL)

-- name: sessions.where.metadata
AND NOT EXISTS (
    SELECT FROM jsonb_each(%(metadata)s::jsonb) AS wanted
    WHERE s.metadata -> wanted.key IS DISTINCT FROM wanted.value)

-- name: sessions.order
ORDER BY s.created_at DESC, s.id DESC LIMIT %(limit)s::bigint

-- name: sessions.update
UPDATE holdfast.sessions AS s
SET status = coalesce(%(status)s::text, s.status),
    resumed_at = coalesce(%(resumed_at)s::timestamptz, s.resumed_at),
    paused_at = CASE WHEN %(status)s::text = 'paused' THEN clock_timestamp()
        WHEN %(status)s::text IS NULL THEN s.paused_at END,
    paused_until = CASE WHEN %(status)s::text = 'paused' THEN %(paused_until)s::timestamptz
        WHEN %(status)s::text IS NULL THEN s.paused_until END,
    pause_reason = CASE WHEN %(status)s::text = 'paused' THEN %(pause_reason)s::text
        WHEN %(status)s::text IS NULL THEN s.pause_reason END,
    metadata = coalesce(%(metadata)s::jsonb, s.metadata),
    task_description = coalesce(%(task_description)s::text, s.task_description),
    updated_at = clock_timestamp()
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.id = %(id)s AND holdfast.durably()
    AND (%(expected)s::text[] IS NULL OR s.status = ANY (%(expected)s::text[]))
    AND (%(status)s::text IS NULL OR s.status <> 'completed' OR %(status)s::text = 'completed')
    AND (%(fence)s::bigint IS NULL OR s.lease_token = %(fence)s::bigint)
RETURNING s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id,
    s.forked_from, s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text,
    s.created_at, s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at,
    s.recoveries, s.project_dir;

-- name: leases.list
SELECT s.id, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at,
    s.lease_expires_at <= clock_timestamp()
FROM holdfast.sessions AS s WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.lease_owner IS NOT NULL

-- name: leases.where.id
AND s.id = %(id)s

-- name: leases.renew
UPDATE holdfast.sessions AS s
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(seconds)s::double precision)
FROM unnest(%(ids)s::text[], %(tokens)s::bigint[]) AS held (id, token)
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.id = held.id AND s.lease_token = held.token
    AND s.lease_owner IS NOT NULL AND holdfast.durably()
RETURNING s.id;

-- name: leases.release
UPDATE holdfast.sessions AS s
SET lease_owner = NULL, lease_token = s.lease_token + 1, lease_since = NULL, lease_expires_at = NULL
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.id = %(id)s AND s.lease_token = %(token)s
    AND s.lease_owner IS NOT NULL AND holdfast.durably()
RETURNING s.id;

-- name: postgres.leases.acquire
SELECT a.granted, s.id, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, a.expired
FROM holdfast.acquire_lease(
    %(tenant)s, %(id)s, %(owner)s, %(seconds)s::double precision, %(over)s::bigint) AS a,
    LATERAL (SELECT (a.held).*) AS s;

-- name: postgres.leases.interrupt
WITH marked AS (
    UPDATE holdfast.sessions AS s
    SET status = CASE WHEN s.recoveries < %(most)s THEN 'interrupted' ELSE 'failed' END,
        recoveries = s.recoveries + 1, updated_at = clock_timestamp(), lease_owner = NULL,
        lease_token = s.lease_token + 1, lease_since = NULL, lease_expires_at = NULL
    WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
        AND s.id = %(id)s AND s.lease_token = %(token)s
        AND s.lease_owner IS NOT NULL AND s.status = 'active' AND holdfast.durably()
    RETURNING s.*
), logged AS (
    INSERT INTO holdfast.session_logs (tenant, session_id, level, message, data, created_at)
    SELECT m.tenant, m.id, 'warning', %(message)s, %(data)s::jsonb, clock_timestamp()
    FROM marked AS m
)
SELECT s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id, s.forked_from,
    s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text, s.created_at,
    s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, s.recoveries,
    s.project_dir
FROM marked AS s;

-- name: sessions.delete
SELECT erased FROM holdfast.sweep(%(tenant)s, %(id)s, false, %(agent_prefix)s::text);

-- name: sessions.usage
SELECT s.id, count(c.id), coalesce(sum(c.size_bytes), 0)::bigint,
    coalesce(sum(c.stored_bytes), 0)::bigint, (array_agg(c.id ORDER BY c.seq DESC))[1]
FROM holdfast.sessions AS s LEFT JOIN holdfast.session_checkpoints AS c
    ON c.tenant = s.tenant AND c.session_id = s.id
    AND (c.expires_at IS NULL OR c.expires_at > now())
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)

-- name: sessions.usage.where.ids
AND s.id = ANY (%(ids)s::text[])

-- name: sessions.usage.order
GROUP BY s.tenant, s.id ORDER BY s.created_at DESC, s.id DESC

-- name: checkpoints.list
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at
FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now())

-- name: checkpoints.where.session_id
AND c.session_id = %(session_id)s

-- name: checkpoints.where.namespace
AND c.namespace = %(namespace)s

-- name: checkpoints.where.agent_id
AND c.agent_id = %(agent_id)s::uuid

-- name: checkpoints.where.agent_prefix
AND c.agent_id BETWEEN %(first_agent)s::uuid AND %(last_agent)s::uuid

-- name: checkpoints.where.id
AND c.id = %(id)s::uuid

-- name: checkpoints.where.id_prefix
AND starts_with(c.id::text, %(id_prefix)s)

-- name: checkpoints.where.name
AND c.name = %(name)s

-- name: checkpoints.where.label
AND c.label = %(label)s

-- name: checkpoints.where.external_id
AND c.external_id = %(external_id)s

-- name: checkpoints.where.checkpoint_type
AND c.checkpoint_type = %(checkpoint_type)s

-- name: checkpoints.where.retention_class
AND c.retention_class = %(retention_class)s

-- name: checkpoints.where.run_id
AND c.run_id = %(run_id)s

-- name: checkpoints.where.version
AND c.version = %(version)s::bigint

-- name: checkpoints.where.resumable.yes
AND c.resumable AND c.quarantined_at IS NULL

-- name: checkpoints.where.resumable.no
AND NOT (c.resumable AND c.quarantined_at IS NULL)

-- name: checkpoints.where.quarantined.yes
AND c.quarantined_at IS NOT NULL

-- name: checkpoints.where.quarantined.no
AND c.quarantined_at IS NULL

-- name: checkpoints.where.before_seq
AND c.seq < %(before_seq)s::bigint

-- name: checkpoints.where.metadata
AND NOT EXISTS (
    SELECT FROM jsonb_each(%(metadata)s::jsonb) AS wanted
    WHERE c.metadata -> wanted.key IS DISTINCT FROM wanted.value)

-- name: checkpoints.order
ORDER BY c.seq DESC LIMIT %(limit)s::bigint

-- name: checkpoints.latest_of_agent
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at
FROM holdfast.session_checkpoints AS c
WHERE c.agent_id = %(agent_id)s::uuid AND c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now())
    AND c.quarantined_at IS NULL
ORDER BY c.created_at DESC, c.id DESC LIMIT 1;

-- name: checkpoints.payload
-- All that a link of the chain is made of, so that the row proves itself.
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at,
    c.chain_number, c.chain_previous, c.chain_hash, c.manifest, c.refs, c.quarantined_at
FROM holdfast.session_checkpoints AS c
WHERE c.id = %(id)s::uuid AND c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now() OR %(anyway)s);

-- name: checkpoints.payloads
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at,
    c.chain_number, c.chain_previous, c.chain_hash, c.manifest, c.refs, c.quarantined_at
FROM holdfast.session_checkpoints AS c
WHERE c.id = ANY (%(ids)s::uuid[]) AND c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now());

-- name: checkpoints.newest
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at,
    c.chain_number, c.chain_previous, c.chain_hash, c.manifest, c.refs, c.quarantined_at
FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now())

-- name: checkpoints.quarantine
UPDATE holdfast.session_checkpoints AS c SET quarantined_at = clock_timestamp()
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND c.id = ANY (%(ids)s::uuid[]) AND c.quarantined_at IS NULL AND holdfast.durably()
RETURNING c.id;

-- name: checkpoints.lift_quarantine
UPDATE holdfast.session_checkpoints AS c SET quarantined_at = NULL
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND c.id = ANY (%(ids)s::uuid[]) AND c.quarantined_at IS NOT NULL AND holdfast.durably()
RETURNING c.id;

-- name: checkpoints.count_quarantined
SELECT count(*) FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.quarantined_at IS NOT NULL;

-- name: checkpoints.mark_restored
UPDATE holdfast.session_checkpoints AS c SET restored_at = clock_timestamp()
WHERE c.id = %(id)s::uuid AND c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now()) AND holdfast.durably()
    AND holdfast.fenced(c.tenant, c.session_id, %(fence)s::bigint)
RETURNING c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at;

-- name: checkpoints.mark_restoring
UPDATE holdfast.session_checkpoints AS c
SET restoring_until = clock_timestamp() + make_interval(secs => %(seconds)s::double precision)
WHERE c.id = %(id)s::uuid AND c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now()) AND holdfast.durably()
    AND holdfast.fenced(c.tenant, c.session_id, %(fence)s::bigint)
RETURNING c.id;

-- name: postgres.lock_owners
-- In the order of their ids, as `holdfast.remove_checkpoints` locks them.
SELECT s.id FROM holdfast.sessions AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')
         OR holdfast.refuse_isolation())
    AND s.id IN (
        SELECT c.session_id FROM holdfast.session_checkpoints AS c
        WHERE c.tenant = %(tenant)s AND c.id = ANY (%(ids)s::uuid[]))
ORDER BY s.id FOR NO KEY UPDATE OF s;

-- name: checkpoints.still_to_go
-- Of what a plan removes: all but what is being restored, and the lines that the plan does not hold for any
-- more. Those are found by the newest to resume from, unless that may go too, and by children that the plan does
-- not know.
WITH going AS MATERIALIZED (
    SELECT c.id, c.session_id, c.namespace, c.restoring_until
      FROM holdfast.session_checkpoints AS c
     WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.id = ANY (%(ids)s::uuid[])
), planned AS MATERIALIZED (
    SELECT unnest(%(ids)s::uuid[] || %(beside)s::uuid[]) AS id
), present AS MATERIALIZED (
    SELECT c.id, c.session_id, c.namespace, c.seq, c.parent_id,
           c.resumable AND c.quarantined_at IS NULL AS good
      FROM holdfast.session_checkpoints AS c
      JOIN (SELECT DISTINCT going.session_id, going.namespace FROM going) AS line
        ON line.session_id = c.session_id AND line.namespace = c.namespace
     WHERE c.tenant = %(tenant)s AND (c.expires_at IS NULL OR c.expires_at > now())
), newest AS (
    SELECT DISTINCT ON (p.session_id, p.namespace) p.id, p.session_id, p.namespace
      FROM present AS p WHERE p.good ORDER BY p.session_id, p.namespace, p.seq DESC
), changed AS MATERIALIZED (
    SELECT newest.session_id, newest.namespace FROM newest JOIN going ON going.id = newest.id
     WHERE NOT %(newest_too)s
    UNION
    SELECT child.session_id, child.namespace
      FROM present AS child
      LEFT JOIN planned ON planned.id = child.id
      JOIN holdfast.session_checkpoints AS parent
        ON parent.tenant = %(tenant)s AND parent.session_id = child.session_id
       AND parent.namespace = child.namespace AND parent.external_id = child.parent_id
      JOIN going ON going.id = parent.id
     WHERE planned.id IS NULL
)
SELECT going.id FROM going
  LEFT JOIN changed ON changed.session_id = going.session_id AND changed.namespace = going.namespace
 WHERE changed.session_id IS NULL
   AND (going.restoring_until IS NULL OR going.restoring_until <= now());

-- name: checkpoints.delete
SELECT holdfast.remove_checkpoints(
    %(tenant)s, %(ids)s::uuid[], %(fence)s::bigint, %(planned)s, true);

-- name: checkpoints.expired
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at
FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.expires_at <= now()
ORDER BY c.seq DESC;

-- name: checkpoints.purge_expired
SELECT holdfast.remove_checkpoints(%(tenant)s, ARRAY(
    SELECT c.id FROM holdfast.session_checkpoints AS c
    WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.expires_at <= now()),
    NULL, false, false);

-- name: chain.session
SELECT s.chain_length, s.chain_head FROM holdfast.sessions AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND s.id = %(session_id)s;

-- name: chain.links
SELECT c.id, c.seq, c.chain_number, c.chain_previous, c.chain_hash
FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.session_id = %(session_id)s
ORDER BY c.chain_number, c.seq;

-- name: postgres.chain.set
UPDATE holdfast.sessions AS s SET chain_head = %(head)b::bytea
WHERE s.tenant = %(tenant)s AND s.id = %(session_id)s;

-- name: chain.tombstones
SELECT t.first_number, t.last_number, t.seq, t.chain_hash FROM holdfast.chain_tombstones AS t
WHERE t.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND t.session_id = %(session_id)s
ORDER BY t.first_number;

-- name: checkpoints.ids
SELECT c.id FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND (c.expires_at IS NULL OR c.expires_at > now()) ORDER BY c.seq;

-- name: checkpoints.workspace_commits
SELECT DISTINCT c.workspace_commit FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.workspace_commit IS NOT NULL;

-- name: chunks.read
SELECT k.digest, k.codec, k.data FROM holdfast.chunks AS k
WHERE k.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND k.digest = ANY (%(digests)s::bytea[]);

-- name: chunks.find
SELECT k.digest FROM holdfast.chunks AS k
WHERE k.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND k.digest = ANY (%(digests)s::bytea[]);

-- name: chunks.digests
SELECT k.digest FROM holdfast.chunks AS k
WHERE k.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND k.digest < %(aside)b::bytea
ORDER BY k.digest;

-- name: chunks.set_aside
WITH moved AS (
    DELETE FROM holdfast.chunks AS k
    WHERE k.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
        AND k.digest = %(digest)b::bytea AND holdfast.durably()
        AND CASE WHEN k.codec = 0 THEN k.data END IS NOT DISTINCT FROM %(stored)b::bytea
    RETURNING k.codec, k.data)
INSERT INTO holdfast.chunks AS k (tenant, digest, codec, data)
SELECT %(tenant)s, %(aside)b::bytea, m.codec, m.data FROM moved AS m
ON CONFLICT (tenant, digest) DO UPDATE SET codec = excluded.codec, data = excluded.data
RETURNING 1;

-- name: postgres.made
WITH here AS (SELECT to_regnamespace(rtrim('holdfast.', '.')) AS oid)
SELECT 'table', c.relname FROM pg_class AS c, here WHERE c.relnamespace = here.oid AND c.relkind = 'r'
UNION ALL
SELECT 'column', c.relname || '.' || a.attname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid, here
WHERE c.relnamespace = here.oid AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'row-level security of', c.relname FROM pg_class AS c, here
WHERE c.relnamespace = here.oid AND c.relrowsecurity
    AND EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polname = 'of_tenant')
UNION ALL
SELECT 'index', c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid, here
WHERE c.relnamespace = here.oid AND i.indisvalid
UNION ALL
SELECT 'trigger', t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid, here
WHERE c.relnamespace = here.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
UNION ALL
SELECT 'function', p.proname FROM pg_proc AS p, here WHERE p.pronamespace = here.oid
UNION ALL
SELECT 'domain', t.typname FROM pg_type AS t, here WHERE t.typnamespace = here.oid AND t.typtype = 'd';

-- name: postgres.check_structure
-- The document for SQL is the one that is restored.
SELECT c.id FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND c.state_snapshot IS DISTINCT FROM c.manifest::jsonb ORDER BY c.seq;

-- name: postgres.check_sequence
-- A role that may only read is not told where the sequence stands.
SELECT CASE WHEN has_sequence_privilege('holdfast.session_checkpoints_seq_seq', 'USAGE, SELECT')
        THEN coalesce(pg_sequence_last_value('holdfast.session_checkpoints_seq_seq'), 0) END,
    coalesce(max(c.seq), 0)
FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s);

-- name: postgres.waits
-- Rows are waited for by way of whole transactions: what counts is who is at our tables at all.
SELECT w.pid, pg_blocking_pids(w.pid), floor(extract(epoch FROM clock_timestamp() - w.waitstart))::int
FROM pg_locks AS w
WHERE NOT w.granted AND w.waitstart < clock_timestamp() - interval '1 second'
    AND EXISTS (
        SELECT FROM pg_locks AS l
        JOIN pg_class AS c ON c.oid = l.relation
        JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
        WHERE l.pid = w.pid AND c.relnamespace = to_regnamespace(rtrim('holdfast.', '.')))
ORDER BY w.waitstart;

-- name: chunks.total_bytes
SELECT coalesce(sum(pg_column_size(k.data)), 0)::bigint FROM holdfast.chunks AS k
WHERE k.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s);

-- name: writes.read
SELECT w.session_id, w.namespace, w.external_id, w.task_id, w.task_path, w.idx, w.channel, w.manifest,
    w.refs, w.row_sum
FROM unnest(%(session_ids)s::text[], %(namespaces)s::text[], %(external_ids)s::text[])
        AS place (session_id, namespace, external_id)
JOIN holdfast.checkpoint_writes AS w
    ON w.tenant = %(tenant)s AND w.session_id = place.session_id
    AND w.namespace = place.namespace AND w.external_id = place.external_id
WHERE holdfast.as_tenant(%(tenant)s)
ORDER BY w.task_path, w.task_id, w.idx;

-- name: effects.begin
-- Answers only if the row is the draft's own: new, or in place of the attempt that it names. The
-- session's row is locked against a change of its lease, and shared by steps that run at once.
INSERT INTO holdfast.effects AS e (tenant, session_id, key, occurrence, name, fingerprint, status,
    attempt_id, result, refs, error, started_at, finished_at, begun_sum, outcome_sum)
SELECT s.tenant, s.id, %(key)s, %(occurrence)s::integer, %(name)s, %(fingerprint)b::bytea,
    %(status)s, %(attempt_id)s::uuid, %(result)s, %(refs)b::bytea, %(error)s::jsonb,
    clock_timestamp(), CASE WHEN %(status)s <> 'started' THEN clock_timestamp() END,
    sha256(%(beginning)b::bytea || '1'::bytea), %(outcome_sum)b::bytea
FROM holdfast.sessions AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND s.id = %(session_id)s
    AND (%(fence)s::bigint IS NULL OR s.lease_token = %(fence)s::bigint)
    -- Content is kept for a row that takes it; the order of conditions is free, that of a CASE is not.
    AND CASE WHEN EXISTS (
            SELECT FROM holdfast.effects AS o
            WHERE o.tenant = %(tenant)s AND o.session_id = %(session_id)s AND o.key = %(key)s
                AND o.occurrence = %(occurrence)s::integer
                AND o.attempt_id IS DISTINCT FROM %(instead_of)s::uuid)
        THEN false
        ELSE holdfast.keep_chunks(s.tenant, %(digests)b::bytea[], %(data)b::bytea[])
    END
FOR SHARE
ON CONFLICT (tenant, session_id, key, occurrence) DO UPDATE
SET name = excluded.name, fingerprint = excluded.fingerprint, status = excluded.status,
    attempt_id = excluded.attempt_id, attempts = e.attempts + 1,
    result = excluded.result, refs = excluded.refs, error = excluded.error,
    started_at = excluded.started_at, finished_at = excluded.finished_at,
    begun_sum = sha256(%(beginning)b::bytea || (e.attempts + 1)::text::bytea),
    outcome_sum = excluded.outcome_sum
WHERE e.attempt_id = %(instead_of)s::uuid
RETURNING e.attempts, e.started_at, e.finished_at;

-- name: effects.finish
UPDATE holdfast.effects AS e
SET status = %(status)s, result = %(result)s, refs = %(refs)b::bytea, error = %(error)s::jsonb,
    outcome_sum = %(outcome_sum)b::bytea, finished_at = clock_timestamp()
FROM (
    SELECT s.id FROM holdfast.sessions AS s
    WHERE s.tenant = %(tenant)s AND s.id = %(session_id)s
        AND (%(fence)s::bigint IS NULL OR s.lease_token = %(fence)s::bigint)
        AND CASE WHEN EXISTS (
                SELECT FROM holdfast.effects AS o
                WHERE o.tenant = %(tenant)s AND o.session_id = %(session_id)s AND o.key = %(key)s
                    AND o.occurrence = %(occurrence)s::integer
                    AND o.attempt_id = %(attempt_id)s::uuid)
            THEN holdfast.keep_chunks(s.tenant, %(digests)b::bytea[], %(data)b::bytea[])
            ELSE false
        END
    FOR SHARE) AS held
WHERE e.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND e.session_id = %(session_id)s AND e.key = %(key)s
    AND e.occurrence = %(occurrence)s::integer AND e.attempt_id = %(attempt_id)s::uuid
RETURNING e.attempts;

-- name: effects.list
SELECT e.session_id, e.key, e.occurrence, e.name, e.fingerprint, e.status, e.attempt_id, e.attempts,
    e.result, e.refs, e.error::text, e.started_at, e.finished_at, e.begun_sum, e.outcome_sum
FROM holdfast.effects AS e WHERE e.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)

-- name: effects.where.session_id
AND e.session_id = %(session_id)s

-- name: effects.where.key
AND e.key = %(key)s

-- name: effects.where.occurrence
AND e.occurrence = %(occurrence)s::integer

-- name: effects.where.status
AND e.status = %(status)s

-- name: effects.order
ORDER BY e.started_at, e.key, e.occurrence LIMIT %(limit)s::bigint

-- name: effects.places
SELECT e.session_id, e.key, e.occurrence FROM holdfast.effects AS e
WHERE e.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
ORDER BY e.session_id, e.started_at, e.key, e.occurrence;

-- name: logs.insert
INSERT INTO holdfast.session_logs (tenant, session_id, level, message, data, created_at)
SELECT s.tenant, s.id, %(level)s, %(message)s, %(data)s::jsonb, clock_timestamp()
FROM holdfast.sessions AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.id = %(session_id)s AND holdfast.durably()
RETURNING id, session_id, level, message, data::text, created_at;

-- name: logs.list
SELECT l.id, l.session_id, l.level, l.message, l.data::text, l.created_at
FROM holdfast.session_logs AS l WHERE l.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND l.session_id = %(session_id)s

-- name: logs.where.level
AND l.level = %(level)s

-- name: logs.where.key
AND jsonb_exists(l.data, %(key)s)

-- name: logs.order
ORDER BY l.id LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint

-- name: logs.order.newest
ORDER BY l.id DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint

-- name: packs.find
SELECT w.commit_id FROM holdfast.workspace_packs AS w
WHERE w.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND w.commit_id = ANY (%(commits)s::text[]);

-- name: packs.below
SELECT b.commit_id, b.needs::text
FROM holdfast.packs_below(%(tenant)s, ARRAY[%(commit)s::text], %(have)s::text[]) AS b
WHERE holdfast.as_tenant(%(tenant)s) LIMIT %(limit)s::bigint;

-- name: packs.data
SELECT w.data FROM holdfast.workspace_packs AS w
WHERE w.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND w.commit_id = %(commit)s;

-- name: postgres.packs.needs
SELECT w.commit_id, w.needs::text FROM holdfast.workspace_packs AS w
WHERE w.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s);

-- name: packs.usage
SELECT count(*), coalesce(sum(octet_length(w.data)), 0)::bigint
FROM holdfast.workspace_packs AS w WHERE w.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s);

-- name: sealing.read
SELECT s.seal FROM holdfast.sealing AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s);

-- What is sealed is so from its first row. Both ends of an index tell, whatever was added since.
-- name: sealing.standing
SELECT s.seal FROM holdfast.sealing AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
UNION ALL
SELECT NULL
WHERE holdfast.as_tenant(%(tenant)s)
    AND NOT EXISTS (SELECT 1 FROM holdfast.sealing AS s WHERE s.tenant = %(tenant)s)
    AND (starts_with((SELECT c.manifest FROM holdfast.session_checkpoints AS c
            WHERE c.tenant = %(tenant)s ORDER BY c.session_id LIMIT 1), %(start)s::text)
        OR starts_with((SELECT c.manifest FROM holdfast.session_checkpoints AS c
            WHERE c.tenant = %(tenant)s ORDER BY c.session_id DESC LIMIT 1), %(start)s::text));

-- name: postgres.seal
SELECT holdfast.seal_tenant(%(tenant)s, %(seal)s, %(instead_of)s);

-- name: reseal.rows
SELECT {columns} FROM holdfast.{table} AS t
WHERE t.tenant = %(tenant)s {following} ORDER BY {keys} LIMIT %(limit)s {locked};

-- name: reseal.row
UPDATE holdfast.{table} AS t SET {values} WHERE t.tenant = %(tenant)s AND {row};

-- name: reseal.checkpoint
UPDATE holdfast.session_checkpoints AS c
SET description = %(description)s, metadata = %(metadata)s::jsonb, manifest = %(manifest)s::text,
    state_snapshot = %(manifest)s::text::jsonb, chain_previous = %(previous)b::bytea,
    chain_hash = %(link)b::bytea
WHERE c.id = %(id)s::uuid;

-- name: postgres.reseal.session
SELECT s.chain_head FROM holdfast.sessions AS s
WHERE s.tenant = %(tenant)s AND s.id = %(session_id)s FOR NO KEY UPDATE;

-- name: postgres.reseal.document
SELECT %(document)s::jsonb::text;

-- name: postgres.reseal.begin
SELECT holdfast.as_tenant(%(tenant)s), holdfast.durably();

-- name: migrations.list
SELECT version, checksum FROM holdfast.schema_migrations ORDER BY version;

-- name: migrations.insert
INSERT INTO holdfast.schema_migrations (version, checksum) VALUES (%(version)s, %(checksum)s);

-- name: postgres.put
-- One text for an answer: every column costs time.
SELECT holdfast.put(
    %(tenant)s, %(session_id)s, %(namespace)s, %(id)s::uuid, %(name)s, %(external_id)s,
    %(parent_id)s, %(parent_is_newest)s::boolean, %(checkpoint_type)s, %(retention_class)s,
    %(version)s::bigint, %(size_bytes)s::bigint, %(fence)s::bigint, %(metadata)s::jsonb,
    %(manifest)s, %(refs)b::bytea, %(content)b::bytea, %(digest)b::bytea, %(chunk)b::bytea,
    %(digests)b::bytea[], %(data)b::bytea[], %(expects)b::bytea[], %(draft)s::jsonb, %(session)s);

-- name: postgres.packs.put
SELECT holdfast.put_pack(
    %(tenant)s, %(commit)s, %(needs)s::text[], %(data)b::bytea, %(replace)s);

-- name: postgres.packs.remove
SELECT r.packs, r.bytes FROM holdfast.remove_packs(
    %(tenant)s, %(commits)s::text[], clock_timestamp() - %(grace)s::interval, %(dry_run)s) AS r;

-- name: postgres.put_writes
SELECT holdfast.put_writes(
    %(tenant)s, %(session)s::jsonb, %(namespace)s, %(external_id)s, %(writes)s::jsonb,
    %(manifests)s::text[], %(refs)b::bytea[], %(sums)b::bytea[],
    %(digests)b::bytea[], %(data)b::bytea[], %(expects)b::bytea[], %(fence)s::bigint);

-- name: postgres.read
-- One checkpoint with everything that its state is made of; *.where fragments go between.
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at,
    c.chain_number, c.chain_previous, c.chain_hash, c.manifest, c.refs, c.quarantined_at,
    k.digests, k.data
FROM (
    SELECT c.* FROM holdfast.session_checkpoints AS c
    WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
        AND (c.expires_at IS NULL OR c.expires_at > now())

-- name: postgres.read.end
    ORDER BY c.seq DESC LIMIT 1
) AS c LEFT JOIN LATERAL (
    SELECT array_agg(k.digest) AS digests, array_agg(k.data) AS data
    FROM holdfast.chunk_closure(c.tenant, c.refs) AS k WHERE k.codec = 0
) AS k ON true

-- name: postgres.copy.sources
SELECT c.id, c.session_id, c.agent_id, c.namespace, c.seq, c.external_id, c.parent_id, c.name,
    c.label, c.description, c.checkpoint_type, c.retention_class, c.run_id, c.version,
    c.size_bytes, c.stored_bytes, c.git_branch, c.git_commit, c.git_uncommitted,
    c.workspace_commit, c.resumable, c.pinned, c.expires_at, c.metadata::text, c.created_at, c.restored_at,
    c.chain_number, c.chain_previous, c.chain_hash, c.manifest, c.refs, c.quarantined_at
FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND c.session_id = %(id)s
    AND (%(ids)s::uuid[] IS NULL OR c.id = ANY (%(ids)s::uuid[]))
    AND (c.expires_at IS NULL OR c.expires_at > now()) ORDER BY c.seq;

-- name: postgres.lock_tenant
SELECT holdfast.lock_tenant(%(tenant)s, false);

-- name: postgres.copy.lock
-- Puts to the session wait until the copy is made.
SELECT s.id FROM holdfast.sessions AS s WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND s.id = %(id)s FOR SHARE;

-- name: postgres.copy
SELECT s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id, s.forked_from,
    s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text, s.created_at,
    s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, s.recoveries,
    s.project_dir
FROM holdfast.copy_session(
    %(tenant)s, %(source)s, %(draft)s::jsonb, %(ids)s::uuid[], %(new_ids)s::uuid[],
    %(contents)b::bytea[]) AS s;

-- name: postgres.session.metadata
-- Held until the merged document is stored.
SELECT s.metadata::text FROM holdfast.sessions AS s
WHERE s.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND s.id = %(id)s FOR NO KEY UPDATE;

-- name: postgres.effects.fence
-- Why an effect was not recorded: raises if it was the fence.
SELECT holdfast.fenced(%(tenant)s, %(session_id)s, %(fence)s::bigint)
WHERE holdfast.as_tenant(%(tenant)s);

-- name: postgres.erase_threads
SELECT holdfast.erase_threads(
    %(tenant)s, %(ids)s::text[], %(namespace)s, %(agent_prefix)s);

-- name: postgres.erase_tenant
SELECT holdfast.erase_tenant(%(tenant)s);

-- name: postgres.gc
SELECT chunks, bytes, writes FROM holdfast.sweep(%(tenant)s, NULL, %(dry_run)s);

-- name: postgres.migrations.exists
SELECT to_regclass('holdfast.schema_migrations') IS NOT NULL,
    current_setting('server_encoding');

-- name: postgres.migrations.lock
-- The functions of the schema may not be there yet, so this says itself what durably() does.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.schema_migrations', 0)),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', true) END;

-- name: postgres.schema.exists
SELECT to_regnamespace(rtrim('holdfast.', '.')) IS NOT NULL;

-- name: postgres.schema.create
DO $$ BEGIN EXECUTE 'CREATE SCHEMA IF NOT EXISTS ' || rtrim('holdfast.', '.'); END $$;

-- name: postgres.check
-- What a connection must have: one snapshot for each statement, and an end to every wait.
SELECT set_config('default_transaction_isolation', 'read committed', false),
    CASE WHEN current_setting('lock_timeout') = '0'
        THEN set_config('lock_timeout', '30s', false) END;

-- name: postgres.transfer.begin
-- All of a session as of one moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: postgres.transfer.consumed
SELECT c.id, c.consumed_at FROM holdfast.session_checkpoints AS c
WHERE c.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
    AND c.session_id = %(session_id)s AND c.consumed_at IS NOT NULL
    AND (c.expires_at IS NULL OR c.expires_at > now());

-- name: writes.session
SELECT w.session_id, w.namespace, w.external_id, w.task_id, w.task_path, w.idx, w.channel, w.manifest,
    w.refs, w.row_sum, w.created_at
FROM holdfast.checkpoint_writes AS w
WHERE w.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s) AND w.session_id = %(session_id)s
ORDER BY w.namespace, w.external_id, w.task_path, w.task_id, w.idx;

-- name: writes.places
SELECT DISTINCT w.session_id, w.namespace, w.external_id FROM holdfast.checkpoint_writes AS w
WHERE w.tenant = %(tenant)s AND holdfast.as_tenant(%(tenant)s)
ORDER BY w.session_id, w.namespace, w.external_id;

-- name: postgres.transfer.stage
SELECT holdfast.keep_chunks(%(tenant)s, %(digests)b::bytea[], %(data)b::bytea[]);

-- name: postgres.transfer.content
SELECT holdfast.add_chunks(
    %(tenant)s, %(digests)b::bytea[], %(data)b::bytea[], %(expects)b::bytea[]);

-- name: postgres.transfer.packs
SELECT holdfast.require_packs(%(tenant)s, %(commits)s::text[]);

-- name: postgres.transfer.agent
INSERT INTO holdfast.agents (tenant, id, name, agent_type, status, parent_id, depth_level, metadata,
    created_at, updated_at, completed_at)
VALUES (%(tenant)s, %(id)s::uuid, %(name)s, %(agent_type)s, %(status)s, %(parent_id)s::uuid,
    %(depth_level)s, %(metadata)s::jsonb, %(created_at)s, %(updated_at)s, %(completed_at)s)
ON CONFLICT DO NOTHING;

-- name: postgres.transfer.session
INSERT INTO holdfast.sessions AS s (tenant, id, agent_id, agent_type, task_description, status,
    continues_id, forked_from, paused_at, paused_until, pause_reason, resumed_at, metadata, created_at,
    updated_at, recoveries, project_dir, lease_token)
VALUES (%(tenant)s, %(id)s, %(agent_id)s::uuid, %(agent_type)s, %(task_description)s, %(status)s,
    %(continues_id)s, %(forked_from)s, %(paused_at)s, %(paused_until)s, %(pause_reason)s,
    %(resumed_at)s, %(metadata)s::jsonb, %(created_at)s, %(updated_at)s, %(recoveries)s,
    %(project_dir)s, holdfast.first_token())
ON CONFLICT (tenant, id) DO NOTHING
RETURNING s.id, s.agent_id, s.agent_type, s.task_description, s.status, s.continues_id, s.forked_from,
    s.paused_at, s.paused_until, s.pause_reason, s.resumed_at, s.metadata::text, s.created_at,
    s.updated_at, s.lease_owner, s.lease_token, s.lease_since, s.lease_expires_at, s.recoveries,
    s.project_dir;

-- name: postgres.transfer.checkpoint
-- The sequence draws seq, in the order of these statements, and each one is the next link.
WITH place AS (
    SELECT s.chain_length + 1 AS number, s.chain_head AS previous,
        nextval('holdfast.session_checkpoints_seq_seq') AS seq
    FROM holdfast.sessions AS s WHERE s.tenant = %(tenant)s AND s.id = %(session_id)s
), stored AS (
    INSERT INTO holdfast.session_checkpoints AS c (
        tenant, id, external_id, session_id, agent_id, namespace, seq, parent_id, name, label,
        description, checkpoint_type, retention_class, state_snapshot, manifest, refs, run_id,
        version, size_bytes, stored_bytes, git_branch, git_commit, git_uncommitted,
        workspace_commit, resumable, pinned, consumed_at, expires_at, metadata, created_at,
        restored_at, chain_number, chain_previous, chain_hash)
    SELECT %(tenant)s, %(id)s::uuid, %(external_id)s, %(session_id)s, %(agent_id)s::uuid,
        %(namespace)s, p.seq, %(parent_id)s, %(name)s, %(label)s::text, %(description)s,
        %(checkpoint_type)s, %(retention_class)s, %(manifest)s::text::jsonb, %(manifest)s::text,
        %(refs)b::bytea, %(run_id)s, %(version)s, %(size_bytes)s, %(stored_bytes)s::bigint,
        %(git_branch)s, %(git_commit)s, %(git_uncommitted)s, %(workspace_commit)s, %(resumable)s,
        %(pinned)s, %(consumed_at)s::timestamptz, %(expires_at)s::timestamptz, %(metadata)s::jsonb,
        %(created_at)s::timestamptz, %(restored_at)s::timestamptz, p.number, p.previous,
        holdfast.link_hash(
            p.previous, p.number, p.seq, %(agent_id)s::uuid, %(stored_bytes)s::bigint,
            %(created_at)s::timestamptz, %(parent_id)s::text, %(label)s::text,
            %(metadata)s::jsonb, %(content)b::bytea)
    FROM place AS p
    ON CONFLICT (id) DO NOTHING
    RETURNING c.chain_number, c.chain_hash)
UPDATE holdfast.sessions AS s
SET chain_length = stored.chain_number, chain_head = stored.chain_hash, newest_id = NULL
FROM stored WHERE s.tenant = %(tenant)s AND s.id = %(session_id)s;

-- name: postgres.transfer.write
INSERT INTO holdfast.checkpoint_writes (tenant, session_id, namespace, external_id, task_id, idx,
    task_path, channel, manifest, refs, created_at, row_sum)
VALUES (%(tenant)s, %(session_id)s, %(namespace)s, %(external_id)s, %(task_id)s, %(idx)s,
    %(task_path)s, %(channel)s, %(manifest)s, %(refs)b::bytea, %(created_at)s, %(row_sum)b::bytea);

-- name: postgres.transfer.effect
INSERT INTO holdfast.effects (tenant, session_id, key, occurrence, name, fingerprint, status,
    attempt_id, attempts, result, refs, error, started_at, finished_at, begun_sum, outcome_sum)
VALUES (%(tenant)s, %(session_id)s, %(key)s, %(occurrence)s, %(name)s, %(fingerprint)b::bytea,
    %(status)s, %(attempt_id)s::uuid, %(attempts)s, %(result)s, %(refs)b::bytea, %(error)s::jsonb,
    %(started_at)s, %(finished_at)s, %(begun_sum)b::bytea, %(outcome_sum)b::bytea);

-- name: postgres.transfer.log
INSERT INTO holdfast.session_logs (tenant, session_id, level, message, data, created_at)
VALUES (%(tenant)s, %(session_id)s, %(level)s, %(message)s, %(data)s::jsonb, %(created_at)s);

-- name: langgraph.columns
-- Tables of LangGraph's PostgresSaver, which are only read.
SELECT column_name FROM information_schema.columns
WHERE table_name = 'checkpoint_writes' AND table_schema = ANY (current_schemas(false));

-- name: langgraph.threads
SELECT thread_id, count(*) FROM checkpoints GROUP BY thread_id ORDER BY thread_id;

-- name: langgraph.ids
SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s
ORDER BY checkpoint_id COLLATE "C", checkpoint_ns;

-- name: langgraph.checkpoint
SELECT parent_checkpoint_id, checkpoint, metadata FROM checkpoints
WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s;

-- name: langgraph.writes
SELECT task_id, task_path, idx, channel, type, blob FROM checkpoint_writes
WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY task_id, idx;

-- name: langgraph.writes.without_path
SELECT task_id, '', idx, channel, type, blob FROM checkpoint_writes
WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY task_id, idx;

-- name: postgres.langgraph.channels
-- The channels that stand in a table of their own, at the versions that a checkpoint names.
SELECT b.channel, b.type, b.blob
FROM checkpoints AS c
CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
JOIN checkpoint_blobs AS b
    ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
    AND b.channel = v.key AND b.version = v.value
WHERE c.thread_id = %s AND c.checkpoint_ns = %s AND c.checkpoint_id = %s;
