-- Version 1 of the kit, kept as it was: what a database may hold that is to be upgraded.

DO $kit$
BEGIN
    PERFORM pg_advisory_xact_lock(7810758011010182508);
    CREATE SCHEMA leasehold;
    CREATE TABLE leasehold.kit (version integer PRIMARY KEY, installed_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE leasehold.fence (
        resource text COLLATE "C" PRIMARY KEY,
        token bigint NOT NULL
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
    INSERT INTO leasehold.kit (version) VALUES (1);

    CREATE FUNCTION leasehold.guard(resource text, token bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    #variable_conflict use_column
    DECLARE
        highest bigint;
    BEGIN
        INSERT INTO leasehold.fence AS f (resource, token) VALUES (guard.resource, guard.token)
            ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token;
        IF NOT FOUND THEN
            SELECT f.token INTO highest FROM leasehold.fence AS f WHERE f.resource = guard.resource COLLATE "C";
            RAISE EXCEPTION 'token % is stale: the highest one seen is %', guard.token, highest
                USING ERRCODE = 'LH001';
        END IF;
        RETURN guard.token;
    END
    $body$;

    CREATE FUNCTION leasehold.seal(resource text, token bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    BEGIN
        RETURN leasehold.guard(seal.resource, seal.token);
    END
    $body$;

    CREATE FUNCTION leasehold.highest_token(resource text) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    #variable_conflict use_column
    BEGIN
        RETURN (SELECT f.token FROM leasehold.fence AS f WHERE f.resource = highest_token.resource COLLATE "C");
    END
    $body$;

    CREATE FUNCTION leasehold.version() RETURNS integer
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
    'SELECT max(version) FROM leasehold.kit';

    REVOKE ALL ON leasehold.fence, leasehold.kit FROM PUBLIC;
END
$kit$;
