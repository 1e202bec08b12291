-- Removes Leasehold's fence from a database. One statement, so all of it or nothing.
--
--   psql -v ON_ERROR_STOP=1 -f remove.sql
--
-- It is refused while tables are in trigger mode, and it keeps the highest token of every resource, so
-- that install.sql goes on where it was. Two settings, given before it in the same session, change that:
--
--   SET leasehold.unprotect = 'yes';       takes the tables out of trigger mode
--   SET leasehold.forget_tokens = 'yes';   forgets the tokens: from then on, and also after a later
--                                          installation, a holder whose lock ended long ago can write.
--                                          Safe once every process that held a lock has ended.

DO $kit$
DECLARE
    path constant pg_catalog.text := pg_catalog.current_setting('search_path');
    patience constant pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    unprotect boolean;
    forget boolean;
    owner pg_catalog.oid;
    ours boolean;
    tables pg_catalog.regclass[];
    one pg_catalog.record;
    kept bigint;
BEGIN
    -- Before anything is looked up: what others have made in the schemas of the path must not run with
    -- the rights of whoever runs this. Neither must the functions of the kit, which somebody else may own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    unprotect := coalesce(current_setting('leasehold.unprotect', true), '') = 'yes';
    forget := coalesce(current_setting('leasehold.forget_tokens', true), '') = 'yes';
    -- Before the first wait, which is for an installer.
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    PERFORM pg_advisory_xact_lock(7810758011010182508);
    SELECT n.nspowner INTO owner FROM pg_namespace AS n WHERE n.nspname = 'leasehold';
    IF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION 'the schema leasehold belongs to %', pg_get_userbyid(owner)
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('Remove the kit as %I, or as a superuser.', pg_get_userbyid(owner));
    END IF;
    IF to_regclass('leasehold.fence') IS NULL OR to_regclass('leasehold.kit') IS NULL THEN
        RAISE NOTICE 'the leasehold kit is not installed here';
        PERFORM set_config('search_path', path, true), set_config('lock_timeout', patience, true);
        RETURN;
    END IF;

    IF to_regclass('leasehold.protected') IS NOT NULL THEN
        -- A partition that was detached still has the trigger that the table above it gave it.
        SELECT array_agg(DISTINCT t.tgrelid::regclass) INTO tables
            FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
            WHERE t.tgparentid = 0 AND p.pronamespace = 'leasehold'::regnamespace
                AND p.proname IN ('fenced', 'misplaced');
        IF tables IS NOT NULL AND NOT unprotect THEN
            RAISE EXCEPTION 'these tables are in trigger mode: %', array_to_string(tables, ', ')
                USING ERRCODE = 'dependent_objects_still_exist',
                      HINT = 'Call leasehold.unprotect for each, or SET leasehold.unprotect = ''yes'' before this script.';
        END IF;
        FOR one IN
            SELECT t.tgname, t.tgrelid::regclass AS place FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
            WHERE t.tgparentid = 0 AND p.pronamespace = 'leasehold'::regnamespace
                AND p.proname IN ('fenced', 'misplaced')
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, one.place);
        END LOOP;
    END IF;

    -- No CASCADE anywhere: what somebody else has built on the kit stops the removal, and is named.
    DROP VIEW IF EXISTS leasehold.protected;
    FOR one IN
        SELECT p.oid::regprocedure AS call FROM pg_proc AS p
        WHERE p.pronamespace = 'leasehold'::regnamespace AND p.proname IN ('seal', 'guard', 'passes', 'highest_token',
            'version', 'protect', 'unprotect', 'fenced', 'misplaced', 'moved', 'refuse', 'refuse_token', 'check_request')
    LOOP
        EXECUTE format('DROP FUNCTION %s', one.call);
    END LOOP;

    -- Whoever reads a table runs what its owner has put there: a view, a policy, and even the condition
    -- of an index, which is looked at while a count is planned. SET ROLE is no boundary, as that code can
    -- go back to the role of the session. So rows are counted by their owner alone.
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = 'leasehold.fence'::regclass AND (c.relkind <> 'r' OR c.relrowsecurity)) THEN
        RAISE EXCEPTION 'leasehold.fence is not the table that the kit makes'
            USING ERRCODE = 'wrong_object_type', HINT = 'Look at what is there, and drop it.';
    END IF;
    SELECT count(*) = 2 INTO ours FROM (
            SELECT nspowner FROM pg_namespace WHERE nspname = 'leasehold'
            UNION ALL SELECT relowner FROM pg_class WHERE oid = 'leasehold.fence'::regclass
        ) AS o (owner)
        WHERE pg_get_userbyid(o.owner) = current_user AND current_user = session_user;
    IF ours THEN
        LOCK TABLE leasehold.fence IN ACCESS SHARE MODE;
        SELECT count(*) INTO kept FROM leasehold.fence;
    END IF;
    IF forget THEN
        DROP TABLE leasehold.fence, leasehold.kit;
        DROP FUNCTION IF EXISTS leasehold.keep();
        DROP SCHEMA leasehold;
        RAISE NOTICE 'the leasehold kit is removed, and the highest tokens% are forgotten',
            coalesce(' of ' || kept || ' resources', '');
    ELSE
        RAISE NOTICE 'the leasehold kit is removed; the highest tokens% are kept in leasehold.fence',
            coalesce(' of ' || kept || ' resources', '')
            USING HINT = 'To forget them as well: SET leasehold.forget_tokens = ''yes'' and run this script again.';
    END IF;
    PERFORM set_config('search_path', path, true), set_config('lock_timeout', patience, true);
END
$kit$;
