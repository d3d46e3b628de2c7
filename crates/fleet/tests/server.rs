//! Tests of a fleet against a real PostgreSQL server: records come back as they were sent, a slice
//! has one worker at a time, dead workers' leases expire, roles have only their rights. Each test
//! starts a server of its own; where PostgreSQL is not installed they are skipped and print so.

use squall_core::*;
use squall_fleet::*;
use squall_testing::postgres::{Server, server};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn workload(n: i64) -> Workload {
    let text =
        format!("workload relu\ndata X: f32[{n}]\nstage Y: f32[i: {n}] = max(X[i], 0)\noutput Y\n");
    Workload::parse(&text).unwrap()
}

fn measured(ns: f64) -> Outcome {
    let samples = (0..7).map(|i| Nanos(ns * (1.0 + 1e-3 * f64::from(i)))).collect();
    Outcome::Measured(Measurement {
        samples,
        calls: 100,
        error: 1.5e-7,
        gpu: None,
        pace: Some(3.0),
    })
}

fn record(n: i64, i: usize, kind: RecordKind, outcome: Outcome) -> Record {
    let w = workload(n);
    Record {
        kind,
        task: TaskId::of(&w, Objective::Time),
        name: format!("relu_{n}"),
        workload: w.to_string(),
        device: "cpu a".into(),
        toolchain: "gcc".into(),
        tunable: format!("tiles@{}", i % 3),
        configuration: format!("tile={i},order=ijk,unroll=4,vector=16,pack=b,parallel=0"),
        outcome,
        cost: CpuCost { build: 0.123456789, measure: 0.2, search: 1e-9 },
        seed: u64::MAX - i as u64,
        time: 1.7e9 + i as f64 / 3.0,
    }
}

fn trial(n: i64, i: usize) -> Record {
    record(n, i, RecordKind::Trial, measured(100.0 / 3.0 + i as f64))
}

fn fleet(server: &Server) -> Fleet {
    server.sql("postgres", "CREATE DATABASE squall");
    let url = server.url("squall", "squall");
    assert!(matches!(Fleet::connect(&url), Err(FleetError::NoFleet { .. })));
    let (_, is_new, without_roles) = Fleet::init(&url).unwrap();
    assert!(is_new && without_roles.is_none(), "{without_roles:?}");
    let (fleet, is_new, _) = Fleet::init(&url).unwrap();
    assert!(!is_new, "the second time it is there");
    fleet
}

fn device<'a>(boot: &'a str, toolchain: &'a str) -> DeviceOfMachine<'a> {
    DeviceOfMachine { boot, device: "cpu a", toolchain }
}

/// A machine of such a peak and memory.
fn machine(peak: f64, memory: f64) -> Fingerprint {
    let facts = [("cache 3".to_string(), "32 MiB".to_string())];
    let rates = [("peak".to_string(), peak), ("read memory".to_string(), memory)];
    Fingerprint { facts: facts.into(), rates: rates.into() }
}

fn worker(fleet: &mut Fleet, name: &str) -> Worker {
    let class = fleet.class(device("boot", "gcc"), &machine(1e11, 2e10)).unwrap();
    fleet.join(WorkerName(name.into()), class, "1").unwrap()
}

fn order(n: i64, trials: u64, weight: f64) -> TaskOrder {
    TaskOrder { task: Task::new(format!("relu_{n}"), workload(n)), trials, weight }
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(Record::identity);
    records
}

