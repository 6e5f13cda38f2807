-- Format 4: spaces that keep concurrent writes.

ALTER TABLE {{schema}}.spaces ADD COLUMN beside boolean NOT NULL DEFAULT false;

-- The versions of a key, deletions too, until a write takes their place that names them.
-- Who writes past every cache leaves origin 0 and number 0.
CREATE TABLE {{schema}}.beside (
    space   text COLLATE "C" NOT NULL,
    key     bytea NOT NULL,
    origin  bigint NOT NULL DEFAULT 0,
    n       bigint NOT NULL DEFAULT 0,
    value   bytea,              -- null: a deletion
    time    bigint NOT NULL,
    stamper bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (space, key, origin, n)
);
CREATE INDEX beside_gone ON {{schema}}.beside (space, time) WHERE value IS NULL;

-- enter puts a write's entry into the journal: 0 if that is news, and its rows are to follow;
-- 1 if the origin is fenced or never began; 2 if all was done before. Who calls it holds the
-- origin's lock, shared, up to its commit.
CREATE FUNCTION {{schema}}.enter(sp text, lock bigint, o bigint, num bigint, t bigint, entry bytea) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    known record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: fences need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(lock);
    SELECT fenced, settled INTO known FROM {{schema}}.lives WHERE space = sp AND origin = o;
    IF NOT FOUND OR known.fenced THEN
        RETURN 1;
    END IF;
    IF num <= known.settled THEN
        RETURN 2;
    END IF;
    INSERT INTO {{schema}}.journal VALUES (sp, o, num, t, entry) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN -- another try of the same write
        RETURN 2;
    END IF;
    RETURN 0;
END $$;

-- persist is as in format 3, with what it has in common with persist_beside in one place.
CREATE OR REPLACE FUNCTION {{schema}}.persist(
    sp text, lock bigint, o bigint, num bigint, t bigint, st bigint, entry bytea, keys bytea[], vals bytea[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    done integer := {{schema}}.enter(sp, lock, o, num, t, entry);
BEGIN
    IF done > 0 THEN
        RETURN done % 2;
    END IF;
    INSERT INTO {{schema}}.dotted AS r (space, key, value, time, stamper, origin, n)
    SELECT sp, m.key, m.value, t, st, o, num FROM unnest(keys, vals) m(key, value) ORDER BY m.key
    ON CONFLICT (space, key) DO UPDATE SET
        value = EXCLUDED.value, time = EXCLUDED.time, stamper = EXCLUDED.stamper, origin = EXCLUDED.origin, n = EXCLUDED.n
        WHERE (r.time, r.stamper) < (EXCLUDED.time, EXCLUDED.stamper);
    RETURN 0;
END $$;

-- persist_beside is persist where concurrent writes are kept: what goes is named by key,
-- origin and number.
CREATE FUNCTION {{schema}}.persist_beside(
    sp text, lock bigint, o bigint, num bigint, t bigint, st bigint, entry bytea, keys bytea[], vals bytea[],
    over_keys bytea[], over_origins bigint[], over_ns bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    done integer := {{schema}}.enter(sp, lock, o, num, t, entry);
BEGIN
    IF done > 0 THEN
        RETURN done % 2;
    END IF;
    -- In order, so that no two wait for each other.
    PERFORM 1 FROM {{schema}}.beside b WHERE b.space = sp AND b.key = ANY(keys)
        AND (b.origin = 0 AND (b.time, b.stamper) < (t, st) OR (b.key, b.origin, b.n) IN (SELECT * FROM unnest(over_keys, over_origins, over_ns)))
        ORDER BY b.key, b.origin, b.n FOR UPDATE;
    DELETE FROM {{schema}}.beside b WHERE b.space = sp AND b.key = ANY(keys)
        AND (b.origin = 0 AND (b.time, b.stamper) < (t, st) OR (b.key, b.origin, b.n) IN (SELECT * FROM unnest(over_keys, over_origins, over_ns)));
    INSERT INTO {{schema}}.beside (space, key, origin, n, value, time, stamper)
    SELECT sp, m.key, o, num, m.value, t, st FROM unnest(keys, vals) m(key, value);
    RETURN 0;
END $$;

UPDATE {{schema}}.meta SET format = 4;
