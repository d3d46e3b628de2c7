-- A task that two jobs want is one worker's at a time: two that work on it at once know nothing of
-- each other's trials and make the same ones.
CREATE INDEX slice_worked ON squall.slice (class, task) WHERE state = 'leased';

-- Leases the slice of most expected gain among those of the user who has fewest leased and whose
-- task has no worker. A lease whose time is over counts as a death of the candidate that ran in
-- it. `culprits` are candidates of the task that were running at two deaths: the holder of the
-- lease records them as failures.
CREATE OR REPLACE FUNCTION squall.claim(w int, seconds double precision)
RETURNS TABLE (id bigint, fence bigint, task bigint, name text, workload text, count bigint,
               trials bigint, culprits text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = squall, pg_temp AS $$
DECLARE s slice; mine int; idle boolean; whose text;
BEGIN
    UPDATE worker SET seen = clock_timestamp() WHERE worker.id = w
    RETURNING worker.class, worker.draining INTO mine, idle;
    IF mine IS NULL OR idle THEN RETURN; END IF;
    -- Claims of a class are made one after the other: two that see the same slices free would not
    -- see each other's lease.
    PERFORM pg_advisory_xact_lock(x'5351'::int, mine);
    -- What a dead worker left comes first: it holds up its job.
    SELECT o.* INTO s FROM slice o
    WHERE o.class = mine AND o.state = 'leased' AND o.lease_until < clock_timestamp()
      AND NOT (SELECT j.cancelled FROM job j WHERE j.id = o.job)
      AND NOT EXISTS (SELECT FROM slice l WHERE l.class = mine AND l.task = o.task
                      AND l.state = 'leased' AND l.lease_until >= clock_timestamp())
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
              AND NOT EXISTS (SELECT FROM slice l WHERE l.class = mine AND l.task = o.task
                              AND l.state = 'leased' AND l.lease_until >= clock_timestamp())
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

UPDATE squall.version SET number = 3;
