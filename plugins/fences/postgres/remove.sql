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
    unprotect constant boolean := coalesce(current_setting('leasehold.unprotect', true), '') = 'yes';
    forget constant boolean := coalesce(current_setting('leasehold.forget_tokens', true), '') = 'yes';
    tables regclass[];
    one record;
    kept bigint;
BEGIN
    -- Before the first wait, which is for an installer.
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    PERFORM pg_advisory_xact_lock(7810758011010182508);
    IF to_regclass('leasehold.fence') IS NULL OR to_regclass('leasehold.kit') IS NULL THEN
        RAISE NOTICE 'the leasehold kit is not installed here';
        RETURN;
    END IF;

    IF to_regclass('leasehold.protected') IS NOT NULL THEN
        -- A partition that was detached still has the trigger that the table above it gave it.
        SELECT array_agg(DISTINCT t.tgrelid::regclass) INTO tables FROM pg_trigger AS t
            WHERE t.tgparentid = 0
                AND t.tgfoid IN ('leasehold.fenced'::regproc, 'leasehold.misplaced'::regproc);
        IF tables IS NOT NULL AND NOT unprotect THEN
            RAISE EXCEPTION 'these tables are in trigger mode: %', array_to_string(tables, ', ')
                USING ERRCODE = 'dependent_objects_still_exist',
                      HINT = 'Call leasehold.unprotect for each, or SET leasehold.unprotect = ''yes'' before this script.';
        END IF;
        PERFORM leasehold.unprotect(target) FROM unnest(tables) AS t (target);
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

    SELECT count(*) INTO kept FROM leasehold.fence;
    IF forget THEN
        DROP TABLE leasehold.fence, leasehold.kit;
        DROP FUNCTION IF EXISTS leasehold.keep();
        DROP SCHEMA leasehold;
        RAISE NOTICE 'the leasehold kit is removed, and the highest tokens of % resources are forgotten', kept;
    ELSE
        RAISE NOTICE 'the leasehold kit is removed; the highest tokens of % resources are kept in leasehold.fence', kept
            USING HINT = 'To forget them as well: SET leasehold.forget_tokens = ''yes'' and run this script again.';
    END IF;
END
$kit$;
