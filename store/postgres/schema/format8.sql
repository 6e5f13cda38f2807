-- Format 8: what causal spaces keep has names that say what it is.

ALTER TABLE {{schema}}.lives RENAME TO incarnations;
ALTER TABLE {{schema}}.incarnations RENAME COLUMN settled TO stable;
ALTER TABLE {{schema}}.incarnations RENAME COLUMN origin TO incarnation;
ALTER TABLE {{schema}}.journal RENAME COLUMN origin TO incarnation;
ALTER TABLE {{schema}}.dotted RENAME COLUMN origin TO incarnation;
ALTER TABLE {{schema}}.beside RENAME COLUMN origin TO incarnation;
ALTER TABLE {{schema}}.spaces RENAME TO causal_spaces;
ALTER TABLE {{schema}}.causal_spaces RENAME COLUMN buried TO collected;
ALTER TABLE {{schema}}.causal_spaces RENAME COLUMN beside TO merges;
ALTER TABLE {{schema}}.journal RENAME TO causal_journal;
ALTER TABLE {{schema}}.dotted RENAME TO causal_rows;
ALTER TABLE {{schema}}.beside RENAME TO causal_siblings;
ALTER TABLE {{schema}}.watched RENAME TO causal_watched;
ALTER TABLE {{schema}}.merged RENAME TO causal_progress;
ALTER INDEX {{schema}}.lives_pkey RENAME TO incarnations_pkey;
ALTER INDEX {{schema}}.spaces_pkey RENAME TO causal_spaces_pkey;
ALTER INDEX {{schema}}.journal_pkey RENAME TO causal_journal_pkey;
ALTER INDEX {{schema}}.dotted_pkey RENAME TO causal_rows_pkey;
ALTER INDEX {{schema}}.beside_pkey RENAME TO causal_siblings_pkey;
ALTER INDEX {{schema}}.watched_pkey RENAME TO causal_watched_pkey;
ALTER INDEX {{schema}}.merged_pkey RENAME TO causal_progress_pkey;
ALTER INDEX {{schema}}.dotted_gone RENAME TO causal_rows_tombstones;
ALTER INDEX {{schema}}.beside_gone RENAME TO causal_siblings_tombstones;
ALTER TRIGGER freshet_outside_new ON {{schema}}.causal_rows RENAME TO freshet_external_insert;
ALTER TRIGGER freshet_outside ON {{schema}}.causal_rows RENAME TO freshet_external_update;
ALTER TRIGGER freshet_outside_gone ON {{schema}}.causal_rows RENAME TO freshet_external_delete;
ALTER TRIGGER freshet_outside_not_truncated ON {{schema}}.causal_rows RENAME TO freshet_external_truncate;
ALTER FUNCTION {{schema}}.enter RENAME TO causal_enter;
ALTER FUNCTION {{schema}}.persist_beside RENAME TO causal_persist_siblings;
ALTER FUNCTION {{schema}}.persist RENAME TO causal_persist;
ALTER FUNCTION {{schema}}.fence RENAME TO causal_fence;
ALTER FUNCTION {{schema}}.let_go RENAME TO causal_truncate;
ALTER FUNCTION {{schema}}.claim RENAME TO causal_claim;
ALTER FUNCTION {{schema}}.merge RENAME TO causal_apply;
ALTER FUNCTION {{schema}}.outside_gone RENAME TO external_delete;
ALTER FUNCTION {{schema}}.outside_not_truncated RENAME TO external_truncate;
ALTER FUNCTION {{schema}}.outside RENAME TO external_write;
ALTER FUNCTION {{schema}}.watch RENAME TO watch_space;
ALTER FUNCTION {{schema}}.unwatch RENAME TO unwatch_space;

COMMENT ON TABLE {{schema}}.causal_rows IS 'The current version of each key of a causal space. Who writes here past freshet sets space, key and value only.';
COMMENT ON TABLE {{schema}}.causal_siblings IS 'Rows of spaces that merge: the versions of a key that were written without knowledge of each other.';
COMMENT ON TABLE {{schema}}.causal_journal IS 'Writes of causal spaces that some server may not have received yet.';
COMMENT ON TABLE {{schema}}.incarnations IS 'The servers of causal spaces, one row for each start of a process: fenced ones write no more, and writes up to stable are known to every server.';
COMMENT ON TABLE {{schema}}.causal_spaces IS 'The causal spaces: whether they merge, and up to which time tombstones were collected.';
COMMENT ON TABLE {{schema}}.causal_watched IS 'The causal spaces whose external writes are journaled.';
COMMENT ON TABLE {{schema}}.causal_progress IS 'How far the rows of an asynchronous space have come, and which server may write them.';

-- causal_enter puts the entry of a write into the journal: 0 if the entry is new and its rows
-- are to follow; 1 if the incarnation is fenced or never began; 2 if the write was there
-- before. The caller holds the incarnation's lock, shared, up to its commit.
CREATE OR REPLACE FUNCTION {{schema}}.causal_enter(sp text, lock bigint, o bigint, num bigint, t bigint, entry bytea) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    known record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: fences need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(lock);
    SELECT fenced, stable INTO known FROM {{schema}}.incarnations WHERE space = sp AND incarnation = o;
    IF NOT FOUND OR known.fenced THEN
        RETURN 1;
    END IF;
    IF num <= known.stable THEN
        RETURN 2;
    END IF;
    INSERT INTO {{schema}}.causal_journal VALUES (sp, o, num, t, entry) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN -- another try of the same write
        RETURN 2;
    END IF;
    RETURN 0;
