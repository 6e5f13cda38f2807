-- The schema of freshet's rows and guards, format 1, from which the files beside it go on. {{schema}} is its name,
-- {{first}} where versions begin, {{partition}} says how rows are partitioned.
CREATE SCHEMA IF NOT EXISTS {{schema}};

CREATE TABLE {{schema}}.meta (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    format  integer NOT NULL,
    cluster text,               -- who uses the schema: nobody else may
    floor   bigint NOT NULL     -- the version of every absence that has no row
);
INSERT INTO {{schema}}.meta (format, floor) VALUES (1, 0);

-- Never reused, also across deletes; the odd ones are absences after expiry.
CREATE SEQUENCE {{schema}}.version AS bigint INCREMENT BY 2 START WITH {{first}} CACHE 1;

CREATE TABLE {{schema}}.rows (
    key     bytea PRIMARY KEY,
    value   bytea,              -- null: the key was deleted, or has expired
    version bigint NOT NULL,
    writer  uuid NOT NULL,
    written timestamptz NOT NULL,
    expires timestamptz
) {{partition}};
CREATE INDEX rows_expires ON {{schema}}.rows (expires) WHERE expires IS NOT NULL;
CREATE INDEX rows_gone ON {{schema}}.rows (written) WHERE value IS NULL;

-- Guards are soft state: PostgreSQL empties an unlogged table after a crash, and
-- a standby has nothing in it. It is empty, or for each stripe its rows cover all
-- keys and do not overlap; an empty high is no end, the zero token no guard. A
-- writer locks the row of one stripe, so that writers do not meet; SetGuard
-- changes all.
CREATE UNLOGGED TABLE {{schema}}.guards (
    stripe smallint NOT NULL,
    low    bytea NOT NULL,
    high   bytea NOT NULL,
    token  uuid NOT NULL,
    PRIMARY KEY (stripe, low)
) WITH (fillfactor = 50);

-- cover makes the guards cover all keys if there are none. It is called outside of
-- other transactions: its lock must not wait for anybody who waits for it.
CREATE FUNCTION {{schema}}.cover() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {{schema}}.guards) THEN
        RETURN;
    END IF;
    LOCK TABLE {{schema}}.guards IN SHARE ROW EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM {{schema}}.guards) THEN
        INSERT INTO {{schema}}.guards
        SELECT s, '', '', '00000000-0000-0000-0000-000000000000' FROM generate_series(0, 31) s;
    END IF;
END $$;

