-- Format 7: the lives of causal servers have names.

-- The name of a life is random. It is null where the life began before this format, or never did: nobody can begin it then.
ALTER TABLE {{schema}}.lives ADD COLUMN name bytea;

UPDATE {{schema}}.meta SET format = 7;