#[test]
fn facts_come_back_as_they_went_however_often_they_are_sent() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let w = worker(&mut fleet, "a");
    let mut all = vec![trial(4, 0), trial(4, 1), trial(5, 2)];
    for (i, stage) in
        [FailStage::Build, FailStage::Launch, FailStage::Timeout, FailStage::WrongAnswer]
            .into_iter()
            .enumerate()
    {
        let detail = format!("said \"no\"\n\u{1b}[31m {}", stage.name());
        all.push(record(4, 10 + i, RecordKind::Trial, Outcome::Failed { stage, detail }));
    }
    all.push(record(4, 20, RecordKind::Trial, Outcome::Infeasible("over 4 KiB".into())));
    all.push(record(4, 1, RecordKind::Rematch, measured(7.0)));
    all.push(record(4, 1, RecordKind::Rematch, measured(8.0)));
    all.push(record(5, 3, RecordKind::Untuned, measured(9.0)));
    assert_eq!(fleet.ship(w.id, w.class, &all).unwrap(), all.len() as u64);
    assert_eq!(fleet.ship(w.id, w.class, &all).unwrap(), 0);
    assert_eq!(sorted(fleet.all_records("*", "").unwrap()), sorted(all.clone()));
    let (of_task, mark) = fleet.pull(all[0].task, w.class, Mark::default()).unwrap();
    assert_eq!(of_task.len(), all.len() - 2);
    // Commits overtake each other: what was pulled lately is pulled again.
    let (again, _) = fleet.pull(all[0].task, w.class, mark).unwrap();
    assert_eq!(again.len(), of_task.len());
    assert_eq!(fleet.all_records("relu_5", "").unwrap().len(), 2);
    assert_eq!(fleet.all_records("relu%", "").unwrap().len(), 0, "% stands for itself");
    // A zero byte has no place in a server's text, and is no reason to lose the record.
    let odd = Outcome::Failed { stage: FailStage::Launch, detail: "a\0b".into() };
    assert_eq!(fleet.ship(w.id, w.class, &[record(4, 30, RecordKind::Trial, odd)]).unwrap(), 1);
    // A date of a clock that is a day ahead would speak last for ever.
    let mut future = trial(4, 40);
    future.time = 4e9;
    let error = fleet.ship(w.id, w.class, &[future]).unwrap_err();
    assert!(error.to_string().contains("set the clock"), "{error}");
}

#[test]
fn a_slice_is_one_workers_until_its_lease_ends() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let (a, b) = (worker(&mut fleet, "a"), worker(&mut fleet, "b"));
    let orders = [order(4, 50, 0.1), order(5, 50, 0.9)];
    fleet.submit("net", a.class, 32, &orders).unwrap();
    let first = fleet.claim(&a, HOUR).unwrap().unwrap();
    assert_eq!((first.name.as_str(), first.trials), ("relu_5", 32), "the heaviest comes first");
    let second = fleet.claim(&b, Duration::from_millis(300)).unwrap().unwrap();
    assert_eq!(second.name, "relu_4");
    assert!(fleet.claim(&a, HOUR).unwrap().is_none(), "both are leased");
    assert!(fleet.renew(&first, Some("tiles: tile=1"), HOUR).unwrap());
    // A lease ends by the server's clock; another worker goes on, the first may only tell facts.
    std::thread::sleep(Duration::from_millis(400));
    let taken = fleet.claim(&a, HOUR).unwrap().unwrap();
    assert_eq!((taken.slice, taken.fence), (second.slice, second.fence + 1));
    assert!(!fleet.renew(&second, None, HOUR).unwrap());
    let ended = Ended { trials: 32, gain: 1.0, ..Ended::default() };
    assert!(!fleet.finish(&second, &ended).unwrap());
    assert_eq!(fleet.ship(b.id, b.class, &[trial(4, 1)]).unwrap(), 1);
    assert!(fleet.finish(&taken, &ended).unwrap());
    assert!(!fleet.finish(&taken, &ended).unwrap(), "a lease ends once");
    // What is left of the task is less than a slice.
    let rest = fleet.claim(&b, HOUR).unwrap().unwrap();
    assert_eq!((rest.name.as_str(), rest.trials), ("relu_4", 18));
    let over = Ended { trials: 3, is_exhausted: true, ..Ended::default() };
    assert!(fleet.finish(&rest, &over).unwrap());
    let job = &fleet.jobs(1).unwrap()[0];
    assert_eq!((job.state.as_str(), job.deaths, job.left), ("running", 1, 50));
    let failed = Ended { failure: Some("no reference".into()), ..Ended::default() };
    assert!(fleet.finish(&first, &failed).unwrap());
    let job = fleet.jobs(1).unwrap().remove(0);
    assert_eq!(job.state, "failed");
    assert_eq!(job.slices[1].reason.as_deref(), Some("no reference"));
    assert_eq!(fleet.retry(job.job).unwrap(), 1);
    assert!(fleet.claim(&a, HOUR).unwrap().is_some());
}

