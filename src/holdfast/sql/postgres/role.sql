-- name: grants
-- What the role {role} needs to work with the checkpoints in this schema, and nothing besides: create it
-- first (CREATE ROLE {role} LOGIN ...), then run this as the owner of the tables. It may be run again.
-- The rows that it sees are those of the tenant that its transaction names in the setting
-- {setting}; without it there are none.

BEGIN;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles AS r
                WHERE r.rolname = {role_text} AND (r.rolsuper OR r.rolbypassrls)) THEN
        RAISE EXCEPTION 'role % is bound by no policy: it is a superuser or has BYPASSRLS', {role_text};
    END IF;
    IF pg_has_role({role_text}, (SELECT c.relowner FROM pg_class AS c
                                  WHERE c.oid = 'holdfast.sessions'::regclass), 'MEMBER') THEN
        RAISE EXCEPTION 'role % is bound by no policy: it owns the tables', {role_text};
    END IF;
END $$;

GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON
    holdfast.agents, holdfast.sessions, holdfast.session_checkpoints, holdfast.chain_tombstones,
    holdfast.chunks, holdfast.checkpoint_writes, holdfast.effects, holdfast.workspace_packs
    TO {role};
GRANT SELECT, INSERT ON holdfast.session_logs TO {role};
GRANT SELECT, INSERT, UPDATE ON holdfast.sealing TO {role};
GRANT SELECT ON holdfast.schema_migrations TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};

-- name: confined
-- Functions and operators are looked for in all schemas of whoever calls them: in public, and before it
-- in one with the caller's name. What somebody has put there runs with the caller's rights.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_namespace AS n
                WHERE n.nspname = 'public' AND has_schema_privilege({role_text}, n.oid, 'CREATE'))
        OR has_database_privilege({role_text}, current_database(), 'CREATE')
    THEN
        RAISE EXCEPTION 'role % can put functions in the way of other roles', {role_text}
            USING HINT = 'REVOKE CREATE ON SCHEMA public FROM PUBLIC, as PostgreSQL 15 has it, and from'
                         ' the role; nor may it create schemas in this database.';
    END IF;
END $$;

-- name: bound
DROP POLICY IF EXISTS {policy} ON {table};
CREATE POLICY {policy} ON {table} AS RESTRICTIVE TO {role} USING (tenant = {tenant});

-- name: end
COMMIT;
