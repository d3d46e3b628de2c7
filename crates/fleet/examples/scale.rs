//! Measures by hand how a fleet's server with very many records behaves: how long claiming a slice,
//! pulling and pushing records take.
//!
//! ```text
//! cargo run --release -p squall-fleet --example scale -- [RECORDS] [CALLS]
//! ```
//!
//! A server of its own is filled, by its own functions, with RECORDS (10,000,000) of tasks with
//! 1,024 each; then each of the three calls is made CALLS (1,000) times, on the tasks that claims
//! give. It prints JSON: milliseconds at the median and at the 99th percentile, and bytes a record.

use squall_core::*;
use squall_fleet::*;
use squall_testing::postgres::server;
use std::time::{Duration, Instant};

/// Records of a task.
const EACH: i64 = 1024;
/// Trials of a slice, which is what is pushed at once.
const SLICE: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let records: i64 = words.next().map_or(Ok(10_000_000), |w| w.parse())?;
    let calls: usize = words.next().map_or(Ok(1_000), |w| w.parse())?;
    let Some(server) = server() else { return Err("there is no PostgreSQL".into()) };
    server.sql("postgres", "CREATE DATABASE squall");
    let url = server.url("squall", "squall");
    let (mut fleet, _, _) = Fleet::init(&url)?;
    let class = fleet.class_of_records("", "cpu a", "gcc")?;
    let worker = fleet.join(WorkerName("filler".into()), class, "1")?;
    let tasks = (records / EACH).max(1);
    // Tasks whose identities are those of their workloads: what a push names must be there.
    let orders: Vec<TaskOrder> = (0..tasks).map(order).collect();
    let begin = Instant::now();
    fleet.submit("everything", class, SLICE as u64, &orders)?;
    eprintln!("{tasks} tasks in {:.0} s", begin.elapsed().as_secs_f64());
    fill(&server, worker.id, class);
    let filled = begin.elapsed().as_secs_f64();
    eprintln!("{records} records in {filled:.0} s");
    let bytes: f64 = server
        .sql(
            "squall",
            "SELECT sum(pg_total_relation_size(inhrelid)) / (SELECT count(*) FROM squall.record) \
             FROM pg_inherits WHERE inhparent = 'squall.record'::regclass",
        )
        .trim()
        .parse()?;
    let (mut claims, mut pulls, mut pushes, mut finishes) = (vec![], vec![], vec![], vec![]);
    for i in 0..calls {
        let time = |list: &mut Vec<f64>, t: Instant| list.push(t.elapsed().as_secs_f64() * 1e3);
        let t = Instant::now();
        let lease = fleet.claim(&worker, Duration::from_secs(60))?.ok_or("no slice is left")?;
        time(&mut claims, t);
        let t = Instant::now();
        let (known, _) = fleet.pull(lease.task, class, Mark::default())?;
        time(&mut pulls, t);
        assert!(known.len() >= EACH as usize, "{} records", known.len());
        let news: Vec<Record> = (0..SLICE).map(|n| record(&lease, i * SLICE + n)).collect();
        let t = Instant::now();
        let new = fleet.ship(worker.id, class, &news)?;
        time(&mut pushes, t);
        assert_eq!(new, SLICE as u64);
        let t = Instant::now();
        fleet.finish(&lease, &Ended { trials: SLICE as u64, gain: 1e-6, ..Ended::default() })?;
        time(&mut finishes, t);
    }
    let part = |list: &mut Vec<f64>, share: f64| {
        list.sort_by(f64::total_cmp);
        list[((list.len() - 1) as f64 * share) as usize]
    };
    let shown = |list: &mut Vec<f64>| {
        format!(r#"{{"median_ms": {:.2}, "p99_ms": {:.2}}}"#, part(list, 0.5), part(list, 0.99))
    };
    println!(
        r#"{{"records": {records}, "tasks": {tasks}, "calls": {calls}, "fill_s": {filled:.0}, "#
    );
    println!(r#" "bytes_a_record": {bytes:.0}, "claim": {}, "#, shown(&mut claims));
    println!(r#" "pull_of_{EACH}": {}, "#, shown(&mut pulls));
    println!(r#" "push_of_{SLICE}": {}, "#, shown(&mut pushes));
    println!(r#" "finish": {}}}"#, shown(&mut finishes));
    Ok(())
}

fn workload(n: i64) -> Workload {
    let n = n + 2;
    let text =
        format!("workload relu\ndata X: f32[{n}]\nstage Y: f32[i: {n}] = max(X[i], 0)\noutput Y\n");
    Workload::parse(&text).expect("a workload")
}

fn order(n: i64) -> TaskOrder {
    let weight = 1.0 / (1.0 + n as f64);
    TaskOrder { task: Task::new(format!("relu_{n}"), workload(n)), trials: 4096, weight }
}

/// Records as real ones are: seven samples, a configuration of some 70 characters.
fn fill(server: &squall_testing::postgres::Server, worker: i32, class: i32) {
    let sql = format!(
        "SET synchronous_commit = off; INSERT INTO squall.tunable (name) VALUES ('tile@a') ON \
         CONFLICT DO NOTHING; INSERT INTO squall.record (task, identity, kind, outcome, tunable, \
         configuration, samples, recorded, seed, calls, error, pace, build, measure, search, \
         class, worker, arrived) SELECT t.id, sha256(int8send(t.id) || int8send(i)), 0, 0, \
         (SELECT id FROM squall.tunable LIMIT 1), 'tile=' || i || \
         ',order=ijk,unroll=4,vector=16,pack=b,parallel=0,prefetch=2,lanes=16', \
         substr(sha256(int8send(i)) || sha256(int8send(i + t.id)), 1, 56), 1.7e9 + i, i, 100, \
         1e-7, 3.0, 0.1, 0.2, 1e-4, {class}, {worker}, clock_timestamp() - interval '1 hour' \
         FROM squall.task t, generate_series(1::bigint, {EACH}) i; ANALYZE squall.record"
    );
    server.sql("squall", &sql);
}

fn record(lease: &Lease, i: usize) -> Record {
    let samples = (0..7).map(|k| Nanos(1000.0 + i as f64 + f64::from(k))).collect();
    let measured = Measurement { samples, calls: 100, error: 1e-7, gpu: None, pace: Some(3.0) };
    Record {
        kind: RecordKind::Trial,
        task: lease.task,
        name: lease.name.clone(),
        workload: lease.workload.clone(),
        device: "cpu a".into(),
        toolchain: "gcc".into(),
        tunable: "tile@a".into(),
        configuration: format!("tile=new{i},order=ijk,unroll=4,vector=16,pack=b,parallel=0"),
        outcome: Outcome::Measured(measured),
        cost: CpuCost { build: 0.1, measure: 0.2, search: 1e-4 },
        seed: 1,
        time: 1.7e9 + i as f64,
    }
}