#[test]
fn a_task_of_two_jobs_is_one_workers_at_a_time() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let (a, b) = (worker(&mut fleet, "a"), worker(&mut fleet, "b"));
    fleet.submit("x", a.class, 4, &[order(4, 8, 1.0)]).unwrap();
    fleet.submit("y", a.class, 4, &[order(4, 8, 1.0), order(5, 8, 0.1)]).unwrap();
    let first = fleet.claim(&a, HOUR).unwrap().expect("a slice");
    let second = fleet.claim(&b, HOUR).unwrap().expect("a slice of another task");
    assert_ne!(first.task, second.task);
    assert_eq!(fleet.claim(&b, HOUR).unwrap(), None, "both tasks are worked on");
    fleet.finish(&first, &Ended { trials: 4, ..Ended::default() }).unwrap();
    let third = fleet.claim(&b, HOUR).unwrap().expect("the first task again");
    assert_eq!(third.task, first.task);
    // A lease that ended holds no worker up.
    let soon = Duration::from_millis(1);
    fleet.finish(&third, &Ended { trials: 4, ..Ended::default() }).unwrap();
    let short = fleet.claim(&a, soon).unwrap().expect("the other job's");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(fleet.claim(&b, HOUR).unwrap().map(|l| l.task), Some(short.task));
}

#[test]
fn two_deaths_at_one_trial_make_that_trial_a_failure_and_no_other() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let a = worker(&mut fleet, "a");
    fleet.submit("net", a.class, 32, &[order(4, 64, 1.0)]).unwrap();
    let short = Duration::from_millis(100);
    // Hosts die at other trials, too; one candidate is there twice.
    for running in ["tiles: tile=1", "tiles: tile=7", "tiles: tile=2", "tiles: tile=7"] {
        let lease = fleet.claim(&a, short).unwrap().unwrap();
        assert!(lease.culprits.is_empty(), "{:?}", lease.culprits);
        assert!(fleet.renew(&lease, Some(running), short).unwrap());
        std::thread::sleep(Duration::from_millis(150));
    }
    let lease = fleet.claim(&a, HOUR).unwrap().unwrap();
    assert_eq!(lease.culprits, ["tiles: tile=7"]);
    assert_eq!(fleet.jobs(1).unwrap()[0].deaths, 4);
}

#[test]
fn users_share_a_class_and_a_job_can_be_ended() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    server.sql(
        "squall",
        "CREATE ROLE ann LOGIN IN ROLE squall_driver; CREATE ROLE bob LOGIN IN ROLE squall_driver; \
         CREATE ROLE eve LOGIN IN ROLE squall_reader; CREATE ROLE w LOGIN IN ROLE squall_worker",
    );
    let a = worker(&mut fleet, "a");
    let of = |user: &str| Fleet::connect(&server.url(user, "squall")).unwrap();
    let (mut ann, mut bob, mut eve, mut w) = (of("ann"), of("bob"), of("eve"), of("w"));
    let many: Vec<TaskOrder> = (4..12).map(|n| order(n, 10, 1.0 / n as f64)).collect();
    let long = ann.submit("ann's", a.class, 32, &many).unwrap();
    let short = bob.submit("bob's", a.class, 32, &[order(20, 10, 1.0)]).unwrap();
    let names: Vec<String> = (0..3).map(|_| w.claim(&a, HOUR).unwrap().unwrap().name).collect();
    assert!(names[..2].contains(&"relu_20".to_string()), "bob waits for one slice only: {names:?}");
    // Each role may do what it may.
    assert!(eve.status(5).is_ok());
    assert!(eve.ship(a.id, a.class, &[trial(4, 1)]).is_err());
    assert!(eve.submit("x", a.class, 32, &many).is_err());
    assert!(w.submit("x", a.class, 32, &many).is_err());
    assert!(ann.cancel(short.job).is_err(), "that is bob's");
    assert!(w.drain("a", true).is_err());
    assert_eq!(fleet.drain("a", true).unwrap(), 1);
    assert!(w.claim(&a, HOUR).unwrap().is_none(), "a worker that is drained gets nothing");
    fleet.drain("a", false).unwrap();
    // A job that is cancelled ends at the next renewal.
    assert!(ann.cancel(long.job).unwrap() >= 5);
    assert!(w.claim(&a, HOUR).unwrap().is_none());
    assert_eq!(ann.jobs(2).unwrap()[1].state, "cancelled");
    assert!(ann.retry(long.job).unwrap() >= 5);
    assert!(w.claim(&a, HOUR).unwrap().is_some());
}