END $$;

-- causal_persist commits a write, whose keys are sorted, with its journal entry: 0 if that is
-- done, or was before; 1 if the incarnation is fenced or never began.
CREATE OR REPLACE FUNCTION {{schema}}.causal_persist(
    sp text, lock bigint, o bigint, num bigint, t bigint, st bigint, entry bytea, keys bytea[], vals bytea[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    done integer := {{schema}}.causal_enter(sp, lock, o, num, t, entry);
BEGIN
    IF done > 0 THEN
        RETURN done % 2;
    END IF;
    INSERT INTO {{schema}}.causal_rows AS r (space, key, value, time, stamper, incarnation, n)
    SELECT sp, m.key, m.value, t, st, o, num FROM unnest(keys, vals) m(key, value) ORDER BY m.key
    ON CONFLICT (space, key) DO UPDATE SET
        value = EXCLUDED.value, time = EXCLUDED.time, stamper = EXCLUDED.stamper, incarnation = EXCLUDED.incarnation, n = EXCLUDED.n
        WHERE (r.time, r.stamper) < (EXCLUDED.time, EXCLUDED.stamper);
    RETURN 0;
END $$;

-- causal_persist_siblings is causal_persist for a space that merges. The versions that the
-- write supersedes are named by key, incarnation and number.
CREATE OR REPLACE FUNCTION {{schema}}.causal_persist_siblings(
    sp text, lock bigint, o bigint, num bigint, t bigint, st bigint, entry bytea, keys bytea[], vals bytea[],
    over_keys bytea[], over_origins bigint[], over_ns bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    done integer := {{schema}}.causal_enter(sp, lock, o, num, t, entry);
BEGIN
    IF done > 0 THEN
        RETURN done % 2;
    END IF;
    -- In order, so that no two wait for each other.
    PERFORM 1 FROM {{schema}}.causal_siblings b WHERE b.space = sp AND b.key = ANY(keys)
        AND (b.incarnation = 0 AND (b.time, b.stamper) < (t, st) OR (b.key, b.incarnation, b.n) IN (SELECT * FROM unnest(over_keys, over_origins, over_ns)))
        ORDER BY b.key, b.incarnation, b.n FOR UPDATE;
    DELETE FROM {{schema}}.causal_siblings b WHERE b.space = sp AND b.key = ANY(keys)
        AND (b.incarnation = 0 AND (b.time, b.stamper) < (t, st) OR (b.key, b.incarnation, b.n) IN (SELECT * FROM unnest(over_keys, over_origins, over_ns)));
    INSERT INTO {{schema}}.causal_siblings (space, key, incarnation, n, value, time, stamper)
    SELECT sp, m.key, o, num, m.value, t, st FROM unnest(keys, vals) m(key, value);
    RETURN 0;
END $$;

-- causal_fence ends an incarnation, after every write of it has committed or never will.
CREATE OR REPLACE FUNCTION {{schema}}.causal_fence(sp text, lock bigint, o bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO {{schema}}.incarnations VALUES (sp, o, true, 0)
    ON CONFLICT (space, incarnation) DO UPDATE SET fenced = true;
END $$;

-- causal_truncate removes the journal entries of an incarnation up to a number, and remembers
-- the number. It answers false if the incarnation never began, or is fenced and should not be,
-- or the reverse.
CREATE OR REPLACE FUNCTION {{schema}}.causal_truncate(sp text, lock bigint, o bigint, upto bigint, over boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    UPDATE {{schema}}.incarnations l SET stable = greatest(stable, upto), time = greatest(time,
        (SELECT max(j.time) FROM {{schema}}.causal_journal j WHERE j.space = sp AND j.incarnation = o AND j.n <= upto)) WHERE space = sp AND incarnation = o AND fenced = over;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {{schema}}.causal_journal WHERE space = sp AND incarnation = o AND n <= upto;
    RETURN true;
END $$;

-- causal_claim ends the right of smaller terms to write the rows of an asynchronous space,
-- after what they have under way has committed. It answers the mark, or null if a larger term
-- has claimed the space.
CREATE OR REPLACE FUNCTION {{schema}}.causal_claim(sp text, te bigint) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    known record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: claims need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    INSERT INTO {{schema}}.causal_progress AS m VALUES (sp, te, 0, 0, '')
    ON CONFLICT (space) DO UPDATE SET term = EXCLUDED.term, number = 0 WHERE m.term < EXCLUDED.term;
    SELECT term, mark INTO known FROM {{schema}}.causal_progress WHERE space = sp FOR UPDATE;
    IF known.term > te THEN
        RETURN NULL;
    END IF;
    RETURN known.mark;
END $$;

-- causal_apply lets rows, which are sorted by key, compete with the present ones: 0 if that is
-- done, or was before; 1 if another term has claimed the space. The caller holds the row of
-- causal_progress, so batches are applied one at a time.
CREATE OR REPLACE FUNCTION {{schema}}.causal_apply(
    sp text, te bigint, num bigint, t bigint, mk bytea,
    keys bytea[], vals bytea[], times bigint[], stampers bigint[], origins bigint[], ns bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: claims need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    UPDATE {{schema}}.causal_progress SET number = num, time = greatest(time, t), mark = mk WHERE space = sp AND term = te AND number < num;
    IF NOT FOUND THEN
        PERFORM FROM {{schema}}.causal_progress WHERE space = sp AND term = te;
        RETURN CASE WHEN FOUND THEN 0 ELSE 1 END;
    END IF;
    INSERT INTO {{schema}}.causal_rows AS r (space, key, value, time, stamper, incarnation, n)
    SELECT sp, m.key, m.value, m.time, m.stamper, m.incarnation, m.n
    FROM unnest(keys, vals, times, stampers, origins, ns) m(key, value, time, stamper, incarnation, n) ORDER BY m.key
    ON CONFLICT (space, key) DO UPDATE SET
        value = EXCLUDED.value, time = EXCLUDED.time, stamper = EXCLUDED.stamper, incarnation = EXCLUDED.incarnation, n = EXCLUDED.n
        WHERE (r.time, r.stamper) < (EXCLUDED.time, EXCLUDED.stamper);
    RETURN 0;
END $$;

-- external_write gives a row that was written past freshet a version of the incarnation
-- 4294967295, and an entry in the journal. The version exceeds the former one and every
-- tombstone that was collected.
CREATE OR REPLACE FUNCTION {{schema}}.external_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last record;
    gone bigint;
    t    bigint;
BEGIN
    SELECT w.n, w.time INTO last FROM {{schema}}.causal_watched w WHERE w.space = NEW.space FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT s.collected INTO gone FROM {{schema}}.causal_spaces s WHERE s.space = NEW.space FOR SHARE; -- nothing is collected before this commits
    t := greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, last.time, gone, NEW.time) + 1;
    IF TG_OP = 'UPDATE' THEN
        t := greatest(t, OLD.time + 1);
    END IF;
    UPDATE {{schema}}.causal_watched SET n = last.n + 1, time = t WHERE space = NEW.space;
    INSERT INTO {{schema}}.causal_journal VALUES (NEW.space, 4294967295, last.n + 1, t,
        '\x00'::bytea || int8send(last.n + 1) || int8send(t) || int4send(length(NEW.key)) || NEW.key || CASE WHEN NEW.value IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || NEW.value END);
    UPDATE {{schema}}.causal_rows SET incarnation = 4294967295, stamper = 4294967295, n = last.n + 1, time = t WHERE space = NEW.space AND key = NEW.key;
    RETURN NULL;
END $$;

-- external_delete leaves a tombstone in place of a row that is deleted past freshet.
CREATE OR REPLACE FUNCTION {{schema}}.external_delete() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {{schema}}.causal_watched WHERE space = OLD.space) THEN
        RETURN OLD;
    END IF;
    UPDATE {{schema}}.causal_rows SET value = NULL WHERE space = OLD.space AND key = OLD.key;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {{schema}}.external_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM {{schema}}.causal_watched) THEN
        RAISE EXCEPTION 'freshet: the rows of causal spaces are watched, and TRUNCATE leaves no word of which'
            USING ERRCODE = 'FR006', HINT = 'Use DELETE, or unwatch the spaces while no cache runs.';
    END IF;
    RETURN NULL;
END $$;

-- watch_space has the servers of a space hear of external writes to its rows from now on. It
-- goes on where an earlier one has ended. The schema's owner may call it.
CREATE OR REPLACE FUNCTION {{schema}}.watch_space(sp text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {{schema}}.causal_spaces WHERE space = sp AND merges) THEN
        RAISE EXCEPTION 'freshet: the space % merges what is written at the same time, and what comes past the caches names nothing that it replaces', sp USING ERRCODE = 'FR006';
    END IF;
    INSERT INTO {{schema}}.causal_spaces (space, collected) VALUES (sp, 0) ON CONFLICT DO NOTHING;
    INSERT INTO {{schema}}.incarnations VALUES (sp, 4294967295, true, 0) ON CONFLICT DO NOTHING;
    INSERT INTO {{schema}}.causal_watched SELECT sp,
        greatest(l.stable, (SELECT max(n) FROM {{schema}}.causal_journal WHERE space = sp AND incarnation = 4294967295)),
        greatest(l.time, (SELECT max(time) FROM {{schema}}.causal_journal WHERE space = sp AND incarnation = 4294967295))
    FROM {{schema}}.incarnations l WHERE l.space = sp AND l.incarnation = 4294967295 ON CONFLICT DO NOTHING;
END $$;

CREATE OR REPLACE FUNCTION {{schema}}.unwatch_space(sp text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {{schema}}.causal_watched WHERE space = sp;
$$;

UPDATE {{schema}}.meta SET format = 8;
