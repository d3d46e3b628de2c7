-- Version 2: a build farm. Workers say which candidates they will want compiled; builders, machines
-- that may lack the device, compile them. Objects lie under a digest of everything that they were
-- made from, so that of several who want the same one makes it.

-- A worker that builds only serves every class whose kernels its compiler makes: it is of none.
ALTER TABLE squall.worker ALTER COLUMN class DROP NOT NULL;
ALTER TABLE squall.worker ADD COLUMN builds boolean NOT NULL DEFAULT false;

-- What a builder must know to make a class's kernels: the description of its machine, as JSON.
ALTER TABLE squall.class ADD COLUMN machine text;

-- Candidates that a worker will want compiled. A row goes when a builder takes it, or when the worker
-- names its next ones.
CREATE TABLE squall.build (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker    int NOT NULL REFERENCES squall.worker,
    class     int NOT NULL REFERENCES squall.class,
    task      bigint NOT NULL REFERENCES squall.task,
    candidate text NOT NULL
);
CREATE INDEX build_of_class ON squall.build (class, id);
CREATE INDEX build_of_worker ON squall.build (worker);

-- Objects, and those that are being made: without bytes. `owner` is who brought it, which a worker
-- looks at before it runs one. What a worker makes for itself stands here without ever having bytes,
-- so that no builder makes it too.
CREATE TABLE squall.artifact (
    key      text PRIMARY KEY,
    owner    text NOT NULL DEFAULT session_user,
    worker   int NOT NULL REFERENCES squall.worker,
    is_local boolean NOT NULL,
    begun    timestamptz NOT NULL DEFAULT clock_timestamp(),
    bytes    bytea
);
CREATE INDEX artifact_begun ON squall.artifact (begun);
CREATE INDEX artifact_of_worker ON squall.artifact (worker) WHERE is_local;

-- Says what a class's machine is. What was said first counts: its tasks' kernels are made for that.
CREATE FUNCTION squall.describe(c int, m text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    UPDATE class SET machine = m WHERE id = c AND machine IS NULL AND length(m) < 20000
$$;

-- A builder introduces itself; its number.
CREATE FUNCTION squall.join_builders(n text, v text) RETURNS int
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    INSERT INTO worker (name, version, builds) VALUES (n, v, true)
    ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp() RETURNING id
$$;

-- A worker names the candidates that it will want compiled, in the place of those before. False where
-- no builder was heard of for half a minute: then nothing is kept, and none will come.
CREATE FUNCTION squall.want_builds(w int, the_task bigint, candidates text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
BEGIN
    DELETE FROM build WHERE worker = w;
    DELETE FROM artifact WHERE worker = w AND is_local;
    IF NOT EXISTS (SELECT FROM worker b WHERE b.builds AND NOT b.draining
                   AND b.seen > clock_timestamp() - interval '30 seconds') THEN
        RETURN false;
    END IF;
    INSERT INTO build (worker, class, task, candidate)
    SELECT w, worker.class, the_task, n FROM worker, unnest(candidates) n
    WHERE worker.id = w AND worker.class IS NOT NULL;
    PERFORM pg_notify('squall_build', '');
    RETURN true;
END $$;

-- Gives a builder the next candidate of one of these classes, and renews what is known of it.
CREATE FUNCTION squall.take_build(w int, classes int[])
RETURNS TABLE (class int, task bigint, name text, workload text, candidate text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE b build; idle boolean;
BEGIN
    UPDATE worker SET seen = clock_timestamp() WHERE worker.id = w AND worker.builds
    RETURNING worker.draining INTO idle;
    IF idle IS NOT FALSE THEN RETURN; END IF;
    DELETE FROM build o WHERE o.id = (
        SELECT i.id FROM build i WHERE i.class = ANY (classes)
        ORDER BY i.id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING o.* INTO b;
    IF b.id IS NULL THEN RETURN; END IF;
    RETURN QUERY SELECT b.class, b.task, t.name, t.workload, b.candidate
    FROM task t WHERE t.id = b.task;
END $$;

-- Says that an object is being made; false where it is there, or another makes it. An object that did
-- not come within two minutes will not: its maker died.
CREATE FUNCTION squall.begin_artifact(w int, k text, own boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE mine boolean;
BEGIN
    INSERT INTO artifact (key, owner, worker, is_local) VALUES (k, session_user, w, own)
    ON CONFLICT (key) DO UPDATE SET owner = session_user, worker = w, is_local = own,
        begun = clock_timestamp()
    WHERE artifact.bytes IS NULL AND artifact.begun < clock_timestamp() - interval '2 minutes'
    RETURNING true INTO mine;
    RETURN coalesce(mine, false);
END $$;

-- Keeps an object that this worker began; without bytes it could not be made. What is older than a day
-- goes, a few at a time.
CREATE FUNCTION squall.end_artifact(w int, k text, b bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE mine boolean;
BEGIN
    IF b IS NULL THEN
        DELETE FROM artifact WHERE key = k AND worker = w AND owner = session_user
        AND bytes IS NULL RETURNING true INTO mine;
    ELSE
        UPDATE artifact SET bytes = b WHERE key = k AND worker = w AND owner = session_user
        AND bytes IS NULL AND octet_length(b) <= 16777216 RETURNING true INTO mine;
    END IF;
    DELETE FROM artifact WHERE key IN (
        SELECT o.key FROM artifact o WHERE o.begun < clock_timestamp() - interval '1 day'
        LIMIT 16 FOR UPDATE SKIP LOCKED);
    RETURN coalesce(mine, false);
END $$;

-- An object that one of these users brought, or whether one of them is making it.
CREATE FUNCTION squall.artifact_of(k text, owners text[])
RETURNS TABLE (bytes bytea, is_coming boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    SELECT a.bytes, a.bytes IS NULL AND NOT a.is_local
        AND a.begun > clock_timestamp() - interval '2 minutes'
    FROM artifact a WHERE a.key = k AND a.owner = ANY (owners || session_user::text)
$$;

REVOKE ALL ON FUNCTION squall.describe, squall.join_builders, squall.want_builds,
    squall.take_build, squall.begin_artifact, squall.end_artifact, squall.artifact_of FROM PUBLIC;
UPDATE squall.version SET number = 2;