#[test]
fn machines_of_one_name_are_told_apart_by_what_is_measured_and_keep_their_class() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let mut boots = 0;
    let mut class = |fingerprint: &Fingerprint| {
        boots += 1;
        fleet.class(device(&format!("boot {boots}"), "gcc"), fingerprint).unwrap()
    };
    let first = class(&machine(100e9, 20e9));
    assert_eq!(class(&machine(104e9, 20e9)), first);
    let slow = class(&machine(60e9, 20e9));
    assert_ne!(slow, first);
    assert_eq!(class(&machine(58e9, 20e9)), slow);
    // Memory's rate varies more than a peak before it means another machine.
    assert_eq!(class(&machine(100e9, 17e9)), first);
    let narrow = class(&machine(100e9, 10e9));
    assert!(![first, slow].contains(&narrow));
    let mut other = machine(100e9, 20e9);
    other.facts.insert("cache 3".into(), "8 MiB".into());
    let small = class(&other);
    assert!(![first, slow, narrow].contains(&small));
    // What was not measured is no difference.
    let mut least = machine(100e9, 20e9);
    least.rates.remove("read memory");
    assert_eq!(class(&least), first);
    assert_eq!(fleet.class_of_records("", "cpu a", "gcc").unwrap(), first);
    assert_ne!(fleet.class(device("boot 1", "clang"), &machine(100e9, 20e9)).unwrap(), first);
    // A machine that is busy now is the one that it was.
    assert_eq!(fleet.class(device("boot 1", "gcc"), &machine(40e9, 9e9)).unwrap(), first);
    assert_eq!(fleet.class_since_boot(device("boot 3", "gcc")).unwrap(), Some(slow));
    assert_eq!(fleet.class_since_boot(device("boot 99", "gcc")).unwrap(), None);
}

#[test]
fn what_two_machines_of_one_name_measured_is_two_facts_and_goes_back_where_it_came_from() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let mut join = |boot: &str, peak: f64| {
        let class = fleet.class(device(boot, "gcc"), &machine(peak, 20e9)).unwrap();
        fleet.join(WorkerName(boot.into()), class, "1").unwrap()
    };
    let (fast, slow) = (join("a", 100e9), join("b", 50e9));
    let tried = [trial(4, 1)];
    assert_eq!(fleet.ship(fast.id, fast.class, &tried).unwrap(), 1);
    assert_eq!(fleet.ship(slow.id, slow.class, &tried).unwrap(), 1);
    assert_eq!(fleet.pull(tried[0].task, slow.class, Mark::default()).unwrap().0, tried);
    let devices = |fleet: &mut Fleet, boot: &str| -> Vec<String> {
        fleet.all_records("*", boot).unwrap().into_iter().map(|r| r.device).collect()
    };
    let (bare, first, second) = ("cpu a", "cpu a (machine 1)", "cpu a (machine 2)");
    for (boot, mut expected) in [("a", [bare, second]), ("b", [first, bare]), ("", [bare, second])]
    {
        let mut found = devices(&mut fleet, boot);
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected, "as {boot} sees it");
        for device in found {
            let class = fleet.class_of_records(boot, &device, "gcc").unwrap();
            assert!([fast.class, slow.class].contains(&class), "{device} as {boot} sees it");
        }
    }
    assert_eq!(fleet.class_of_records("b", bare, "gcc").unwrap(), slow.class);
    assert_eq!(fleet.class_of_records("b", first, "gcc").unwrap(), fast.class);
}

#[test]
fn a_class_whose_machine_is_unknown_learns_it_from_the_first_that_tells() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let imported = fleet.class_of_records("", "cpu a", "gcc").unwrap();
    assert_eq!(fleet.class(device("boot 1", "gcc"), &machine(100e9, 20e9)).unwrap(), imported);
    assert_ne!(fleet.class(device("boot 2", "gcc"), &machine(50e9, 20e9)).unwrap(), imported);
    assert_eq!(fleet.work_of_others(imported).unwrap(), []);
    fleet.submit("net", imported, 32, &[order(4, 64, 1.0)]).unwrap();
    assert_eq!(fleet.work_of_others(imported).unwrap(), []);
    assert_eq!(fleet.work_of_others(imported + 1).unwrap(), [(imported, "cpu a".to_string())]);
}

