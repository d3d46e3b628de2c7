-- Version 1 of a fleet's schema. What must be right is in functions: claim, renew, finish and ship,
-- which run with their owner's rights and are granted to roles, so that a worker can do nothing
-- else. Times are the server's; workers' clocks are never compared with it.

CREATE SCHEMA squall;

CREATE TABLE squall.version (number int NOT NULL);

-- What is tuned: a text that stands once, not in each record.
CREATE TABLE squall.task (
    id       bigint PRIMARY KEY,
    name     text NOT NULL,
    workload text NOT NULL
);

-- Where times compare: a device's name and its toolchain, and which of the machines of that name,
-- told apart by their measured peak.
CREATE TABLE squall.class (
    id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    device    text NOT NULL,
    toolchain text NOT NULL,
    variant   int NOT NULL,
    peak      double precision,
    UNIQUE (device, toolchain, variant)
);

-- Names of sketches, once.
CREATE TABLE squall.tunable (
    id   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- A process: its name holds host, boot, process and start, so that none returns under an old name.
CREATE TABLE squall.worker (
    id      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    owner   text NOT NULL DEFAULT session_user,
    class   int NOT NULL REFERENCES squall.class,
    version text NOT NULL,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen    timestamptz NOT NULL DEFAULT clock_timestamp(),
    draining boolean NOT NULL DEFAULT false
);

-- Facts. They are named by what was tried, so that sending one twice changes nothing. `kind` is 0
-- trial, 1 untuned, 2 rematch, 3 network; `outcome` 0 measured, 1 infeasible, 2 to 5 failed at build, launch,
-- in time, with a wrong answer.
CREATE TABLE squall.record (
    task          bigint NOT NULL,
    recorded      double precision NOT NULL,
    arrived       timestamptz NOT NULL DEFAULT clock_timestamp(),
    seed          bigint NOT NULL,
    calls         bigint,
    error         double precision,
    pace          double precision,
    build         double precision NOT NULL,
    measure       double precision NOT NULL,
    search        double precision NOT NULL,
    class         int NOT NULL,
    worker        int NOT NULL,
    tunable       int NOT NULL,
    kind          smallint NOT NULL,
    outcome       smallint NOT NULL,
    identity      bytea NOT NULL,
    configuration text NOT NULL,
    samples       bytea,
    detail        text,
    PRIMARY KEY (task, identity)
) PARTITION BY HASH (task);
DO $$ BEGIN
    FOR i IN 0..15 LOOP
        EXECUTE format('CREATE TABLE squall.record_%s PARTITION OF squall.record '
            'FOR VALUES WITH (MODULUS 16, REMAINDER %s)', i, i);
    END LOOP;
END $$;
CREATE INDEX record_arrived ON squall.record (task, class, arrived);

-- What a user asked for.
CREATE TABLE squall.job (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    input     text NOT NULL,
    owner     text NOT NULL DEFAULT session_user,
    submitted timestamptz NOT NULL DEFAULT clock_timestamp(),
    cancelled boolean NOT NULL DEFAULT false
);

-- A task of a job, and what is left of it to do; a lease is for `size` trials of it. `fence` grows
-- with each lease, and what a worker says counts while it names the newest one.
CREATE TABLE squall.slice (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job         bigint NOT NULL REFERENCES squall.job,
    owner       text NOT NULL DEFAULT session_user,
    task        bigint NOT NULL REFERENCES squall.task,
    class       int NOT NULL REFERENCES squall.class,
    count       bigint NOT NULL,
    trials      bigint NOT NULL,
    trials_left bigint NOT NULL,
    size        bigint NOT NULL,
    gain        double precision NOT NULL,
    state       text NOT NULL DEFAULT 'ready'
                CHECK (state IN ('ready', 'leased', 'done', 'failed', 'cancelled')),
    reason      text,
    fence       bigint NOT NULL DEFAULT 0,
    worker      int REFERENCES squall.worker,
    -- The candidate that runs, as `TUNABLE: CONFIGURATION`.
    running     text,
    leased      timestamptz,
    lease_until timestamptz,
    leases      int NOT NULL DEFAULT 0,
    deaths      int NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE INDEX slice_ready ON squall.slice (class, owner, gain DESC, id) WHERE state = 'ready';
CREATE INDEX slice_leased ON squall.slice (class, owner) WHERE state = 'leased';
CREATE INDEX slice_of_job ON squall.slice (job);

-- Leases that ended because their worker was not heard of, and what it ran then.
CREATE TABLE squall.death (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task    bigint NOT NULL,
    class   int NOT NULL,
    running text,
    worker  int,
    moment  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX death_of_task ON squall.death (task, class);

-- The class of a device: the one of this name whose peak is within a tenth, or a new one.
CREATE FUNCTION squall.class_of(d text, t text, p double precision) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE found int;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(d || E'\n' || t, 0));
    SELECT id INTO found FROM class
    WHERE device = d AND toolchain = t
      AND (p IS NULL OR peak IS NULL OR abs(ln(peak / p)) < 0.1)
    ORDER BY variant LIMIT 1;
    IF found IS NULL THEN
        INSERT INTO class (device, toolchain, variant, peak)
        SELECT d, t, 1 + count(*), p FROM class WHERE device = d AND toolchain = t
        RETURNING id INTO found;
    ELSIF p IS NOT NULL THEN
        UPDATE class SET peak = p WHERE id = found AND peak IS NULL;
    END IF;
    RETURN found;
END $$;

-- A worker introduces itself; its number.
CREATE FUNCTION squall.join_fleet(n text, c int, v text) RETURNS int
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    INSERT INTO worker (name, class, version) VALUES (n, c, v)
    ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp() RETURNING id
$$;

-- Leases the slice of most expected gain among those of the user who has fewest leased. A lease
-- whose time is over counts as a death of the candidate that ran in it. `culprits` are candidates
-- of the task that were running at two deaths: the holder of the lease records them as failures.
CREATE FUNCTION squall.claim(w int, seconds double precision)
RETURNS TABLE (id bigint, fence bigint, task bigint, name text, workload text, count bigint,
               trials bigint, culprits text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE s slice; mine int; idle boolean; whose text;
BEGIN
    UPDATE worker SET seen = clock_timestamp() WHERE worker.id = w
    RETURNING worker.class, worker.draining INTO mine, idle;
    IF mine IS NULL OR idle THEN RETURN; END IF;
    -- What a dead worker left comes first: it holds up its job.
    SELECT o.* INTO s FROM slice o
    WHERE o.class = mine AND o.state = 'leased' AND o.lease_until < clock_timestamp()
      AND NOT (SELECT j.cancelled FROM job j WHERE j.id = o.job)
    LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF s.id IS NULL THEN
        FOR whose IN
            WITH RECURSIVE owners AS (
                (SELECT o.owner FROM slice o WHERE o.class = mine AND o.state = 'ready'
                 ORDER BY o.owner LIMIT 1)
                UNION ALL
                SELECT (SELECT o.owner FROM slice o WHERE o.class = mine AND o.state = 'ready'
                        AND o.owner > owners.owner ORDER BY o.owner LIMIT 1)
                FROM owners WHERE owners.owner IS NOT NULL)
            SELECT owners.owner FROM owners WHERE owners.owner IS NOT NULL
            ORDER BY (SELECT count(*) FROM slice l
                      WHERE l.class = mine AND l.state = 'leased' AND l.owner = owners.owner)
        LOOP
            SELECT o.* INTO s FROM slice o
            WHERE o.class = mine AND o.owner = whose AND o.state = 'ready'
            ORDER BY o.gain DESC, o.id LIMIT 1 FOR UPDATE SKIP LOCKED;
            EXIT WHEN s.id IS NOT NULL;
        END LOOP;
    END IF;
    IF s.id IS NULL THEN RETURN; END IF;
    IF s.state = 'leased' THEN
        INSERT INTO death (task, class, running, worker)
        VALUES (s.task, s.class, s.running, s.worker);
    END IF;
    UPDATE slice o SET state = 'leased', fence = o.fence + 1, worker = w, running = NULL,
        leases = o.leases + 1, deaths = o.deaths + (o.state = 'leased')::int,
        leased = clock_timestamp(),
        lease_until = clock_timestamp() + make_interval(secs => seconds)
    WHERE o.id = s.id;
    RETURN QUERY SELECT s.id, s.fence + 1, s.task, t.name, t.workload, s.count,
        least(s.size, s.trials_left),
        coalesce((SELECT array_agg(d.running) FROM (
            SELECT death.running FROM death
            WHERE death.task = s.task AND death.class = s.class AND death.running IS NOT NULL
            GROUP BY death.running HAVING count(*) >= 2) d), '{}')
    FROM task t WHERE t.id = s.task;
END $$;

-- Renews a lease and says which candidate runs. False where the lease is another's by now, or the
-- job was cancelled: the worker stops.
CREATE FUNCTION squall.renew(s bigint, f bigint, now_running text, seconds double precision)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE wanted boolean;
BEGIN
    UPDATE slice o SET running = coalesce(now_running, o.running),
        lease_until = clock_timestamp() + make_interval(secs => seconds)
    FROM job j
    WHERE o.id = s AND o.fence = f AND o.state = 'leased' AND j.id = o.job
    RETURNING NOT j.cancelled INTO wanted;
    UPDATE worker SET seen = clock_timestamp()
    FROM slice o WHERE o.id = s AND o.fence = f AND worker.id = o.worker;
    RETURN coalesce(wanted, false);
END $$;

-- Ends a lease after so many trials; false where it is another's by now. `over` says that the task
-- has nothing left to try, `why` that it cannot be tuned here.
CREATE FUNCTION squall.finish(s bigint, f bigint, made bigint, next_gain double precision,
                              over boolean, why text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE remaining bigint;
BEGIN
    UPDATE slice o SET
        trials_left = CASE WHEN over THEN 0 ELSE greatest(o.trials_left - made, 0) END,
        gain = next_gain, reason = why, worker = NULL, running = NULL, lease_until = NULL,
        state = CASE WHEN (SELECT j.cancelled FROM job j WHERE j.id = o.job) THEN 'cancelled'
                     WHEN why IS NOT NULL THEN 'failed'
                     WHEN over OR o.trials_left <= made THEN 'done' ELSE 'ready' END
    WHERE o.id = s AND o.fence = f AND o.state = 'leased'
    RETURNING o.trials_left INTO remaining;
    IF remaining > 0 THEN PERFORM pg_notify('squall', 'slice'); END IF;
    RETURN remaining IS NOT NULL;
END $$;

-- Keeps facts, given as columns; how many were new. Dates more than a day ahead of the server's
-- clock are refused: they would speak last for ever.
CREATE FUNCTION squall.ship(
    w int, c int, the_task bigint, the_name text, the_workload text,
    identities bytea[], kinds smallint[], outcomes smallint[], tunables text[],
    configurations text[], sample_bytes bytea[], details text[], dates double precision[],
    seeds bigint[], all_calls bigint[], errors double precision[], paces double precision[],
    builds double precision[], measures double precision[], searches double precision[])
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE added bigint;
BEGIN
    IF EXISTS (SELECT FROM unnest(dates) d
               WHERE d > extract(epoch FROM clock_timestamp()) + 86400) THEN
        RAISE EXCEPTION 'records are dated more than a day ahead of the server: set the clock'
            USING ERRCODE = 'SQ001';
    END IF;
    INSERT INTO task VALUES (the_task, the_name, the_workload) ON CONFLICT DO NOTHING;
    INSERT INTO tunable (name) SELECT DISTINCT n FROM unnest(tunables) n
    WHERE NOT EXISTS (SELECT FROM tunable u WHERE u.name = n) ON CONFLICT DO NOTHING;
    INSERT INTO record (task, identity, kind, outcome, tunable, configuration, samples, detail,
                        recorded, seed, calls, error, pace, build, measure, search, class, worker)
    SELECT the_task, r.i, r.k, r.o, u.id, r.g, r.s, r.d, r.at, r.seed, r.calls, r.e, r.p,
        r.b, r.m, r.f, c, w
    FROM unnest(identities, kinds, outcomes, tunables, configurations, sample_bytes, details,
                dates, seeds, all_calls, errors, paces, builds, measures, searches)
        AS r(i, k, o, t, g, s, d, at, seed, calls, e, p, b, m, f)
    JOIN tunable u ON u.name = r.t
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END $$;

-- Puts a job and its tasks in; its number. `gains` order the first slices.
CREATE FUNCTION squall.submit(
    the_input text, c int, slice_size bigint, ids bigint[], names text[], workloads text[],
    counts bigint[], budgets bigint[], gains double precision[])
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE j bigint;
BEGIN
    INSERT INTO task SELECT * FROM unnest(ids, names, workloads) ON CONFLICT DO NOTHING;
    INSERT INTO job (input) VALUES (the_input) RETURNING id INTO j;
    INSERT INTO slice (job, task, class, count, trials, trials_left, size, gain)
    SELECT j, r.i, c, r.n, r.b, r.b, slice_size, r.g
    FROM unnest(ids, counts, budgets, gains) AS r(i, n, b, g);
    PERFORM pg_notify('squall', 'slice');
    RETURN j;
END $$;

-- Whether a job is the caller's, or the caller owns the schema.
CREATE FUNCTION squall.may_change(j bigint) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
    SELECT owner = session_user OR pg_has_role(session_user, current_user, 'MEMBER')
    FROM job WHERE id = j
$$;

-- Ends a job; how many slices were still to do. Leases of it end when they are renewed. None where
-- there is no such job of the caller's.
CREATE FUNCTION squall.cancel(j bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE n bigint;
BEGIN
    IF may_change(j) IS NOT TRUE THEN RETURN NULL; END IF;
    UPDATE job SET cancelled = true WHERE id = j;
    UPDATE slice SET state = 'cancelled' WHERE job = j AND state = 'ready';
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Opens what failed or was cancelled again; how many slices.
CREATE FUNCTION squall.retry(j bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE n bigint;
BEGIN
    IF may_change(j) IS NOT TRUE THEN RETURN NULL; END IF;
    UPDATE job SET cancelled = false WHERE id = j;
    UPDATE slice SET state = 'ready', reason = NULL
    WHERE job = j AND state IN ('failed', 'cancelled') AND trials_left > 0;
    GET DIAGNOSTICS n = ROW_COUNT;
    PERFORM pg_notify('squall', 'slice');
    RETURN n;
END $$;

-- Lets a worker end after its slice, or work again.
CREATE FUNCTION squall.drain(the_name text, how boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE n bigint;
BEGIN
    UPDATE worker SET draining = how WHERE name LIKE the_name;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Functions can be called by those alone to whom roles.sql grants them.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA squall FROM PUBLIC;
INSERT INTO squall.version VALUES (1);
