-- freshet's tables, format 1, in a database of MariaDB or MySQL. Times are
-- microseconds since 1970 by the server's clock. {{base}} is where versions begin.

-- key: value is null if it was deleted, or has expired. due is when the row expires;
-- of an absence, when it began; null if neither. Versions of writes are even, those of
-- absences after expiry odd.
CREATE TABLE IF NOT EXISTS freshet_rows (
    k       VARBINARY(3000) NOT NULL PRIMARY KEY,
    value   LONGBLOB,
    version BIGINT UNSIGNED NOT NULL,
    writer  BINARY(16) NOT NULL,
    written BIGINT NOT NULL,
    due     BIGINT,
    KEY freshet_due (due)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The guards cover all keys and do not overlap; an empty high is no end, the zero
-- token no guard. Who writes locks the row over its key in share mode, by its primary
-- key; SetGuard locks those it changes for itself.
CREATE TABLE IF NOT EXISTS freshet_guards (
    low   VARBINARY(3040) NOT NULL PRIMARY KEY,
    high  VARBINARY(3040) NOT NULL,
    token BINARY(16) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row, made last. cluster is who uses the tables: nobody else may. floor is the
-- version of every absence that has no row; writes hold it in share mode, so that no
-- absence is forgotten while a version is drawn for its key.
CREATE TABLE IF NOT EXISTS freshet_meta (
    one     TINYINT NOT NULL PRIMARY KEY,
    format  INT NOT NULL,
    cluster VARBINARY(255),
    base    BIGINT UNSIGNED NOT NULL,
    floor   BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT INTO freshet_guards (low, high, token)
SELECT '', '', CAST(x'00000000000000000000000000000000' AS BINARY) FROM (SELECT 1) one WHERE NOT EXISTS (SELECT 1 FROM freshet_guards);

INSERT IGNORE INTO freshet_meta (one, format, base, floor) VALUES (1, 1, {{base}}, 0)