/// What listens and answers no one, what answers something else, what hangs up.
#[test]
fn what_is_no_server_is_said_soon() {
    use std::io::{Read, Write};
    for answer in [None, Some(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]), Some(b"")] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                match answer {
                    None => kept.push(connection),
                    Some(text) => {
                        let _ = connection.read(&mut [0; 64]);
                        let _ = connection.write_all(text);
                    }
                }
            }
        });
        let url = format!("postgres://squall@127.0.0.1:{port}/squall?connect_timeout=1");
        let start = std::time::Instant::now();
        let error = Fleet::connect(&url).err().expect("no server");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(error.is_lost() && error.to_string().contains("127.0.0.1"), "{error}");
    }
}

#[test]
fn a_server_that_says_nothing_is_lost_and_found_again() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let a = worker(&mut fleet, "a");
    fleet.set_patience(Duration::from_secs(1));
    let pid = server.sql(
        "squall",
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'squall' AND pid <> \
         pg_backend_pid()",
    );
    let kill = |how: &str| {
        let done = std::process::Command::new("kill").args([how, pid.trim()]).status().unwrap();
        assert!(done.success(), "kill {how} {pid}");
    };
    kill("-STOP");
    let error = fleet.claim(&a, HOUR).unwrap_err();
    kill("-CONT");
    assert!(error.is_lost(), "{error}");
    assert!(error.to_string().contains("did not answer within 1 s"), "{error}");
    let mut again = Fleet::connect(&server.url("squall", "squall")).unwrap();
    assert!(again.claim(&a, HOUR).unwrap().is_none());
}

#[test]
fn a_fleet_of_a_newer_squall_is_refused_and_a_stopped_server_is_said() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let a = worker(&mut fleet, "a");
    server.sql("squall", "UPDATE squall.version SET number = 99");
    let url = server.url("squall", "squall");
    assert!(matches!(Fleet::connect(&url), Err(FleetError::Newer { found: 99, .. })));
    server.stop("immediate");
    let error = fleet.ship(a.id, a.class, &[trial(4, 1)]).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(Fleet::connect(&url).err().unwrap().is_lost());
}

#[test]
fn a_fleet_of_an_older_squall_is_brought_to_the_schema_and_loses_nothing() {
    let Some(server) = server() else { return };
    server.sql("postgres", "CREATE DATABASE squall");
    server.sql("squall", include_str!("../src/v1.sql"));
    let sql = "INSERT INTO squall.class (device, toolchain, variant) VALUES ('cpu a', 'gcc', 1); \
               INSERT INTO squall.worker (name, class, version) VALUES ('old', 1, '0')";
    server.sql("squall", sql);
    let url = server.url("squall", "squall");
    let refused = Fleet::connect(&url).err().unwrap();
    assert!(matches!(refused, FleetError::Older { found: 1, .. }), "{refused}");
    assert!(refused.remedy().contains("fleet init"));
    let (mut fleet, is_new, _) = Fleet::init(&url).unwrap();
    assert!(!is_new);
    assert_eq!(fleet.status(1).unwrap().workers[0].name, "old");
    assert!(Fleet::connect(&url).is_ok());
}

