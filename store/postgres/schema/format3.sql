-- Format 3: rows and journals of causal spaces.

-- An origin is one life of a server. Who persists holds its lock shared, from before it
-- looks here up to its commit; who fences or lets go holds it alone.
CREATE TABLE {{schema}}.lives (
    space   text COLLATE "C" NOT NULL,
    origin  bigint NOT NULL,
    fenced  boolean NOT NULL,
    settled bigint NOT NULL,    -- let go up to here
    time    bigint NOT NULL DEFAULT 0, -- the largest among that
    PRIMARY KEY (space, origin)
);

-- Tombstones with a smaller time were forgotten.
CREATE TABLE {{schema}}.spaces (
    space  text COLLATE "C" PRIMARY KEY,
    buried bigint NOT NULL
);

CREATE TABLE {{schema}}.journal (
    space  text COLLATE "C" NOT NULL,
    origin bigint NOT NULL,
    n      bigint NOT NULL,
    time   bigint NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (space, origin, n)
);

-- The write with the largest stamp (time, stamper). Who writes past every cache leaves
-- no dot, and a stamper of 0.
CREATE TABLE {{schema}}.dotted (
    space   text COLLATE "C" NOT NULL,
    key     bytea NOT NULL,
    value   bytea,              -- null: the key was deleted
    time    bigint NOT NULL,
    stamper bigint NOT NULL DEFAULT 0,
    origin  bigint NOT NULL DEFAULT 0,
    n       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (space, key)
);
CREATE INDEX dotted_gone ON {{schema}}.dotted (space, time) WHERE value IS NULL;

-- persist commits a write, whose keys are sorted, with its entry: 0 if that is done, or
-- was before; 1 if the origin is fenced or never began.
CREATE FUNCTION {{schema}}.persist(
    sp text, lock bigint, o bigint, num bigint, t bigint, st bigint, entry bytea, keys bytea[], vals bytea[]) RETURNS integer LANGUAGE plpgsql AS $$
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
        RETURN 0;
    END IF;
    INSERT INTO {{schema}}.journal VALUES (sp, o, num, t, entry) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    INSERT INTO {{schema}}.dotted AS r (space, key, value, time, stamper, origin, n)
    SELECT sp, m.key, m.value, t, st, o, num FROM unnest(keys, vals) m(key, value) ORDER BY m.key
    ON CONFLICT (space, key) DO UPDATE SET
        value = EXCLUDED.value, time = EXCLUDED.time, stamper = EXCLUDED.stamper, origin = EXCLUDED.origin, n = EXCLUDED.n
        WHERE (r.time, r.stamper) < (EXCLUDED.time, EXCLUDED.stamper);
    RETURN 0;
END $$;

-- fence ends an origin, when who persists for it has committed or never will.
CREATE FUNCTION {{schema}}.fence(sp text, lock bigint, o bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO {{schema}}.lives VALUES (sp, o, true, 0)
    ON CONFLICT (space, origin) DO UPDATE SET fenced = true;
END $$;

-- let_go forgets an origin's entries up to a number, and remembers the number. It
-- answers false if the origin never began, or is fenced and should not be, or the reverse.
CREATE FUNCTION {{schema}}.let_go(sp text, lock bigint, o bigint, upto bigint, over boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    UPDATE {{schema}}.lives l SET settled = greatest(settled, upto), time = greatest(time,
        (SELECT max(j.time) FROM {{schema}}.journal j WHERE j.space = sp AND j.origin = o AND j.n <= upto)) WHERE space = sp AND origin = o AND fenced = over;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {{schema}}.journal WHERE space = sp AND origin = o AND n <= upto;
    RETURN true;
END $$;

UPDATE {{schema}}.meta SET format = 3;