-- set_guard installs t over the keys from lo up to hi. It holds the lock of every
-- guard it changes before it changes one, and so waits for the writers that have
-- checked them, up to their commit. It answers false, and has done nothing, if there
-- are no guards to change: cover, and call again.
CREATE FUNCTION {{schema}}.set_guard(lo bytea, hi bytea, t uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    stripes constant smallint[] := ARRAY(SELECT generate_series(0, 31)::smallint);
    first bytea;
    mine  bytea[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: guards need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    IF hi <> '' AND hi <= lo THEN
        RAISE EXCEPTION 'freshet: a guard over an empty range' USING ERRCODE = 'FR005';
    END IF;
    LOOP
        SELECT low INTO first FROM {{schema}}.guards WHERE stripe = 0 AND low <= lo ORDER BY low DESC LIMIT 1;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        SELECT array_agg(DISTINCT low) INTO mine FROM (
            SELECT low FROM {{schema}}.guards
            WHERE stripe = ANY (stripes) AND low >= first AND (hi = '' OR low < hi) AND (high = '' OR high > lo)
            ORDER BY stripe, low FOR UPDATE) locked;
        -- What others made while we waited for their locks is seen only now.
        EXIT WHEN mine IS NOT NULL AND NOT EXISTS (
            SELECT FROM {{schema}}.guards
            WHERE stripe = 0 AND (high = '' OR high > lo) AND (hi = '' OR low < hi) AND low <> ALL (mine));
    END LOOP;
    IF hi <> '' THEN -- what lies behind the range keeps its token
        INSERT INTO {{schema}}.guards
        SELECT stripe, hi, high, token FROM {{schema}}.guards
        WHERE stripe = ANY (stripes) AND low = ANY (mine) AND low < hi AND (high = '' OR high > hi);
    END IF;
    DELETE FROM {{schema}}.guards WHERE stripe = ANY (stripes) AND low = ANY (mine) AND low > lo;
    UPDATE {{schema}}.guards SET high = lo WHERE stripe = ANY (stripes) AND low = ANY (mine) AND low < lo;
    INSERT INTO {{schema}}.guards SELECT s, lo, hi, t FROM unnest(stripes) s
    ON CONFLICT (stripe, low) DO UPDATE SET high = EXCLUDED.high, token = EXCLUDED.token;
    RETURN true;
END $$;

-- commit writes several keys, sorted, all or none. It answers 0 and what was
-- written, 1 if a guard was another, or 2 if there was none to check: nothing was
-- written then, and it may be tried again. A condition that does not hold is an
-- error. ttls are microseconds: 0 for ever, -1 keeps what is there.
CREATE FUNCTION {{schema}}.commit(
    keys bytea[], vals bytea[], tokens uuid[], ttls bigint[], checks boolean[], expects bigint[], id uuid,
    OUT status integer, OUT versions bigint[], OUT lives bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    found_guards integer;
    equal_guards integer;
    plain        constant boolean := NOT (true = ANY (checks)) AND 0 = ALL (ttls); -- the arrays below need not be searched
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: guards need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    SELECT count(*), count(*) FILTER (WHERE g.token = k.token) INTO found_guards, equal_guards
    FROM unnest(keys, tokens) k(key, token) CROSS JOIN LATERAL (
        SELECT guards.token FROM {{schema}}.guards
        WHERE stripe = pg_backend_pid() % 32 AND low <= k.key AND (high = '' OR high > k.key)
        ORDER BY low DESC LIMIT 1 FOR SHARE) g;
    status := CASE WHEN equal_guards = cardinality(keys) THEN 0 WHEN found_guards < cardinality(keys) THEN 2 ELSE 1 END;
    IF status <> 0 THEN
        RETURN;
    END IF;
    IF NOT plain AND EXISTS ( -- a row that is expected must be there; the rest is checked where it is locked
        SELECT FROM unnest(keys, checks, expects) c(key, checked, version)
        WHERE c.checked AND c.version NOT IN (0, (SELECT floor FROM {{schema}}.meta))
            AND NOT EXISTS (SELECT FROM {{schema}}.rows WHERE rows.key = c.key)) THEN
        RAISE EXCEPTION 'freshet: a key has another version' USING ERRCODE = 'FR003';
    END IF;
    WITH written AS (
        INSERT INTO {{schema}}.rows AS r (key, value, version, writer, written, expires)
        SELECT m.key, m.value, nextval('{{schema}}.version'), id, clock_timestamp(),
            CASE WHEN m.ttl > 0 AND m.value IS NOT NULL THEN clock_timestamp() + m.ttl * interval '1 microsecond' END
        FROM unnest(keys, vals, ttls) m(key, value, ttl) ORDER BY m.key
        ON CONFLICT (key) DO UPDATE SET
            value = EXCLUDED.value, version = nextval('{{schema}}.version'), writer = EXCLUDED.writer, written = clock_timestamp(),
            expires = CASE
                WHEN plain OR EXCLUDED.value IS NULL THEN NULL
                WHEN EXCLUDED.expires IS NOT NULL THEN clock_timestamp() + ttls[array_position(keys, r.key)] * interval '1 microsecond'
                WHEN ttls[array_position(keys, r.key)] = -1 THEN r.expires
            END
        WHERE plain OR NOT checks[array_position(keys, r.key)]
            OR expects[array_position(keys, r.key)] = r.version + CASE WHEN r.expires <= clock_timestamp() THEN 1 ELSE 0 END
        RETURNING r.key, r.version, r.written, r.expires
    )
    SELECT array_agg(w.version ORDER BY w.key),
        array_agg(CASE WHEN w.expires IS NULL THEN 0
            ELSE greatest(1, (extract(epoch FROM w.expires - w.written) * 1000000)::bigint) END ORDER BY w.key)
    INTO versions, lives FROM written w;
    IF coalesce(cardinality(versions), 0) < cardinality(keys) THEN
        RAISE EXCEPTION 'freshet: a key has another version' USING ERRCODE = 'FR003';
    END IF;
END $$;
