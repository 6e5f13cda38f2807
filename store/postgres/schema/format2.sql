-- Format 2: transactions over the user's own tables, and strict mode.

-- touch marks keys as written by id, under their guards, in a transaction that has
-- changed what belongs to them; it comes last, so that guards are held for as short as
-- can be. What a key's value is only the user's queries know: its row is an absence with
-- a version, which is forgotten in time like any other. It answers as commit does.
CREATE FUNCTION {{schema}}.touch(keys bytea[], tokens uuid[], id uuid, attempt text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    n constant integer[] := ARRAY[cardinality(keys)];
BEGIN
    IF current_setting('freshet.attempt', true) IS DISTINCT FROM attempt THEN
        RAISE EXCEPTION 'freshet: the function ended its transaction by itself' USING ERRCODE = 'FR007';
    END IF;
    RETURN (SELECT status FROM {{schema}}.commit(keys, array_fill(NULL::bytea, n), tokens, array_fill(0::bigint, n),
        array_fill(false, n), array_fill(0::bigint, n), id));
END $$;

-- key_of is the key that a row belongs to: the template with the row's columns in
-- place of their names in braces.
CREATE FUNCTION {{schema}}.key_of(template text, r jsonb) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    made text := '';
    m    text[];
BEGIN
    LOOP
        m := regexp_match(template, '^([^{]*)\{([^}]*)\}(.*)$', 's');
        IF m IS NULL THEN
            RETURN convert_to(made || template, 'UTF8');
        END IF;
        IF NOT r ? m[2] THEN
            RAISE EXCEPTION 'freshet: the row has no column %', quote_ident(m[2]) USING ERRCODE = 'FR005';
        END IF;
        made := made || m[1] || coalesce(r ->> m[2], '');
        template := m[3];
    END LOOP;
END $$;

-- guarded refuses, at the end of a transaction, rows whose key it has not touched: the
-- mark is the key's row, which only touch and commit write, by this very transaction.
CREATE FUNCTION {{schema}}.guarded() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine bytea[] := '{}';
    k    bytea;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        mine := mine || {{schema}}.key_of(TG_ARGV[0], to_jsonb(OLD));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        mine := mine || {{schema}}.key_of(TG_ARGV[0], to_jsonb(NEW));
    END IF;
    FOREACH k IN ARRAY mine LOOP
        IF NOT EXISTS (SELECT FROM {{schema}}.rows WHERE key = k AND xmin = pg_current_xact_id()::xid) THEN
            RAISE EXCEPTION 'freshet: a row of % belongs to the key %, which this transaction does not name', TG_RELID::regclass, quote_literal(convert_from(k, 'UTF8'))
                USING ERRCODE = 'FR006', HINT = 'Caches hold what the row is part of. Change it through Update of linear.View, naming the key.';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION {{schema}}.not_truncated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'freshet: % is guarded, and TRUNCATE names no keys', TG_RELID::regclass
        USING ERRCODE = 'FR006', HINT = 'Delete the rows through Update of linear.View, or unguard the table while no cache runs.';
END $$;

-- guard_table refuses from now on every change of a table's rows by a transaction that
-- does not name the key of the row, which the template makes of its columns, such as
-- 'document:{document_id}'. The table's owner may call it.
CREATE FUNCTION {{schema}}.guard_table(t regclass, template text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    SELECT name[1] INTO missing FROM regexp_matches(template, '\{([^}]*)\}', 'g') name
    WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = t AND attname = name[1] AND attnum > 0 AND NOT attisdropped) LIMIT 1;
    IF missing IS NOT NULL OR template !~ '\{[^}]+\}' THEN
        RAISE EXCEPTION 'freshet: the template % names no column of %', quote_literal(template), t USING ERRCODE = 'FR005';
    END IF;
    PERFORM {{schema}}.unguard_table(t);
    EXECUTE format('CREATE CONSTRAINT TRIGGER freshet_guarded AFTER INSERT OR UPDATE OR DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {{schema}}.guarded(%L)', t, template);
    EXECUTE format('CREATE TRIGGER freshet_not_truncated BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION {{schema}}.not_truncated()', t);
END $$;

CREATE FUNCTION {{schema}}.unguard_table(t regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS freshet_guarded ON %s', t);
    EXECUTE format('DROP TRIGGER IF EXISTS freshet_not_truncated ON %s', t);
END $$;

UPDATE {{schema}}.meta SET format = 2;
