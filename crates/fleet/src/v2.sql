-- Version 2: classes are told apart by more than a peak, and a machine keeps its class; builders,
-- machines that may lack the device, compile what workers will measure. An object lies under a
-- digest of everything that it was made from, for each user who brought one: it is code, and who
-- runs it says whose he trusts. What is asked as a worker counts where the worker is the caller's
-- own.

-- A builder is of no class. `code` says which machine code a process makes or wants: compiler,
-- flags, machine. `machine` is the description for which a worker's kernels are generated, as JSON.
ALTER TABLE squall.worker ALTER COLUMN class DROP NOT NULL;
ALTER TABLE squall.worker ADD COLUMN builds boolean NOT NULL DEFAULT false;
ALTER TABLE squall.worker ADD COLUMN code text;
ALTER TABLE squall.worker ADD COLUMN machine text;

-- Candidates that a worker will want compiled, and whose objects it runs. A row goes when a builder
-- takes it, when the worker names its next ones, or when the worker is not heard of.
CREATE TABLE squall.build_order (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker    int NOT NULL REFERENCES squall.worker,
    code      text NOT NULL,
    trusted   text[] NOT NULL,
    task      bigint NOT NULL REFERENCES squall.task,
    candidate text NOT NULL
);
CREATE INDEX build_order_of_code ON squall.build_order (code, id);
CREATE INDEX build_order_of_worker ON squall.build_order (worker);

-- Objects, and those that are being made: without bytes. What a worker makes for itself stands here
-- without ever having bytes, so that no builder makes it too.
CREATE TABLE squall.object (
    key      text NOT NULL,
    owner    text NOT NULL DEFAULT session_user,
    worker   int NOT NULL REFERENCES squall.worker,
    is_local boolean NOT NULL,
    begun    timestamptz NOT NULL DEFAULT clock_timestamp(),
    bytes    bytea,
    PRIMARY KEY (key, owner)
);
CREATE INDEX object_begun ON squall.object (begun);
CREATE INDEX object_of_worker ON squall.object (worker) WHERE is_local;

-- The caller's own worker of this number, which is heard of by that; none where it is another's.
CREATE FUNCTION squall.own_worker(w int) RETURNS SETOF squall.worker
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    UPDATE worker SET seen = clock_timestamp() WHERE id = w AND owner = session_user RETURNING *
$$;

-- Forgets objects after a quarter of an hour, some at a time: a batch takes a minute.
CREATE FUNCTION squall.forget_objects() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    DELETE FROM object WHERE ctid IN (
        SELECT ctid FROM object WHERE begun < clock_timestamp() - interval '15 minutes'
        LIMIT 256 FOR UPDATE SKIP LOCKED)
$$;

