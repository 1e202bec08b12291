-- Leasehold's fence for PostgreSQL: installs the schema `leasehold`, or brings an older kit up to date.
--
--   psql -v ON_ERROR_STOP=1 -f install.sql
--
-- One statement, so it takes effect as a whole or not at all under every runner, also inside a
-- transaction of a migration tool. Running it again changes nothing, but for what weakens the fence:
-- rights that nobody but the owner should have are taken back, and triggers of the kit that others have
-- made anew are made as they were.
--
-- In order: checks, the steps that change tables (each runs once), the checks of an arriving token,
-- the calls for users, trigger mode, and privileges. Three queries have a line before and one after them:
-- the commands of `leasehold fence` run them as well, and remove.sql has a copy of the first. It lists the
-- calls and the columns of the kit, so whatever is added below is added there.
--
-- Rules for whoever changes it: a table step that was released never changes, a new one is added. A
-- signature that was released is never dropped: sessions that hold it in a prepared statement would
-- fail while the kit is upgraded under them.
--
-- Whoever runs this may do more than those who can make functions and operators in the schemas of its
-- search_path, and a better match than that of the system would run with all its rights. So the first
-- statement pins the path, and until then every name says where it is from.

DO $kit$
DECLARE
    ours constant integer := 2;
    theirs integer := 0;
    path constant pg_catalog.text := pg_catalog.current_setting('search_path');
    patience constant pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    one pg_catalog.record;
    -- What was there before.
    relations pg_catalog.oid[];
    functions pg_catalog.oid[];
    -- Whether the trigger that keeps the tokens is another than the kit makes.
    another boolean := false;
    -- All that can be done to a table but to read it.
    deeds pg_catalog.text := 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER';
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- With a snapshot from before a wait, what somebody commits meanwhile would not be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the leasehold kit is installed in a transaction that is READ COMMITTED, and this one is %',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state',
                  HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED, or before it SET default_transaction_isolation = ''read committed''.';
    END IF;
    IF current_setting('server_version_num')::integer < 130000 THEN
        RAISE EXCEPTION 'the leasehold kit needs PostgreSQL 13 or newer'
            USING ERRCODE = 'feature_not_supported';
    END IF;
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'the leasehold kit needs a database with the encoding UTF8, this one has %',
            current_setting('server_encoding')
            USING ERRCODE = 'feature_not_supported', HINT = 'Names of resources are UTF-8.';
    END IF;

    -- A table step waits for transactions that use the fence, and everybody else queues behind it.
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    -- Two installers take turns. The key is "leasehol" in ASCII.
    PERFORM pg_advisory_xact_lock(7810758011010182508);

    IF to_regnamespace('leasehold') IS NULL THEN
        CREATE SCHEMA leasehold;
        -- USAGE on the schema is all that a role needs, and it gives no way to the tables but the calls.
        -- Default privileges may have given more, here and to all that is made below.
        FOR one IN
            SELECT DISTINCT a.grantee FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
            WHERE n.nspname = 'leasehold' AND a.grantee <> n.nspowner
        LOOP
            EXECUTE format('REVOKE ALL ON SCHEMA leasehold FROM %s CASCADE',
                CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(one.grantee)) END);
        END LOOP;
    END IF;
    -- What somebody else owns, somebody else can change: with the rights of whoever installs, as the
    -- calls have those of their owner.
    SELECT o.what, pg_get_userbyid(o.owner) AS owner INTO one FROM (
            SELECT 'the schema leasehold', nspowner FROM pg_namespace WHERE nspname = 'leasehold'
            UNION ALL SELECT 'the relation ' || oid::regclass, relowner FROM pg_class
                WHERE relnamespace = 'leasehold'::regnamespace
            UNION ALL SELECT 'the function ' || oid::regprocedure, proowner FROM pg_proc
                WHERE pronamespace = 'leasehold'::regnamespace
            UNION ALL SELECT 'the type ' || oid::regtype, typowner FROM pg_type
                WHERE typnamespace = 'leasehold'::regnamespace
        ) AS o (what, owner)
        WHERE pg_get_userbyid(o.owner) <> current_user LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% belongs to %', one.what, one.owner
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('Connect as %I and install if that role is to own the kit. Otherwise look at what is there, and drop it.', one.owner);
    END IF;
    -- Whoever hangs something on a table may not have committed it yet. Calls of the kit go on.
    FOR one IN
        SELECT c.oid::regclass AS place FROM pg_class AS c
        WHERE c.relnamespace = 'leasehold'::regnamespace AND c.relname IN ('fence', 'kit') AND c.relkind = 'r'
    LOOP
        EXECUTE format('LOCK TABLE ONLY %s IN ROW EXCLUSIVE MODE', one.place);
    END LOOP;
    -- What a newer kit has made is strange to this script.
    SELECT max(substring(obj_description(f.oid, 'pg_proc') FROM '^version ([0-9]{1,9})$')::integer) INTO theirs
        FROM pg_proc AS f WHERE f.pronamespace = 'leasehold'::regnamespace AND f.proname = 'version' AND f.pronargs = 0;
    IF theirs > ours THEN
        RAISE EXCEPTION 'version % of the leasehold kit is installed, and this script would install the older version %', theirs, ours
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Use the script that came with the newer version.';
    END IF;
    theirs := 0;
    -- What hangs on a table, or can be called, stays when it changes its owner, and runs with the rights of
    -- whoever uses it. No list of what is bad would be complete: a function of the system can run SQL that it
    -- is given as text. So only what the kit makes may be there. And what it made has to be: calls without
    -- their tables come from a dump that was not restored to its end, and an empty fence would let every
    -- stale holder write. What is `mended` is made anew below, before anything runs it: the trigger that
    -- keeps the tokens, the view, and calls that are gone.
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
        another := another OR (one.mended AND one.undo LIKE 'DROP TRIGGER %');
        CONTINUE WHEN one.mended;
        IF one.gone THEN
            RAISE EXCEPTION '% is gone', one.what
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = coalesce('To make it anew: ' || one.undo,
                          'Bring it back from a backup, with its rows. Or remove the kit together with its tokens (remove.sql, '
                          || '`leasehold fence remove --forget-tokens`) and install it again: whoever held a lock before can write then.');
        END IF;
        RAISE EXCEPTION '% is not of the kit''s making', one.what
            USING ERRCODE = 'wrong_object_type',
                  HINT = coalesce('Look at what it does. To undo it: ' || one.undo,
                      'Look at what is there, and set it right. What a newer kit has made, its own scripts know.');
    END LOOP;
    relations := ARRAY(SELECT oid FROM pg_class WHERE relnamespace = 'leasehold'::regnamespace);
    functions := ARRAY(SELECT oid FROM pg_proc WHERE pronamespace = 'leasehold'::regnamespace);
    IF to_regclass('leasehold.kit') IS NOT NULL THEN
        SELECT coalesce(max(version), 0) INTO theirs FROM leasehold.kit;
        IF theirs < 1 THEN
            RAISE EXCEPTION 'no row of leasehold.kit says which version is installed'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('Bring the rows of leasehold.fence and leasehold.kit back from a backup. If those of the fence are there: '
                          || 'INSERT INTO leasehold.kit (version) SELECT generate_series(1, %s)',
                          CASE WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'leasehold.fence'::regclass
                              AND attname = 'used' AND NOT attisdropped) THEN 2 ELSE 1 END);
        END IF;
    ELSE
        CREATE TABLE leasehold.kit (
            version integer PRIMARY KEY,
            installed_at timestamptz NOT NULL DEFAULT now()
        );
    END IF;
    IF theirs > ours THEN
        RAISE EXCEPTION 'version % of the leasehold kit is installed, and this script would install the older version %', theirs, ours
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Use the script that came with the newer version.';
    END IF;

    -- Table steps ----------------------------------------------------------------------------------

    IF theirs < 1 THEN
        -- Pages stay half empty so that a new version of a row fits beside the old one: no update
        -- touches the index, and two resources have nothing in common.
        CREATE TABLE leasehold.fence (
            resource text COLLATE "C" PRIMARY KEY,
            token bigint NOT NULL
        ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
        INSERT INTO leasehold.kit (version) VALUES (1);
    END IF;

    IF theirs < 2 THEN
        -- No CHECK, and no trigger on updates: each would be read and planned anew by every seal and
        -- guard, which together cost a third of them. Only the calls below write, and they check.
        LOCK TABLE leasehold.fence IN ACCESS EXCLUSIVE MODE;
        ALTER TABLE leasehold.fence
            ADD COLUMN previous bigint,
            ADD COLUMN used bigint,
            ADD COLUMN changed_at timestamptz;

        INSERT INTO leasehold.kit (version) VALUES (2);
    END IF;

    -- What there is of the tokens stays -------------------------------------------------------------

    CREATE OR REPLACE FUNCTION leasehold.keep() RETURNS trigger LANGUAGE plpgsql AS $body$
    BEGIN
        RAISE EXCEPTION 'a fence never forgets a token: % of leasehold.fence is refused', TG_OP
            USING ERRCODE = 'restrict_violation',
                  HINT = 'Without its highest token a resource lets every stale holder write. '
                      || 'To give up the fence for good, see remove.sql.';
    END
    $body$;
    -- A table may have come without it, or with another of that name.
    IF another THEN
        DROP TRIGGER keep ON leasehold.fence;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'leasehold.fence'::regclass AND t.tgname = 'keep') THEN
        CREATE TRIGGER keep BEFORE DELETE OR TRUNCATE ON leasehold.fence
            FOR EACH STATEMENT EXECUTE FUNCTION leasehold.keep();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'leasehold.fence'::regclass AND t.tgname = 'keep'
        AND t.tgenabled = 'A')
    THEN
        ALTER TABLE leasehold.fence ENABLE ALWAYS TRIGGER keep;
    END IF;

    -- An arriving token ----------------------------------------------------------------------------

    -- Every refusal: an own SQLSTATE, and a detail for programs.
    CREATE OR REPLACE FUNCTION leasehold.refuse(
        state text, code text, message text, hint text, resource text, token bigint, highest_token bigint
    ) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
    BEGIN
        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, HINT = hint,
            DETAIL = json_strip_nulls(json_build_object(
                'code', code, 'resource', left(resource, 512), 'token', token, 'highest_token', highest_token));
    END
    $body$;

    -- Refuses a request that no state of the fence could make right.
    CREATE OR REPLACE FUNCTION leasehold.check_request(resource text, token bigint, mode text)
    RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
    BEGIN
        IF resource IS NULL OR token IS NULL THEN
            PERFORM leasehold.refuse('LH003', 'token_required', 'a resource and a token are required',
                'Pass the token that the grant of the lock came with.', resource, token, NULL::bigint);
        ELSIF mode = 'shared' THEN
            PERFORM leasehold.refuse('LH005', 'shared_token', 'the token of a shared grant does not fence',
                'A shared grant is for reading. Acquire the lock exclusively to write.', resource, token, NULL::bigint);
        ELSIF mode IS DISTINCT FROM 'exclusive' THEN
            PERFORM leasehold.refuse('LH004', 'invalid_request', 'the mode is exclusive or shared',
                'Pass the mode of the grant.', resource, token, NULL::bigint);
        ELSIF octet_length(resource) NOT BETWEEN 1 AND 512
            OR resource COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN
            PERFORM leasehold.refuse('LH004', 'invalid_request',
                'a resource is named by 1 to 512 bytes without control characters',
                'Pass the name of the resource as the lock has it.', resource, token, NULL::bigint);
        ELSIF token NOT BETWEEN 1 AND 9007199254740991 THEN
            PERFORM leasehold.refuse('LH004', 'invalid_request', 'a token lies between 1 and 9007199254740991',
                'Pass the token that the grant of the lock came with.', resource, token, NULL::bigint);
        END IF;
    END
    $body$;

    -- Says why the fence let a token not through.
    CREATE OR REPLACE FUNCTION leasehold.refuse_token(resource text, token bigint, once boolean)
    RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $body$
    #variable_conflict use_variable
    DECLARE
        seen record;
    BEGIN
        SELECT f.token, f.used INTO seen FROM leasehold.fence AS f WHERE f.resource = resource COLLATE "C";
        IF seen.token > token THEN
            PERFORM leasehold.refuse('LH001', 'stale_token',
                format('token %s of "%s" is stale: the highest one seen is %s', token, resource, seen.token),
                'Somebody else holds the lock by now. Give up this work, and acquire the lock anew.',
                resource, token, seen.token);
        ELSIF once AND seen.used >= token THEN
            PERFORM leasehold.refuse('LH002', 'token_used',
                format('token %s of "%s" was used already, and the highest one seen is %s', token, resource, seen.token),
                'In strict mode a token passes once. Acquire the lock anew for the next write.',
                resource, token, seen.token);
        END IF;
        -- Only whoever writes the fence past the kit can make this happen.
        RAISE EXCEPTION 'could not serialize access to the fence of "%"', resource
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END
    $body$;

    -- Calls for users ------------------------------------------------------------------------------

    -- Lets the writes that follow in this transaction through. Answers the highest token before, if
    -- there was one.
    --
    -- The row is written every time, also for a token seen before. Under REPEATABLE READ and
    -- SERIALIZABLE a newer holder whose snapshot was taken while it waited for this one must fail with
    -- 40001; after a mere lock it would read what was there before this one's write.
    --
    -- An INSERT finds its row through the index whatever the planner thinks of a small table: under
    -- SERIALIZABLE a transaction that has scanned all resources is in conflict with all of them.
    --
    -- A pinned search_path would cost a tenth of the call, so every name and operator is spelled out.
    CREATE OR REPLACE FUNCTION leasehold.guard(resource text, token bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $body$
    #variable_conflict use_column
    DECLARE
        before bigint;
    BEGIN
        IF (guard.token OPERATOR(pg_catalog.>) 0 AND guard.token OPERATOR(pg_catalog.<=) 9007199254740991
            AND pg_catalog.octet_length(guard.resource) OPERATOR(pg_catalog.<=) 512) IS NOT TRUE THEN
            PERFORM leasehold.check_request(guard.resource, guard.token, 'exclusive'::pg_catalog.text);
        END IF;
        -- The token must survive a crash once the transaction is acknowledged, whatever the session
        -- has settled for.
        IF pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off' THEN
            PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
        END IF;
        INSERT INTO leasehold.fence AS f (resource, token, changed_at)
            VALUES (guard.resource, guard.token, pg_catalog.now())
            ON CONFLICT (resource) DO UPDATE
            SET previous = f.token, token = EXCLUDED.token, changed_at = EXCLUDED.changed_at
            WHERE f.token OPERATOR(pg_catalog.<=) EXCLUDED.token
            RETURNING f.previous INTO before;
        IF before IS NOT NULL THEN
            RETURN before;
        ELSIF FOUND THEN
            -- A name that is there already was looked at when it came.
            PERFORM leasehold.check_request(guard.resource, guard.token, 'exclusive'::pg_catalog.text);
        ELSE
            PERFORM leasehold.refuse_token(guard.resource, guard.token, false);
        END IF;
        RETURN NULL;
    END
    $body$;

    -- The same with a choice: `strict` lets a token pass once, and a shared grant is refused.
    CREATE OR REPLACE FUNCTION leasehold.guard(
        resource text, token bigint, strict boolean, mode text DEFAULT 'exclusive'
    ) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    #variable_conflict use_column
    DECLARE
        before bigint;
    BEGIN
        PERFORM leasehold.check_request(guard.resource, guard.token, guard.mode);
        IF guard.strict IS NULL THEN
            PERFORM leasehold.refuse('LH004', 'invalid_request', 'strict is true or false',
                'Leave it out, or pass true or false.', guard.resource, guard.token, NULL::bigint);
        ELSIF NOT guard.strict THEN
            RETURN leasehold.guard(guard.resource, guard.token);
        END IF;
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        INSERT INTO leasehold.fence AS f (resource, token, used, changed_at)
            VALUES (guard.resource, guard.token, guard.token, now())
            ON CONFLICT (resource) DO UPDATE
            SET previous = f.token, token = EXCLUDED.token, used = EXCLUDED.token, changed_at = EXCLUDED.changed_at
            WHERE f.token <= EXCLUDED.token AND (f.used >= EXCLUDED.token) IS NOT TRUE
            RETURNING f.previous INTO before;
        IF NOT FOUND THEN
            PERFORM leasehold.refuse_token(guard.resource, guard.token, true);
        END IF;
        RETURN before;
    END
    $body$;

    -- The guard as a condition of the write, which saves a statement: true, or a refusal. Only for a
    -- holder that has sealed, as the statement began before the guard could wait for anybody. Plain SQL
    -- with nothing pinned, so that the planner puts the guard itself in its place.
    CREATE OR REPLACE FUNCTION leasehold.passes(resource text, token bigint) RETURNS boolean
    LANGUAGE sql VOLATILE AS
    'SELECT (leasehold.guard(resource, token) OPERATOR(pg_catalog.>) 0) IS NOT FALSE';

    -- Records a token before its holder reads. Answers the highest token before, if there was one. It
    -- does to the fence what a guard does, and is no use of the token in strict mode.
    CREATE OR REPLACE FUNCTION leasehold.seal(resource text, token bigint, mode text)
    RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
    'SELECT leasehold.guard(resource, token, false, mode)';

    CREATE OR REPLACE FUNCTION leasehold.seal(resource text, token bigint)
    RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
    'SELECT leasehold.guard(resource, token)';

    -- The highest token that this database has seen; nothing for a resource that it has not.
    CREATE OR REPLACE FUNCTION leasehold.highest_token(resource text) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $body$
    #variable_conflict use_column
    BEGIN
        RETURN (SELECT f.token FROM leasehold.fence AS f
            WHERE f.resource = highest_token.resource COLLATE "C");
    END
    $body$;

    -- The version of the kit.
    CREATE OR REPLACE FUNCTION leasehold.version() RETURNS integer
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
    'SELECT max(version) FROM leasehold.kit';

    -- Trigger mode ---------------------------------------------------------------------------------

    -- Before a statement, or before a row where a partition may have been written directly. STABLE, so
    -- that its own queries see what the statement sees.
    CREATE OR REPLACE FUNCTION leasehold.fenced() RETURNS trigger
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $body$
    #variable_conflict use_variable
    DECLARE
        resource text := nullif(current_setting('leasehold.resource', true), '');
        token text := nullif(current_setting('leasehold.token', true), '');
        mode text := coalesce(nullif(current_setting('leasehold.mode', true), ''), 'exclusive');
        once boolean := TG_ARGV[0]::boolean;
        passed text := CASE WHEN once THEN 'leasehold.passed_once' ELSE 'leasehold.passed' END;
        seen record;
        before bigint;
        moved boolean := false;
    BEGIN
        IF resource IS NULL OR token IS NULL THEN
            PERFORM leasehold.refuse('LH003', 'token_required',
                format('%s of %s needs the resource and the token of a lock', TG_OP, TG_RELID::regclass),
                'Before it, in the same transaction: '
                || 'SET LOCAL leasehold.resource = ''the name''; SET LOCAL leasehold.token = ''the token'';',
                resource, NULL::bigint, NULL::bigint);
        ELSIF TG_OP = 'TRUNCATE' AND TG_ARGV[1] <> '' THEN
            PERFORM leasehold.refuse('LH006', 'wrong_resource',
                format('TRUNCATE of %s removes the rows of every resource, and the lock is for one', TG_RELID::regclass),
                'DELETE the rows of the resource.', resource, NULL::bigint, NULL::bigint);
        ELSIF TG_OP IN ('UPDATE', 'DELETE') AND TG_ARGV[1] <> '' AND EXISTS (
            SELECT FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhparent
            WHERE i.inhparent = TG_RELID AND c.relkind = 'r') THEN
            RAISE EXCEPTION '% has tables that inherit from it, whose rows its column does not guard', TG_RELID::regclass
                USING ERRCODE = 'wrong_object_type',
                      HINT = 'Protect it without a column, or use partitions instead of inheritance.';
        ELSIF token !~ '^[1-9][0-9]{0,15}$' THEN
            PERFORM leasehold.refuse('LH004', 'invalid_request',
                format('leasehold.token is not a token: "%s"', left(token, 64)),
                'A token lies between 1 and 9007199254740991, in decimal digits.', resource, NULL::bigint, NULL::bigint);
        END IF;

        -- The row of the fence is locked until the end of the transaction: one check is enough. A
        -- rollback to a savepoint takes back the row and this setting together.
        IF mode = 'exclusive' AND current_setting(passed, true)
            = concat_ws(chr(10), pg_current_xact_id_if_assigned()::text, token, resource) THEN
            RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
        END IF;

        SELECT f.token, f.xmin INTO seen FROM leasehold.fence AS f
            WHERE f.resource = resource COLLATE "C";
        -- With a token that was not sealed before the statement began, the statement may have begun
        -- while an older holder's write was under way, and would not see it.
        IF seen.token IS DISTINCT FROM token::bigint THEN
            moved := leasehold.moved(resource, seen.xmin);
        END IF;
        before := leasehold.guard(resource, token::bigint, once, mode);
        IF moved OR (seen.token IS NULL AND before IS NOT NULL) THEN
            RAISE EXCEPTION 'could not serialize access: another holder of "%" wrote while this statement waited', resource
                USING ERRCODE = 'serialization_failure',
                      HINT = 'Run the transaction again. Call leasehold.seal before the first statement to avoid this.';
        END IF;
        -- A line break is in no token, and in no resource that a guard lets pass.
        PERFORM set_config(passed, concat_ws(chr(10), pg_current_xact_id()::text, token, resource), true);
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END
    $body$;

    -- Waits for a transaction that holds the fence of a resource, and tells whether it wrote.
    CREATE OR REPLACE FUNCTION leasehold.moved(resource text, version xid) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
    #variable_conflict use_column
    DECLARE
        now_there xid;
    BEGIN
        SELECT f.xmin INTO now_there FROM leasehold.fence AS f
            WHERE f.resource = moved.resource COLLATE "C" FOR NO KEY UPDATE;
        RETURN now_there IS DISTINCT FROM version;
    END
    $body$;

    -- After a row that is not of the resource; the condition is in the trigger.
    -- With the rights of the writer, never those of the owner: to_jsonb calls casts of types that
    -- anybody may have made.
    CREATE OR REPLACE FUNCTION leasehold.misplaced() RETURNS trigger
    LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $body$
    DECLARE
        resource text := current_setting('leasehold.resource', true);
        owner text;
    BEGIN
        IF TG_OP <> 'INSERT' THEN
            owner := to_jsonb(OLD) ->> TG_ARGV[0];
        END IF;
        IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND owner = resource COLLATE "C") THEN
            owner := to_jsonb(NEW) ->> TG_ARGV[0];
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'LH006',
            MESSAGE = format('a row of %s belongs to %s, and the lock is for %s', TG_RELID::regclass,
                coalesce('"' || left(owner, 512) || '"', 'no resource'), coalesce('"' || nullif(resource, '') || '"', 'none')),
            HINT = 'Set leasehold.resource to the lock that covers this row.',
            DETAIL = json_build_object('code', 'wrong_resource', 'resource', left(resource, 512));
    END
    $body$;

    -- The tables in trigger mode, as the catalog has them.
    --
    -- The arguments of a trigger are bytes, each followed by a zero: strictness, then the column; or the
    -- column alone. Triggers on partitions belong to the table that was protected. One trigger that is
    -- there without its siblings makes a table, so that a dropped one is told; and so does a trigger with
    -- a name of the kit that calls something else. Conditions are compared as the server words them, but
    -- for its parentheses and casts, and with whatever the column is called by now. The words depend on
    -- the path, so it is pinned.
    --
    -- To word a condition the server locks its table. Where somebody has it for themselves, or is about to,
    -- nothing is worded and nobody waited for, and what hangs on it is unknown: NULL.
    CREATE OR REPLACE FUNCTION leasehold.tables_protected()
    RETURNS TABLE (target regclass, resource_column text, strict boolean, enabled boolean, remade boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
        -- Begin: the tables in trigger mode.
        WITH RECURSIVE busy AS MATERIALIZED (
            SELECT l.relation FROM pg_locks AS l JOIN pg_database AS b ON b.oid = l.database
            WHERE b.datname = current_database() AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
                AND l.pid IS DISTINCT FROM pg_backend_pid()
        ), hung AS (
            SELECT t.*, n.nspname = 'leasehold' AND p.proname = k.proname AS own, k.proname, k.kind, k.arguments, k.words
            FROM (VALUES
                ('leasehold_fence', 'fenced', 62, 2, NULL),
                ('leasehold_fence_truncate', 'fenced', 34, 2, NULL),
                ('leasehold_fence_rows', 'fenced', 31, 1, 'current_setting(''leasehold.%s'', true)
                    = concat_ws(chr(10), pg_current_xact_id_if_assigned(), COALESCE(current_setting(''leasehold.token'', true), ''''),
                        current_setting(''leasehold.resource'', true)) IS NOT TRUE
                    OR COALESCE(current_setting(''leasehold.mode'', true), '''') <> ALL (ARRAY['''', ''exclusive''])'),
                ('leasehold_resource_insert', 'misplaced', 5, 1, '%2$s'),
                ('leasehold_resource_update', 'misplaced', 17, 1, '%1$s OR %2$s'),
                ('leasehold_resource_delete', 'misplaced', 9, 1, '%1$s')
            ) AS k (tgname, proname, kind, arguments, words)
            JOIN pg_trigger AS t ON t.tgname = k.tgname
            JOIN pg_proc AS p ON p.oid = t.tgfoid
            JOIN pg_namespace AS n ON n.oid = p.pronamespace
        ), split AS (
            SELECT h.*, substring(h.tgargs FOR greatest(position(decode('00', 'hex') IN h.tgargs) - 1, 0)) AS first,
                substring(h.tgargs FROM position(decode('00', 'hex') IN h.tgargs) + 1) AS rest
            FROM hung AS h
        ), told AS (
            SELECT s.*, CASE WHEN s.own AND s.proname = 'fenced' THEN s.first = 'true'::bytea END AS once,
                CASE WHEN s.own AND s.tgname <> 'leasehold_fence_rows' THEN convert_from(CASE s.proname WHEN 'misplaced' THEN s.first
                    ELSE substring(s.rest FOR greatest(position(decode('00', 'hex') IN s.rest) - 1, 0)) END, 'UTF8') END AS named
            FROM split AS s
        ), judged AS (
            SELECT t.*, CASE
                WHEN (t.own AND t.tgtype = t.kind AND t.tgnargs = t.arguments AND t.tgattr::text = ''
                    AND t.tgconstraint = 0 AND t.tgoldtable IS NULL AND t.tgnewtable IS NULL) IS NOT TRUE THEN false
                WHEN t.words IS NULL THEN t.tgqual IS NULL
                WHEN t.tgrelid IN (SELECT b.relation FROM busy AS b) THEN NULL
                ELSE EXISTS (
                    SELECT FROM (
                        SELECT format(t.words, CASE WHEN t.once THEN 'passed_once' ELSE 'passed' END)
                            WHERE t.proname = 'fenced'
                        UNION ALL SELECT format(t.words,
                            format('old.%I COLLATE "C" = current_setting(''leasehold.resource'', true) IS NOT TRUE', a.attname),
                            format('new.%I COLLATE "C" = current_setting(''leasehold.resource'', true) IS NOT TRUE', a.attname))
                            FROM pg_attribute AS a
                            WHERE t.proname = 'misplaced' AND a.attrelid = t.tgrelid AND a.attnum > 0 AND NOT a.attisdropped
                                AND (a.attname = t.named OR NOT EXISTS (SELECT FROM pg_attribute AS o
                                    WHERE o.attrelid = t.tgrelid AND o.attname = t.named AND NOT o.attisdropped))
                    ) AS c (condition)
                    WHERE strpos(regexp_replace(pg_get_triggerdef(t.oid), '[[:space:]()]|::text', '', 'g'),
                        regexp_replace(format(' FOR EACH ROW WHEN (%s) EXECUTE FUNCTION leasehold.', c.condition),
                            '[[:space:]()]|::text', '', 'g')) > 0
                ) END AS made
            FROM told AS t
        ), placed AS (
            SELECT j.*, coalesce(
                (SELECT a.relid::oid FROM pg_partition_ancestors(j.tgrelid) WITH ORDINALITY AS a (relid, step)
                    WHERE EXISTS (SELECT FROM judged AS above WHERE above.tgrelid = a.relid
                        AND above.tgparentid = 0 AND above.tgname <> 'leasehold_fence_truncate')
                    ORDER BY a.step LIMIT 1),
                pg_partition_root(j.tgrelid)::oid, j.tgrelid) AS place
            FROM judged AS j
        ), below (place, part) AS (
            SELECT DISTINCT p.place, i.inhrelid FROM placed AS p JOIN pg_class AS c ON c.oid = p.place AND c.relkind = 'p'
            JOIN pg_inherits AS i ON i.inhparent = c.oid
            UNION SELECT b.place, i.inhrelid FROM below AS b JOIN pg_inherits AS i ON i.inhparent = b.part
        ), whole AS (
            SELECT p.place, nullif(coalesce(max(p.named) FILTER (WHERE p.proname = 'misplaced'),
                    max(p.named) FILTER (WHERE p.tgname = 'leasehold_fence')), '') AS named,
                coalesce(bool_or(p.once), false) AS once,
                bool_and(p.tgenabled IN ('O', 'A')) AS awake,
                bool_and(coalesce(p.made, true)) AND count(DISTINCT p.once) <= 1 AND count(DISTINCT p.named) <= 1 AS made,
                CASE WHEN bool_and(p.made IS NOT NULL) THEN true END AS seen,
                count(*) FILTER (WHERE p.tgname = 'leasehold_fence' AND p.tgrelid = p.place) AS statements,
                count(*) FILTER (WHERE p.tgname = 'leasehold_fence_rows') AS rows,
                count(*) FILTER (WHERE p.tgname = 'leasehold_fence_truncate' AND p.tgrelid <> p.place) AS truncates,
                count(*) FILTER (WHERE p.proname = 'misplaced') AS checks,
                (SELECT count(*) FROM below AS b WHERE b.place = p.place) AS parts
            FROM placed AS p GROUP BY p.place
        )
        SELECT w.place::regclass, w.named, w.once, w.awake AND w.made AND w.statements = 1 AND w.rows = w.parts + 1
                AND w.truncates = w.parts AND (w.named IS NULL OR w.checks = 3 * (w.parts + 1)) AND w.seen,
            NOT (w.made AND w.seen)
        FROM whole AS w
        -- End.
    $body$;

    -- `enabled` says that every trigger that makes it is there, enabled, and as `protect` makes it;
    -- `remade` that one is not as `protect` makes it. Either is NULL while somebody has the table locked
    -- for themselves.
    CREATE OR REPLACE VIEW leasehold.protected AS
        SELECT p.target, p.resource_column, p.strict, p.enabled, p.remade FROM leasehold.tables_protected() AS p;

    -- Takes a table out of trigger mode. Whoever owns the table may call it. It waits for whoever uses the
    -- table, and everybody else queues behind it.
    CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
    DECLARE
        one record;
        patience constant text := current_setting('lock_timeout');
    BEGIN
        IF patience = '0' THEN
            PERFORM set_config('lock_timeout', '10s', true);
        END IF;
        FOR one IN
            SELECT t.tgname, t.tgrelid::regclass AS place FROM pg_trigger AS t
            WHERE (t.tgrelid = unprotect.target
                    OR t.tgrelid IN (SELECT relid FROM pg_partition_tree(unprotect.target)))
                AND (t.tgfoid IN ('leasehold.fenced'::regproc, 'leasehold.misplaced'::regproc)
                    -- Another trigger of the same name would be in the way of the next call of `protect`.
                    OR t.tgname IN ('leasehold_fence', 'leasehold_fence_rows', 'leasehold_fence_truncate',
                        'leasehold_resource_insert', 'leasehold_resource_update', 'leasehold_resource_delete'))
                AND t.tgparentid = 0
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, one.place);
        END LOOP;
        PERFORM set_config('lock_timeout', patience, true);
    END
    $body$;

    -- Puts a table into trigger mode. Whoever owns the table may call it, also again: after a new
    -- partition was made, or to change the column or the strictness.
    CREATE OR REPLACE FUNCTION leasehold.protect(
        target regclass, resource_column name DEFAULT NULL, strict boolean DEFAULT false
    ) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
    #variable_conflict use_variable
    DECLARE
        kind "char";
        partition boolean;
        place text;
        deed text;
        old_row text;
        new_row text;
        leaf regclass;
        typed text;
        was record;
        patience constant text := current_setting('lock_timeout');
        -- True for a row whose statement has passed already.
        memo constant text := format(
            '(current_setting(%L, true) = concat_ws(chr(10), pg_current_xact_id_if_assigned()::text,'
            || ' coalesce(current_setting(''leasehold.token'', true), ''''), current_setting(''leasehold.resource'', true)))'
            || ' IS NOT TRUE OR coalesce(current_setting(''leasehold.mode'', true), '''') NOT IN ('''', ''exclusive'')',
            CASE WHEN protect.strict THEN 'leasehold.passed_once' ELSE 'leasehold.passed' END);
    BEGIN
        IF patience = '0' THEN
            PERFORM set_config('lock_timeout', '10s', true);
        END IF;
        SELECT c.relkind, c.relispartition, n.nspname INTO kind, partition, place
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = target;
        IF protect.strict IS NULL OR kind IS NULL THEN
            RAISE EXCEPTION 'a table and true or false are required' USING ERRCODE = 'null_value_not_allowed';
        ELSIF kind NOT IN ('r', 'p') THEN
            RAISE EXCEPTION '% is not a table', target
                USING ERRCODE = 'wrong_object_type', HINT = 'Protect the tables below a view; a foreign table lies where this fence cannot lock.';
        ELSIF place IN ('pg_catalog', 'information_schema', 'leasehold') OR place LIKE 'pg\_toast%' THEN
            RAISE EXCEPTION '% belongs to the system', target USING ERRCODE = 'wrong_object_type';
        ELSIF partition THEN
            RAISE EXCEPTION '% is a partition', target
                USING ERRCODE = 'wrong_object_type', HINT = 'Protect the partitioned table: that covers writes to its partitions as well.';
        ELSIF EXISTS (SELECT FROM pg_partition_tree(target) AS p JOIN pg_class AS c ON c.oid = p.relid WHERE c.relkind = 'f') THEN
            RAISE EXCEPTION '% has a partition that is a foreign table', target
                USING ERRCODE = 'wrong_object_type', HINT = 'A foreign table lies where this fence cannot lock.';
        ELSIF resource_column IS NOT NULL AND NOT EXISTS (
            SELECT FROM pg_attribute AS a WHERE a.attrelid = target AND a.attname = resource_column
                AND a.attnum > 0 AND NOT a.attisdropped) THEN
            RAISE EXCEPTION '% has no column "%"', target, resource_column USING ERRCODE = 'undefined_column';
        END IF;

        IF resource_column IS NOT NULL AND kind = 'r'
            AND EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = target) THEN
            RAISE EXCEPTION '% has tables that inherit from it, whose rows its column does not guard', target
                USING ERRCODE = 'wrong_object_type',
                      HINT = 'Protect it without a column, or use partitions instead of inheritance.';
        END IF;
        SELECT format_type(a.atttypid, NULL) INTO typed FROM pg_attribute AS a
            WHERE a.attrelid = target AND a.attname = resource_column
                AND a.atttypid NOT IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'name'::regtype);
        IF typed IS NOT NULL THEN
            RAISE NOTICE 'column "%" of % is of type %: a row belongs to the resource that is called as the value reads as text',
                resource_column, target, typed
                USING HINT = 'Where the locks are called otherwise, generate a column that has their names.';
        END IF;
        -- Of this table alone, as others may be locked. The arguments are strictness, then the column; or one of them.
        SELECT nullif(max(convert_from(CASE
                    WHEN t.tgnargs = 2 THEN substring(t.tgargs FROM a.length + 2 FOR length(t.tgargs) - a.length - 2)
                    WHEN t.tgfoid = 'leasehold.misplaced'::regproc THEN substring(t.tgargs FOR a.length)
                END, 'UTF8')), '') AS resource_column,
                coalesce(bool_or(t.tgfoid = 'leasehold.fenced'::regproc AND substring(t.tgargs FOR a.length) = 'true'::bytea), false) AS once
            INTO was FROM pg_trigger AS t, LATERAL (SELECT position(decode('00', 'hex') IN t.tgargs) - 1) AS a (length)
            WHERE t.tgrelid = target AND t.tgnargs > 0 AND t.tgfoid IN ('leasehold.fenced'::regproc, 'leasehold.misplaced'::regproc);
        IF (was.resource_column IS NOT NULL AND resource_column IS NULL) OR (was.once AND NOT protect.strict) THEN
            RAISE WARNING '% was protected with column % and strict %: this call asks for less, and counts from now on',
                target, coalesce(quote_ident(was.resource_column), 'none'), was.once::text
                USING HINT = format('To have it as it was: SELECT leasehold.protect(%L::pg_catalog.regclass, %L::pg_catalog.name, %s)',
                    target, was.resource_column, was.once::text);
        END IF;

        PERFORM leasehold.unprotect(target);
        EXECUTE format('CREATE TRIGGER leasehold_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
            || ' FOR EACH STATEMENT EXECUTE FUNCTION leasehold.fenced(%L, %L)',
            target, protect.strict::text, coalesce(resource_column, ''));

        -- A statement on another table can reach these rows: one on a partition, or on a parent, which
        -- a table may also be given later.
        EXECUTE format('CREATE TRIGGER leasehold_fence_rows BEFORE INSERT OR UPDATE OR DELETE ON %s'
            || ' FOR EACH ROW WHEN (%s) EXECUTE FUNCTION leasehold.fenced(%L)', target, memo, protect.strict::text);
        FOR leaf IN SELECT p.relid FROM pg_partition_tree(target) AS p WHERE p.relid <> target LOOP
            EXECUTE format('CREATE TRIGGER leasehold_fence_truncate BEFORE TRUNCATE ON %s'
                || ' FOR EACH STATEMENT EXECUTE FUNCTION leasehold.fenced(%L, %L)',
                leaf, protect.strict::text, coalesce(resource_column, ''));
        END LOOP;

        IF resource_column IS NOT NULL THEN
            -- After the row, so that generated columns and what other triggers did are in it.
            old_row := format('(OLD.%I::text COLLATE "C" = current_setting(''leasehold.resource'', true)) IS NOT TRUE', resource_column);
            new_row := format('(NEW.%I::text COLLATE "C" = current_setting(''leasehold.resource'', true)) IS NOT TRUE', resource_column);
            FOREACH deed IN ARRAY ARRAY['insert', 'update', 'delete'] LOOP
                EXECUTE format('CREATE TRIGGER %I AFTER %s ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION leasehold.misplaced(%L)',
                    'leasehold_resource_' || deed, deed, target,
                    CASE deed WHEN 'insert' THEN new_row WHEN 'delete' THEN old_row ELSE old_row || ' OR ' || new_row END,
                    resource_column);
            END LOOP;
        END IF;
        PERFORM set_config('lock_timeout', patience, true);
    END
    $body$;

    -- Tables whose triggers are not as `protect` makes them -----------------------------------------

    -- Somebody may use such a table: it is waited for a moment, and told. No other is waited for.
    PERFORM set_config('lock_timeout', least(setting::integer, 1000)::text, true) FROM pg_settings WHERE name = 'lock_timeout';
    BEGIN
        FOR one IN
            SELECT p.target, p.remade, format('SELECT leasehold.protect(%L::pg_catalog.regclass, %L::pg_catalog.name, %s)',
                    p.target, coalesce(c.judges, p.resource_column), p.strict::text) AS call,
                -- Else nothing tells how strict it was, or with which column.
                EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = p.target AND t.tgfoid = 'leasehold.fenced'::regproc)
                    AND (p.resource_column IS NOT NULL OR NOT EXISTS (SELECT FROM pg_trigger AS t
                        WHERE t.tgrelid = p.target AND starts_with(t.tgname::text, 'leasehold_resource_'))) AS known,
                c.judges, c.misnamed
            FROM leasehold.protected AS p, LATERAL (
                -- Begin: the column by which the rows of a table are judged.
                SELECT j.judges, j.judges <> p.resource_column AND EXISTS (SELECT FROM pg_attribute AS o
                    WHERE o.attrelid = p.target AND o.attname = p.resource_column AND NOT o.attisdropped) AS misnamed
                FROM (SELECT (
                    SELECT a.attname::text FROM pg_trigger AS t
                    JOIN pg_depend AS d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                        AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid
                    JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = d.refobjsubid AND a.attnum > 0
                    WHERE t.tgrelid = p.target AND starts_with(t.tgname::text, 'leasehold_resource_')
                    ORDER BY (a.attname = p.resource_column) IS TRUE DESC, a.attnum LIMIT 1)) AS j (judges)
                -- End.
            ) AS c
            WHERE p.remade IS NOT FALSE
        LOOP
            IF one.remade IS NULL THEN
                RAISE WARNING '% is locked by somebody, so its triggers were not looked at', one.target
                    USING HINT = 'Look at leasehold.protected when they are done, or install again.';
                CONTINUE;
            END IF;
            BEGIN
                IF NOT one.known THEN
                    RAISE 'nothing tells how it was protected';
                -- A guard that moves to another column refuses whoever holds the right lock, and lets others in.
                ELSIF one.misnamed THEN
                    RAISE 'its rows are judged by column "%", and another column has the name by now that it had', one.judges;
                END IF;
                EXECUTE one.call;
            EXCEPTION WHEN OTHERS THEN
                -- It may be somebody else's, or in use. That is no reason to go without the rest.
                RAISE WARNING '% has triggers that are not as the kit makes them: %', one.target, SQLERRM
                    USING HINT = 'To protect it as it was, call leasehold.protect with its column and strictness: ' || one.call;
                -- A moment for all of them together, however many somebody holds.
                IF SQLSTATE = '55P03' THEN
                    PERFORM set_config('lock_timeout', '1', true);
                END IF;
            END;
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        RAISE WARNING 'whether triggers are as the kit makes them was not looked at: %', SQLERRM
            USING HINT = 'Look at leasehold.protected, or install again.';
    END;

    -- Privileges -----------------------------------------------------------------------------------

    -- What is new is the owner's alone, whatever the default privileges are, and then what is meant for
    -- everybody is granted. On what was there before, grants and their withdrawals stay as they are.
    FOR one IN
        SELECT DISTINCT p.oid::regprocedure AS call,
            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        WHERE p.pronamespace = 'leasehold'::regnamespace AND p.oid <> ALL (functions) AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', one.call, one.grantee);
    END LOOP;
    FOR one IN
        SELECT p.oid::regprocedure AS call FROM pg_proc AS p
        WHERE p.pronamespace = 'leasehold'::regnamespace AND p.oid <> ALL (functions)
            AND p.proname IN ('seal', 'guard', 'passes', 'highest_token', 'version', 'fenced', 'misplaced',
                'protect', 'unprotect', 'tables_protected')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', one.call);
    END LOOP;
    IF current_setting('server_version_num')::integer >= 170000 THEN
        deeds := deeds || ', MAINTAIN';
    END IF;
    FOR one IN
        SELECT DISTINCT c.oid::regclass AS place,
            CASE WHEN c.oid = ANY (relations) THEN deeds ELSE 'ALL' END AS deeds,
            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM pg_class AS c, LATERAL (
            SELECT e.grantee FROM aclexplode(c.relacl) AS e
            UNION SELECT e.grantee FROM pg_attribute AS t, aclexplode(t.attacl) AS e WHERE t.attrelid = c.oid) AS a
        WHERE c.relnamespace = 'leasehold'::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner
    LOOP
        -- Those of the columns that the owner gave go with them.
        EXECUTE format('REVOKE %s ON %s FROM %s CASCADE', one.deeds, one.place, one.grantee);
    END LOOP;
    -- What somebody with a right on the table has handed on for a column outlives that right. It goes
    -- with the same right on the column, if that is the owner's to take.
    FOR one IN
        SELECT DISTINCT c.oid::regclass AS place, t.attname AS part, a.privilege_type AS deed,
            quote_ident(pg_get_userbyid(a.grantor)) AS giver
        FROM pg_class AS c JOIN pg_attribute AS t ON t.attrelid = c.oid, aclexplode(t.attacl) AS a
        WHERE c.relnamespace = 'leasehold'::regnamespace AND c.relkind IN ('r', 'v') AND NOT t.attisdropped
            AND a.grantor <> c.relowner AND a.privilege_type <> 'SELECT'
    LOOP
        EXECUTE format('GRANT %s (%I) ON %s TO %s WITH GRANT OPTION', one.deed, one.part, one.place, one.giver);
        EXECUTE format('REVOKE %s (%I) ON %s FROM %s CASCADE', one.deed, one.part, one.place, one.giver);
    END LOOP;
    IF 'leasehold.protected'::regclass <> ALL (relations) THEN
        GRANT SELECT ON leasehold.protected TO PUBLIC;
    END IF;
    -- Whoever may create in the schema can make a call that is a better match than that of the kit.
    FOR one IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
        WHERE n.nspname = 'leasehold' AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
    LOOP
        EXECUTE format('REVOKE CREATE ON SCHEMA leasehold FROM %s CASCADE', one.grantee);
    END LOOP;
    SELECT a.deed, a.place, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        INTO one FROM (
            SELECT e.privilege_type, 'the schema ' || n.nspname, e.grantee, n.nspowner
                FROM pg_namespace AS n, aclexplode(n.nspacl) AS e WHERE n.nspname = 'leasehold'
            UNION ALL SELECT e.privilege_type, c.oid::regclass::text, e.grantee, c.relowner
                FROM pg_class AS c, aclexplode(c.relacl) AS e WHERE c.relnamespace = 'leasehold'::regnamespace
            UNION ALL SELECT e.privilege_type, c.oid::regclass::text, e.grantee, c.relowner
                FROM pg_class AS c JOIN pg_attribute AS t ON t.attrelid = c.oid, aclexplode(t.attacl) AS e
                WHERE c.relnamespace = 'leasehold'::regnamespace AND NOT t.attisdropped
        ) AS a (deed, place, grantee, owner)
        WHERE a.grantee <> a.owner AND a.deed NOT IN ('SELECT', 'USAGE') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% has % on %, and it cannot be taken back', one.grantee, one.deed, one.place
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Everything is as it was. Revoke what whoever gave that right has, and install again.';
    END IF;

    -- For those who want to know the version and would not run what somebody else may have written.
    EXECUTE format('COMMENT ON FUNCTION leasehold.version() IS %L', 'version ' || ours);
    -- The rest of a transaction that this runs in goes on as it was.
    PERFORM set_config('search_path', path, true), set_config('lock_timeout', patience, true);
END
$kit$;
