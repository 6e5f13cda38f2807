-- Format 5: writers past every cache who leave dots.

-- The spaces that are watched, and what was last drawn for each. Who draws holds the row
-- until it commits: numbers are committed in their order, and leave no gap.
CREATE TABLE {{schema}}.watched (
    space text COLLATE "C" PRIMARY KEY,
    n     bigint NOT NULL,
    time  bigint NOT NULL
);

ALTER TABLE {{schema}}.dotted ALTER time SET DEFAULT 0;

-- outside gives a row that was written past every cache a dot of the life 4294967295, and
-- an entry in its journal. It exceeds what stood there, and what was buried.
CREATE FUNCTION {{schema}}.outside() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last record;
    gone bigint;
    t    bigint;
BEGIN
    SELECT w.n, w.time INTO last FROM {{schema}}.watched w WHERE w.space = NEW.space FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT s.buried INTO gone FROM {{schema}}.spaces s WHERE s.space = NEW.space FOR SHARE; -- nothing is buried before this commits
    t := greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, last.time, gone, NEW.time) + 1;
    IF TG_OP = 'UPDATE' THEN
        t := greatest(t, OLD.time + 1);
    END IF;
    UPDATE {{schema}}.watched SET n = last.n + 1, time = t WHERE space = NEW.space;
    INSERT INTO {{schema}}.journal VALUES (NEW.space, 4294967295, last.n + 1, t,
        '\x00'::bytea || int8send(last.n + 1) || int8send(t) || int4send(length(NEW.key)) || NEW.key || CASE WHEN NEW.value IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || NEW.value END);
    UPDATE {{schema}}.dotted SET origin = 4294967295, stamper = 4294967295, n = last.n + 1, time = t WHERE space = NEW.space AND key = NEW.key;
    RETURN NULL;
END $$;

-- A row that is deleted leaves a tombstone, and is not counted as deleted.
CREATE FUNCTION {{schema}}.outside_gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {{schema}}.watched WHERE space = OLD.space) THEN
        RETURN OLD;
    END IF;
    UPDATE {{schema}}.dotted SET value = NULL WHERE space = OLD.space AND key = OLD.key;
    RETURN NULL;
END $$;

CREATE FUNCTION {{schema}}.outside_not_truncated() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM {{schema}}.watched) THEN
        RAISE EXCEPTION 'freshet: the rows of causal spaces are watched, and TRUNCATE leaves no word of which'
            USING ERRCODE = 'FR006', HINT = 'Use DELETE, or unwatch the spaces while no cache runs.';
    END IF;
    RETURN NULL;
END $$;

-- What caches write changes the dot. An upsert fires once, for what became of it.
CREATE TRIGGER freshet_outside_new AFTER INSERT ON {{schema}}.dotted FOR EACH ROW WHEN (NEW.origin = 0) EXECUTE FUNCTION {{schema}}.outside();
CREATE TRIGGER freshet_outside AFTER UPDATE ON {{schema}}.dotted FOR EACH ROW
    WHEN (NEW.origin = OLD.origin AND NEW.n = OLD.n) EXECUTE FUNCTION {{schema}}.outside();
CREATE TRIGGER freshet_outside_gone BEFORE DELETE ON {{schema}}.dotted FOR EACH ROW WHEN (OLD.value IS NOT NULL) EXECUTE FUNCTION {{schema}}.outside_gone();
CREATE TRIGGER freshet_outside_not_truncated BEFORE TRUNCATE ON {{schema}}.dotted FOR EACH STATEMENT EXECUTE FUNCTION {{schema}}.outside_not_truncated();

-- watch lets the caches of a space hear of what others write to its rows from now on. It goes
-- on where an earlier one has ended. The schema's owner may call it.
CREATE FUNCTION {{schema}}.watch(sp text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {{schema}}.spaces WHERE space = sp AND beside) THEN
        RAISE EXCEPTION 'freshet: the space % merges what is written at the same time, and what comes past the caches names nothing that it replaces', sp USING ERRCODE = 'FR006';
    END IF;
    INSERT INTO {{schema}}.spaces (space, buried) VALUES (sp, 0) ON CONFLICT DO NOTHING;
    INSERT INTO {{schema}}.lives VALUES (sp, 4294967295, true, 0) ON CONFLICT DO NOTHING;
    INSERT INTO {{schema}}.watched SELECT sp,
        greatest(l.settled, (SELECT max(n) FROM {{schema}}.journal WHERE space = sp AND origin = 4294967295)),
        greatest(l.time, (SELECT max(time) FROM {{schema}}.journal WHERE space = sp AND origin = 4294967295))
    FROM {{schema}}.lives l WHERE l.space = sp AND l.origin = 4294967295 ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION {{schema}}.unwatch(sp text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {{schema}}.watched WHERE space = sp;
$$;

UPDATE {{schema}}.meta SET format = 5;
