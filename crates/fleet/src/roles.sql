-- Who may do what. Each role may do what those before it may.
DO $$
DECLARE r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['squall_reader', 'squall_worker', 'squall_driver', 'squall_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        END IF;
    END LOOP;
END $$;
GRANT squall_reader TO squall_worker;
GRANT squall_worker TO squall_driver;
GRANT squall_driver TO squall_admin;
GRANT USAGE ON SCHEMA squall TO squall_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA squall TO squall_reader;
GRANT EXECUTE ON FUNCTION squall.class_of, squall.join_fleet, squall.claim, squall.renew,
    squall.finish, squall.ship, squall.describe, squall.join_builders, squall.order_builds,
    squall.take_build, squall.begin_object, squall.end_object, squall.object_of
    TO squall_worker;
GRANT EXECUTE ON FUNCTION squall.submit, squall.cancel, squall.retry TO squall_driver;
GRANT EXECUTE ON FUNCTION squall.drain TO squall_admin;