#[test]
fn an_object_is_made_once_and_run_by_those_who_trust_its_maker() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let w = worker(&mut fleet, "a");
    fleet.describe(&w, "gcc -O2", "{}").unwrap();
    let asked: Vec<String> = ["tile: a=1", "tile: a=2"].map(String::from).into();
    fleet.submit("x", w.class, 4, &[order(4, 8, 1.0)]).unwrap();
    let task = TaskId::of(&workload(4), Objective::Time);
    // Without a builder of this code nothing is kept.
    let name = |n: &str| WorkerName(n.into());
    let other_code = fleet.join_builders(&name("clang"), "1", "clang -O2").unwrap();
    assert!(!fleet.order_builds(&w, task, &asked, &[]).unwrap());
    let b = fleet.join_builders(&name("b"), "1", "gcc -O2").unwrap();
    assert_eq!(fleet.take_build(b).unwrap(), None);
    assert!(fleet.order_builds(&w, task, &asked, &[]).unwrap());
    assert_eq!(fleet.take_build(other_code).unwrap(), None);
    let first = fleet.take_build(b).unwrap().unwrap();
    assert_eq!((first.task, &*first.candidate), (task, "tile: a=1"));
    assert_eq!(first.workload, workload(4).to_string());
    assert_eq!(first.machine.as_deref(), Some("{}"));
    // What the worker wants next takes the place of what is left.
    assert!(fleet.order_builds(&w, task, &asked[..1], &[]).unwrap());
    assert!(fleet.take_build(b).unwrap().is_some());
    assert_eq!(fleet.take_build(b).unwrap(), None);
    // One makes an object; the others wait for it.
    assert!(fleet.begin_object(b, "k", false).unwrap());
    assert!(!fleet.begin_object(w.id, "k", true).unwrap());
    assert_eq!(fleet.object("k", &[]).unwrap(), Offered::Coming);
    assert!(!fleet.end_object(w.id, "k", Some(b"forged")).unwrap(), "another's");
    assert!(fleet.end_object(b, "k", Some(b"object")).unwrap());
    assert_eq!(fleet.object("k", &[]).unwrap(), Offered::Object(b"object".to_vec()));
    assert!(!fleet.end_object(b, "k", Some(b"other")).unwrap(), "it is there");
    assert!(!fleet.begin_object(b, "k", false).unwrap());
    // What cannot be made, and what a worker makes for itself, is not waited for.
    assert!(fleet.begin_object(b, "bad", false).unwrap());
    assert!(fleet.end_object(b, "bad", None).unwrap());
    assert_eq!(fleet.object("bad", &[]).unwrap(), Offered::Nothing);
    assert!(fleet.begin_object(w.id, "own", true).unwrap());
    assert_eq!(fleet.object("own", &[]).unwrap(), Offered::Nothing);

    // Another user can speak for no worker of this one, and take no order that is not for him.
    server.sql("squall", "CREATE USER other; GRANT squall_worker TO other");
    let mut other = Fleet::connect(&server.url("other", "squall")).unwrap();
    assert!(other.join_builders(&name("b"), "1", "gcc -O2").is_err(), "the name is another's");
    let theirs = other.join_builders(&name("c"), "1", "gcc -O2").unwrap();
    assert!(fleet.order_builds(&w, task, &asked, &[]).unwrap());
    assert!(!other.order_builds(&w, task, &[], &[]).unwrap());
    for builder in [b, theirs] {
        assert_eq!(other.take_build(builder).unwrap(), None);
    }
    assert!(!other.begin_object(b, "taken", false).unwrap());
    // His objects are his own until he is trusted; then his builders build, too.
    assert!(other.begin_object(theirs, "k", false).unwrap());
    assert!(other.end_object(theirs, "k", Some(b"his")).unwrap());
    assert_eq!(fleet.object("k", &[]).unwrap(), Offered::Object(b"object".to_vec()));
    assert!(other.begin_object(theirs, "theirs", false).unwrap());
    assert!(other.end_object(theirs, "theirs", Some(b"x")).unwrap());
    assert_eq!(fleet.object("theirs", &[]).unwrap(), Offered::Nothing);
    let trusted = ["other".to_string()];
    assert_eq!(fleet.object("theirs", &trusted).unwrap(), Offered::Object(b"x".to_vec()));
    assert!(fleet.order_builds(&w, task, &asked, &trusted).unwrap());
    assert!(other.take_build(theirs).unwrap().is_some());
}

/// An embedded store takes 2.7 kB a record; here names stand once.
#[test]
fn a_record_takes_at_most_five_hundred_bytes() {
    let Some(server) = server() else { return };
    let mut fleet = fleet(&server);
    let a = worker(&mut fleet, "a");
    const RECORDS: usize = 20_000;
    for task in 0..20 {
        let records: Vec<Record> = (0..RECORDS / 20).map(|i| trial(100 + task, i)).collect();
        assert_eq!(fleet.ship(a.id, a.class, &records).unwrap(), records.len() as u64);
    }
    server.sql("squall", "VACUUM ANALYZE");
    let bytes = server.sql(
        "squall",
        "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = \
         'squall.record'::regclass",
    );
    let each = bytes.trim().parse::<f64>().unwrap() / RECORDS as f64;
    println!("{each:.0} bytes a record with indexes");
    assert!(each <= 500.0, "{each} bytes a record");
    assert_eq!(fleet.status(1).unwrap().records, RECORDS as u64);
}
