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
    -- The calls and the tables that are there, and of how many resources the fence has tokens.
    calls pg_catalog.regprocedure[];
    places pg_catalog.regclass[];
    fenced boolean;
    kept bigint;
    told pg_catalog.text;
    resources pg_catalog.text;
BEGIN
    -- Before anything is looked up: what others have made in the schemas of the path must not run with
    -- the rights of whoever runs this. Neither must the functions of the kit, which somebody else may own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- With a snapshot from before a wait, what somebody commits meanwhile would not be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the leasehold kit is removed in a transaction that is READ COMMITTED, and this one is %',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state',
                  HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED, or before it SET default_transaction_isolation = ''read committed''.';
    END IF;
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
    -- Whoever reads a table runs what hangs on it: even the condition of an index is looked at while a
    -- count is planned. As in install.sql, only what the kit makes may be there. What is gone is no reason
    -- to leave the rest.
    FOR one IN
        -- Begin: what the kit has not made, and what it has made and is gone.
        WITH home AS (
            SELECT n.oid, n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'leasehold'
        ), place AS (
            SELECT c.oid, c.relname, c.relnamespace, c.reloftype, c.relrowsecurity OR c.relforcerowsecurity AS guarded,
                c.relkind = CASE c.relname WHEN 'protected' THEN 'v' ELSE 'r' END AS fits
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE n.nspname = 'leasehold' AND c.relname IN ('fence', 'kit', 'protected')
        ), made (place, part, kind, spelling, needed, since, anew) AS (VALUES
            ('fence', 'resource', 'text'::regtype, '"C"'::regcollation::oid, true, 1, NULL),
            ('fence', 'token', 'bigint'::regtype, 0, true, 1, NULL),
            ('fence', 'previous', 'bigint'::regtype, 0, false, 2, 'ALTER TABLE leasehold.fence ADD COLUMN previous bigint'),
            -- Which tokens were used is lost: as if all were, so that none passes twice.
            ('fence', 'used', 'bigint'::regtype, 0, false, 2,
                'ALTER TABLE leasehold.fence ADD COLUMN used bigint; UPDATE leasehold.fence SET used = token'),
            ('fence', 'changed_at', 'timestamptz'::regtype, 0, false, 2, 'ALTER TABLE leasehold.fence ADD COLUMN changed_at timestamptz'),
            ('kit', 'version', 'integer'::regtype, 0, true, 1, NULL),
            ('kit', 'installed_at', 'timestamptz'::regtype, 0, true, 1,
                'ALTER TABLE leasehold.kit ADD COLUMN installed_at timestamptz NOT NULL DEFAULT now()')
        ), call (name, arguments, since) AS (VALUES
            ('guard', 'text, bigint', 1), ('seal', 'text, bigint', 1), ('highest_token', 'text', 1), ('version', '', 1),
            ('guard', 'text, bigint, boolean, text', 2), ('seal', 'text, bigint, text', 2), ('passes', 'text, bigint', 2),
            ('protect', 'regclass, name, boolean', 2), ('unprotect', 'regclass', 2), ('tables_protected', '', 2),
            ('fenced', '', 2), ('moved', 'text, xid', 2), ('misplaced', '', 2), ('keep', '', 2),
            ('refuse', 'text, text, text, text, text, bigint, bigint', 2), ('refuse_token', 'text, bigint, boolean', 2),
            ('check_request', 'text, bigint, text', 2)
        ), age (version, newer) AS (
            -- The first kit has said nothing of its version.
            SELECT CASE WHEN EXISTS (SELECT FROM place AS c WHERE c.relname = 'fence')
                AND NOT EXISTS (SELECT FROM place AS c JOIN made AS m ON m.place = c.relname AND m.since > 1
                    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = m.part AND NOT a.attisdropped)
                AND NOT EXISTS (SELECT FROM home AS h JOIN pg_proc AS f ON f.pronamespace = h.oid
                    WHERE f.proname = 'version' AND f.pronargs = 0 AND obj_description(f.oid, 'pg_proc') ~ '^version [0-9]{1,9}$')
                THEN 1 ELSE 2 END,
                EXISTS (SELECT FROM home AS h JOIN pg_proc AS f ON f.pronamespace = h.oid WHERE f.proname = 'version' AND f.pronargs = 0
                    AND substring(obj_description(f.oid, 'pg_proc') FROM '^version ([0-9]{1,9})$')::integer > 2)
        ), known AS (
            SELECT f.oid, c.name, c.arguments FROM home AS h JOIN pg_proc AS f ON f.pronamespace = h.oid AND f.prokind = 'f'
            JOIN call AS c ON (c.name, c.arguments) = (f.proname, oidvectortypes(f.proargtypes))
            JOIN age AS g ON g.version >= c.since
        ), other (what, undo, mended) AS (
            SELECT pg_describe_object('pg_class'::regclass, c.oid, 0), NULL, false FROM place AS c WHERE NOT c.fits
            UNION SELECT 'the type of ' || pg_describe_object('pg_class'::regclass, c.oid, 0),
                format('ALTER TABLE %s NOT OF', c.oid::regclass), false
                FROM place AS c WHERE c.fits AND c.reloftype <> 0
            UNION SELECT 'row security of ' || pg_describe_object('pg_class'::regclass, c.oid, 0),
                format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', c.oid::regclass), false
                FROM place AS c WHERE c.fits AND c.guarded
            -- Whoever owns the other table reaches the rows of this one, or puts rows of its own among them.
            UNION SELECT format('what %s inherits from %s', i.inhrelid::regclass, i.inhparent::regclass),
                format(CASE WHEN k.relispartition THEN 'ALTER TABLE %2$s DETACH PARTITION %1$s'
                    ELSE 'ALTER TABLE %1$s NO INHERIT %2$s' END, i.inhrelid::regclass, i.inhparent::regclass), false
                FROM place AS c JOIN pg_inherits AS i ON c.oid IN (i.inhrelid, i.inhparent)
                JOIN pg_class AS k ON k.oid = i.inhrelid WHERE c.fits
            -- A table of an older kit lacks some of the columns.
            UNION SELECT pg_describe_object('pg_class'::regclass, c.oid, a.attnum), NULL, false
                FROM place AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
                WHERE c.fits AND c.relname <> 'protected' AND a.attnum > 0 AND NOT a.attisdropped
                    AND (a.attidentity <> '' OR a.attgenerated <> '' OR a.atttypmod <> -1
                        OR (c.relname, a.attname, a.atttypid, a.attcollation, a.attnotnull) NOT IN (
                            SELECT m.place, m.part, m.kind::oid, m.spelling, m.needed FROM made AS m))
            UNION SELECT pg_describe_object('pg_attrdef'::regclass, d.oid, 0),
                CASE a.attgenerated WHEN '' THEN format('ALTER TABLE %s ALTER %I DROP DEFAULT', c.oid::regclass, a.attname) END,
                false
                FROM place AS c JOIN pg_attrdef AS d ON d.adrelid = c.oid
                JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.adnum
                WHERE c.fits AND NOT ((c.relname, a.attname) = ('kit', 'installed_at')
                    AND pg_get_expr(d.adbin, d.adrelid) = 'now()')
            -- From PostgreSQL 18 on NOT NULL is one. What a constraint trigger is, its trigger tells.
            UNION SELECT pg_describe_object('pg_constraint'::regclass, x.oid, 0),
                CASE WHEN x.contype NOT IN ('p', 'n')
                    THEN format('ALTER TABLE %s DROP CONSTRAINT %I', x.conrelid::regclass, x.conname) END, false
                FROM place AS c JOIN pg_constraint AS x ON c.oid IN (x.conrelid, x.confrelid)
                WHERE c.fits AND x.contype <> 't' AND x.conparentid = 0
                    AND NOT (x.contype IN ('p', 'n') AND x.convalidated AND NOT x.condeferrable)
            -- The primary key, and what is to replace it while it is built anew. Even to plan a count runs
            -- the condition of any other.
            UNION SELECT pg_describe_object('pg_class'::regclass, i.indexrelid, 0),
                CASE WHEN NOT i.indisprimary THEN format('DROP INDEX %s', i.indexrelid::regclass) END, false
                FROM place AS c JOIN pg_index AS i ON i.indrelid = c.oid
                WHERE c.fits AND NOT EXISTS (SELECT FROM pg_constraint AS x
                        WHERE x.conrelid = c.oid AND x.conindid = i.indexrelid AND x.contype IN ('u', 'x'))
                    AND NOT (i.indisunique AND i.indimmediate AND (i.indisprimary OR NOT i.indisvalid)
                        AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnatts = 1 AND EXISTS (
                            SELECT FROM pg_attribute AS a JOIN pg_opclass AS o ON o.oid = i.indclass[0]
                            JOIN pg_am AS m ON m.oid = o.opcmethod
                            WHERE a.attrelid = c.oid AND a.attnum = i.indkey[0] AND a.attname IN ('resource', 'version')
                                AND i.indcollation[0] = a.attcollation AND o.opcdefault AND o.opcintype = a.atttypid
                                AND o.opcnamespace = 'pg_catalog'::regnamespace AND m.amname = 'btree'))
            UNION SELECT pg_describe_object('pg_trigger'::regclass, t.oid, 0),
                format('DROP TRIGGER %I ON %s', t.tgname, c.oid::regclass), (c.relname, t.tgname) = ('fence', 'keep')
                FROM place AS c JOIN pg_trigger AS t ON t.tgrelid = c.oid JOIN pg_proc AS f ON f.oid = t.tgfoid
                WHERE c.fits AND NOT t.tgisinternal AND NOT ((c.relname, t.tgname) = ('fence', 'keep')
                    AND f.pronamespace = c.relnamespace AND f.proname = 'keep' AND f.pronargs = 0
                    AND t.tgtype = 2 + 8 + 32 AND t.tgqual IS NULL AND t.tgnargs = 0 AND t.tgattr::text = ''
                    AND t.tgconstraint = 0 AND t.tgoldtable IS NULL AND t.tgnewtable IS NULL)
            UNION SELECT pg_describe_object('pg_rewrite'::regclass, r.oid, 0),
                format('DROP RULE %I ON %s', r.rulename, c.oid::regclass), false
                FROM place AS c JOIN pg_rewrite AS r ON r.ev_class = c.oid
                WHERE c.fits AND (c.relname, r.rulename) <> ('protected', '_RETURN')
            UNION SELECT pg_describe_object('pg_policy'::regclass, y.oid, 0),
                format('DROP POLICY %I ON %s', y.polname, c.oid::regclass), false
                FROM place AS c JOIN pg_policy AS y ON y.polrelid = c.oid WHERE c.fits
            UNION SELECT pg_describe_object('pg_statistic_ext'::regclass, s.oid, 0),
                format('DROP STATISTICS %I.%I', n.nspname, s.stxname), false
                FROM place AS c JOIN pg_statistic_ext AS s ON s.stxrelid = c.oid
                JOIN pg_namespace AS n ON n.oid = s.stxnamespace WHERE c.fits
            -- What is the system's leaves no trace there.
            UNION SELECT pg_describe_object('pg_class'::regclass, c.oid, 0), 'DROP VIEW leasehold.protected', true
                FROM place AS c JOIN pg_rewrite AS r ON r.ev_class = c.oid
                JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                WHERE c.fits AND (c.relname, r.rulename) = ('protected', '_RETURN')
                    AND (d.refclassid, d.refobjid) <> ('pg_class'::regclass, c.oid)
                    AND NOT (d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (SELECT f.oid FROM pg_proc AS f
                        WHERE f.pronamespace = c.relnamespace AND f.proname = 'tables_protected' AND f.pronargs = 0))
            -- Whatever can be called, or is looked up when something is: a better match than a call of the kit
            -- runs in its place. Each kind of thing that is in a schema depends on it.
            UNION SELECT pg_describe_object(d.classid, d.objid, 0),
                CASE WHEN NOT g.newer THEN format('DROP %s %s', upper(i.type), i.identity) END, false
                FROM home AS h JOIN pg_depend AS d ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = h.oid, age AS g,
                    pg_identify_object(d.classid, d.objid, 0) AS i
                WHERE i.schema = 'leasehold'
                    AND d.classid NOT IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass)
                    AND NOT (d.classid = 'pg_proc'::regclass AND d.objid IN (SELECT k.oid FROM known AS k))
            -- A cast is in no schema. Whoever has a type can make one to it and from it, so another role's type
            -- says that the cast is that role's affair; 10 is whom the types of the system belong to.
            UNION SELECT pg_describe_object('pg_cast'::regclass, x.oid, 0), 'DROP CAST ' || i.identity, false
                FROM home AS h JOIN pg_type AS t ON t.typnamespace = h.oid
                JOIN pg_cast AS x ON t.oid IN (x.castsource, x.casttarget), pg_identify_object('pg_cast'::regclass, x.oid, 0) AS i
                WHERE NOT EXISTS (SELECT FROM pg_type AS o
                    WHERE o.oid IN (x.castsource, x.casttarget) AND o.typowner NOT IN (10, h.nspowner))
        ), gone (what, undo, mended) AS (
            -- Without the table nobody knows a token, and with the tables alone it is the kit that was removed.
            SELECT 'table leasehold.' || t.name, CASE WHEN t.name = 'kit' AND EXISTS (SELECT FROM place AS c WHERE c.relname = 'fence')
                THEN format('CREATE TABLE leasehold.kit (version integer PRIMARY KEY, installed_at timestamptz NOT NULL DEFAULT now()); '
                    || 'INSERT INTO leasehold.kit (version) SELECT generate_series(1, %s)', g.version) END, false
                FROM (VALUES ('fence'), ('kit')) AS t (name), age AS g
                WHERE (EXISTS (SELECT FROM known) OR EXISTS (SELECT FROM place AS c WHERE c.relname IN ('fence', 'kit')))
                    AND NOT EXISTS (SELECT FROM place AS c WHERE c.relname = t.name)
            UNION SELECT format('column %s of table leasehold.%s', m.part, m.place), m.anew, false
                FROM made AS m JOIN place AS c ON c.relname = m.place AND c.fits JOIN age AS g ON g.version >= m.since
                WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = c.oid AND a.attname = m.part AND NOT a.attisdropped)
            UNION SELECT 'the primary key of table leasehold.' || c.relname,
                format('ALTER TABLE leasehold.%s ADD PRIMARY KEY (%s)', c.relname,
                    CASE c.relname WHEN 'fence' THEN 'resource' ELSE 'version' END), false
                FROM place AS c WHERE c.fits AND c.relname <> 'protected'
                    AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)
            -- As a dump without data leaves it. The kit has a row from its first day on.
            UNION SELECT 'the content of table leasehold.kit', format('bring the rows of both tables back from a backup; or, if no row of '
                    || 'leasehold.fence is missing or nobody has held a lock for what is here: '
                    || 'INSERT INTO leasehold.kit (version) SELECT generate_series(1, %s)', g.version), false
                FROM place AS c, age AS g WHERE c.fits AND c.relname = 'kit' AND pg_relation_size(c.oid) = 0
            UNION SELECT format('function leasehold.%s(%s)', c.name, c.arguments), NULL, true
                FROM call AS c JOIN age AS g ON g.version >= c.since
                WHERE EXISTS (SELECT FROM known AS k WHERE k.name <> 'keep')
                    AND NOT EXISTS (SELECT FROM known AS k WHERE (k.name, k.arguments) = (c.name, c.arguments))
        )
        SELECT o.what, o.undo, o.mended, false AS gone FROM other AS o
        UNION ALL SELECT g.what, g.undo, g.mended, true FROM gone AS g ORDER BY 4, 1
        -- End.
    LOOP
        CONTINUE WHEN one.gone;
        RAISE EXCEPTION '% is not of the kit''s making', one.what
            USING ERRCODE = 'wrong_object_type',
                  HINT = coalesce('Look at what it does. To undo it: ' || one.undo,
                      'Look at what is there, and set it right. What a newer kit has made, its own scripts know.');
    END LOOP;

    -- What there is to remove: from here on all of it is the kit's. Any of it may be gone.
    SELECT array_agg(p.oid::regprocedure) INTO calls FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = 'leasehold' AND p.proname <> 'keep';
    SELECT array_agg(c.oid::regclass ORDER BY c.relname) INTO places FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'leasehold' AND c.relname IN ('fence', 'kit') AND c.relkind = 'r';
    fenced := to_regclass('leasehold.fence') IS NOT NULL;
    IF calls IS NULL AND places IS NULL AND to_regprocedure('leasehold.keep()') IS NULL THEN
        RAISE NOTICE 'the leasehold kit is not installed here';
        PERFORM set_config('search_path', path, true), set_config('lock_timeout', patience, true);
        RETURN;
    END IF;

    -- Without the mark that its calls are, the next installation would begin with an empty fence.
    IF NOT fenced AND NOT forget THEN
        RAISE EXCEPTION 'table leasehold.fence is gone, and the highest tokens with it'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Bring it back from a backup. Or, once every process that held a lock has ended, '
                      || 'SET leasehold.forget_tokens = ''yes'' (`leasehold fence remove --forget-tokens`).';
    END IF;

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

    -- No CASCADE anywhere: what somebody else has built on the kit stops the removal, and is named.
    IF to_regclass('leasehold.protected') IS NOT NULL THEN
        DROP VIEW leasehold.protected;
    END IF;
    FOR one IN SELECT c.call FROM unnest(calls) AS c (call) LOOP
        EXECUTE format('DROP FUNCTION %s', one.call);
    END LOOP;

    -- What runs under SET ROLE can go back to the role of the session. So rows are counted by their owner
    -- alone.
    SELECT count(*) = 2 INTO ours FROM (
            SELECT nspowner FROM pg_namespace WHERE nspname = 'leasehold'
            UNION ALL SELECT relowner FROM pg_class WHERE oid = to_regclass('leasehold.fence')
        ) AS o (owner)
        WHERE pg_get_userbyid(o.owner) = current_user AND current_user = session_user;
    IF ours THEN
        LOCK TABLE leasehold.fence IN ACCESS SHARE MODE;
        SELECT count(*) INTO kept FROM leasehold.fence;
    END IF;
    told := CASE WHEN calls IS NULL THEN 'the leasehold kit was removed before' ELSE 'the leasehold kit is removed' END;
    resources := coalesce(' of ' || kept || ' resources', '');
    IF forget THEN
        FOR one IN SELECT p.place FROM unnest(places) AS p (place) LOOP
            EXECUTE format('DROP TABLE %s', one.place);
        END LOOP;
    END IF;
    -- A fence that stays has its trigger, which needs the function.
    IF forget AND to_regprocedure('leasehold.keep()') IS NOT NULL THEN
        DROP FUNCTION leasehold.keep();
    END IF;
    IF forget THEN
        DROP SCHEMA leasehold;
    END IF;
    IF to_regclass('leasehold.fence') IS NOT NULL THEN
        RAISE NOTICE '%; the highest tokens% are kept in leasehold.fence', told, resources
            USING HINT = 'To forget them as well: SET leasehold.forget_tokens = ''yes'' and run this script again.';
    ELSIF fenced THEN
        RAISE NOTICE '%, and the highest tokens% are forgotten', told, resources;
    ELSE
        RAISE NOTICE '%; there was no table leasehold.fence any more, and no token to forget', told
            USING HINT = 'Installed again, it lets whoever held a lock before write.';
    END IF;
    PERFORM set_config('search_path', path, true), set_config('lock_timeout', patience, true);
END
$kit$;