-- A worker says which code it wants, and for which machine.
CREATE FUNCTION squall.describe(w int, the_code text, m text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    UPDATE worker SET code = the_code, machine = m
    WHERE id = w AND owner = session_user AND length(m) < 20000 AND length(the_code) < 1000
$$;

-- A builder introduces itself; its number, or none where the name is another user's.
CREATE FUNCTION squall.join_builders(n text, v text, the_code text) RETURNS int
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    INSERT INTO worker (name, version, builds, code) VALUES (n, v, true, the_code)
    ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp() WHERE worker.owner = session_user
    RETURNING id
$$;

-- A worker names the candidates that it will want compiled, in the place of those before, and the
-- users whose builders it trusts beside its own. False where no such builder of its code was heard
-- of for three minutes, longer than any build may take: then nothing is kept, and none will come.
CREATE FUNCTION squall.order_builds(w int, the_task bigint, candidates text[], others text[])
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE mine worker; users text[] := others || session_user::text;
BEGIN
    SELECT * INTO mine FROM own_worker(w);
    DELETE FROM build_order WHERE worker = mine.id OR worker IN (
        SELECT id FROM worker
        WHERE seen BETWEEN clock_timestamp() - interval '1 day'
                   AND clock_timestamp() - interval '10 minutes');
    DELETE FROM object WHERE worker = mine.id AND is_local;
    PERFORM forget_objects();
    IF coalesce(cardinality(candidates), 0) NOT BETWEEN 1 AND 4096 OR NOT EXISTS (
        SELECT FROM worker b WHERE b.builds AND NOT b.draining AND b.code = mine.code
        AND b.owner = ANY (users) AND b.seen > clock_timestamp() - interval '3 minutes') THEN
        RETURN false;
    END IF;
    INSERT INTO build_order (worker, code, trusted, task, candidate)
    SELECT mine.id, mine.code, users, the_task, n FROM unnest(candidates) n WHERE length(n) < 4000;
    PERFORM pg_notify('squall_build', '');
    RETURN true;
END $$;

-- Gives a builder the next candidate of its code whose worker trusts it.
CREATE FUNCTION squall.take_build(w int)
RETURNS TABLE (task bigint, name text, workload text, candidate text, machine text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE o build_order; mine worker;
BEGIN
    SELECT * INTO mine FROM own_worker(w);
    IF mine.builds IS NOT TRUE OR mine.draining THEN RETURN; END IF;
    DELETE FROM build_order d WHERE d.id = (
        SELECT i.id FROM build_order i
        WHERE i.code = mine.code AND session_user = ANY (i.trusted)
        ORDER BY i.id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING d.* INTO o;
    IF o.id IS NULL THEN RETURN; END IF;
    RETURN QUERY SELECT o.task, t.name, t.workload, o.candidate, r.machine
    FROM task t, worker r WHERE t.id = o.task AND r.id = o.worker;
END $$;

-- Says that an object is being made; false where the caller's user has it, or makes it. An object
-- that did not come within two minutes will not: its maker died.
CREATE FUNCTION squall.begin_object(w int, k text, own boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE begun_here boolean;
BEGIN
    IF length(k) > 64 OR NOT EXISTS (SELECT FROM own_worker(w)) THEN RETURN false; END IF;
    INSERT INTO object (key, owner, worker, is_local) VALUES (k, session_user, w, own)
    ON CONFLICT (key, owner) DO UPDATE SET worker = w, is_local = own, begun = clock_timestamp()
    WHERE object.bytes IS NULL AND object.begun < clock_timestamp() - interval '2 minutes'
    RETURNING true INTO begun_here;
    RETURN coalesce(begun_here, false);
END $$;

-- Keeps an object that this worker began; without bytes it could not be made.
CREATE FUNCTION squall.end_object(w int, k text, b bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE mine boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM own_worker(w)) THEN RETURN false; END IF;
    IF b IS NULL THEN
        DELETE FROM object WHERE key = k AND worker = w AND owner = session_user
        AND bytes IS NULL RETURNING true INTO mine;
    ELSE
        UPDATE object SET bytes = b WHERE key = k AND worker = w AND owner = session_user
        AND bytes IS NULL AND octet_length(b) <= 16777216 RETURNING true INTO mine;
    END IF;
    PERFORM forget_objects();
    RETURN coalesce(mine, false);
END $$;

-- An object that the caller's user or one of these brought, or whether one of them is making it.
CREATE FUNCTION squall.object_of(k text, others text[])
RETURNS TABLE (bytes bytea, is_coming boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    SELECT o.bytes, o.bytes IS NULL AND NOT o.is_local
        AND o.begun > clock_timestamp() - interval '2 minutes'
    FROM object o WHERE o.key = k AND o.owner = ANY (others || session_user::text)
    ORDER BY o.bytes IS NULL, o.is_local LIMIT 1
$$;

-- A class is what its name says and what was measured of the machine that founded it: facts that
-- others of it share, and rates, by name. A machine keeps its class as long as it is not started
-- anew, however busy it is when it is asked again.
ALTER TABLE squall.class ADD COLUMN facts jsonb, ADD COLUMN rates jsonb;
-- What two machines of one name tried is two facts.
ALTER TABLE squall.record DROP CONSTRAINT record_pkey;
ALTER TABLE squall.record ADD PRIMARY KEY (task, class, identity);
CREATE TABLE squall.machine (
    boot      text NOT NULL,
    device    text NOT NULL,
    toolchain text NOT NULL,
    class     int NOT NULL REFERENCES squall.class,
    PRIMARY KEY (boot, device, toolchain)
);

-- The class of a device: the one of this name, of the same facts and of like rates, or a new one.
-- Rates of computing are like within a tenth, those of reading memory within a quarter. What is not
-- known of a class is no difference, and is taken from the first machine that tells.
DROP FUNCTION squall.class_of;
CREATE FUNCTION squall.class_of(b text, d text, t text, f jsonb, r jsonb) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE found int; p double precision := (r->>'peak')::double precision;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(d || E'\n' || t, 0));
    SELECT m.class INTO found FROM machine m
    WHERE m.boot = b AND m.device = d AND m.toolchain = t;
    IF found IS NOT NULL THEN RETURN found; END IF;
    SELECT c.id INTO found FROM class c
    WHERE c.device = d AND c.toolchain = t
      AND (f IS NULL OR c.facts IS NULL OR c.facts = f)
      AND (p IS NULL OR c.peak IS NULL OR abs(ln(c.peak / p)) < 0.1)
      AND NOT EXISTS (
          SELECT FROM jsonb_each_text(r) mine JOIN jsonb_each_text(c.rates) theirs USING (key)
          WHERE abs(ln(mine.value::double precision / theirs.value::double precision))
                >= CASE WHEN key LIKE 'read %' THEN 0.25 ELSE 0.1 END)
    ORDER BY c.variant LIMIT 1;
    IF found IS NULL THEN
        INSERT INTO class (device, toolchain, variant, peak, facts, rates)
        SELECT d, t, 1 + count(*), p, f, r FROM class c WHERE c.device = d AND c.toolchain = t
        RETURNING id INTO found;
    ELSIF r IS NOT NULL THEN
        UPDATE class c SET peak = coalesce(c.peak, p), facts = coalesce(c.facts, f),
            rates = coalesce(c.rates, r) WHERE c.id = found;
    END IF;
    IF b <> '' AND r IS NOT NULL THEN
        INSERT INTO machine VALUES (b, d, t, found);
    END IF;
    RETURN found;
END $$;

REVOKE ALL ON FUNCTION squall.own_worker, squall.forget_objects, squall.describe,
    squall.join_builders, squall.order_builds, squall.take_build, squall.begin_object,
    squall.end_object, squall.object_of, squall.class_of FROM PUBLIC;
UPDATE squall.version SET number = 2;
