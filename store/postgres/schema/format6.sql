-- Format 6: rows of causal spaces that are asynchronous.

-- How far the rows of a space have come, as whoever merges says it, and who may.
CREATE TABLE {{schema}}.merged (
    space  text COLLATE "C" PRIMARY KEY,
    term   bigint NOT NULL,
    number bigint NOT NULL,     -- of the last batch of the term
    time   bigint NOT NULL,     -- the largest that was merged
    mark   bytea NOT NULL
);

-- claim lets nobody merge any more in a smaller term, when who does has committed. It
-- answers the mark, or null if a larger term has claimed.
CREATE FUNCTION {{schema}}.claim(sp text, te bigint) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    known record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: claims need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    INSERT INTO {{schema}}.merged AS m VALUES (sp, te, 0, 0, '')
    ON CONFLICT (space) DO UPDATE SET term = EXCLUDED.term, number = 0 WHERE m.term < EXCLUDED.term;
    SELECT term, mark INTO known FROM {{schema}}.merged WHERE space = sp FOR UPDATE;
    IF known.term > te THEN
        RETURN NULL;
    END IF;
    RETURN known.mark;
END $$;

-- merge lets rows, which are sorted by their keys, compete with those that are there: 0 if
-- that is done, or was before; 1 if the term is not the one that has claimed. Who merges
-- holds the row of merged, so it is one at a time.
CREATE FUNCTION {{schema}}.merge(
    sp text, te bigint, num bigint, t bigint, mk bytea,
    keys bytea[], vals bytea[], times bigint[], stampers bigint[], origins bigint[], ns bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'freshet: claims need READ COMMITTED' USING ERRCODE = 'FR004';
    END IF;
    UPDATE {{schema}}.merged SET number = num, time = greatest(time, t), mark = mk WHERE space = sp AND term = te AND number < num;
    IF NOT FOUND THEN
        PERFORM FROM {{schema}}.merged WHERE space = sp AND term = te;
        RETURN CASE WHEN FOUND THEN 0 ELSE 1 END;
    END IF;
    INSERT INTO {{schema}}.dotted AS r (space, key, value, time, stamper, origin, n)
    SELECT sp, m.key, m.value, m.time, m.stamper, m.origin, m.n
    FROM unnest(keys, vals, times, stampers, origins, ns) m(key, value, time, stamper, origin, n) ORDER BY m.key
    ON CONFLICT (space, key) DO UPDATE SET
        value = EXCLUDED.value, time = EXCLUDED.time, stamper = EXCLUDED.stamper, origin = EXCLUDED.origin, n = EXCLUDED.n
        WHERE (r.time, r.stamper) < (EXCLUDED.time, EXCLUDED.stamper);
    RETURN 0;
END $$;

UPDATE {{schema}}.meta SET format = 6;
