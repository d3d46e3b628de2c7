use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use squall_core::{*, units::Bytes};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let w = Workload::parse(&std::fs::read_to_string(&a[1]).unwrap()).unwrap();
    let n: usize = a[3].parse().unwrap();
    let t = Target { kind: TargetKind::Cpu, threads: 1, vector_bytes: 64, vector_registers: 32, caches: vec![Bytes(32 << 10), Bytes(1 << 20)] };
    let mut index = String::new();
    for s in squall_compiler::sketches(&w, &t) {
        let t0 = std::time::Instant::now();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..100000 { std::hint::black_box(s.space().sample(&mut rng)); }
        let t1 = std::time::Instant::now();
        for _ in 0..200 { std::hint::black_box(s.features(&s.space().sample(&mut rng))); }
        eprintln!("{} {:?} nodes {} 1e5 samples {:?} features {:?}", s.name(), s.space(), s.space().nodes(), t1 - t0, t1.elapsed() / 200);
        for i in 0..n {
            let c = if a.len() > 4 { match s.space().parse(&a[4]) { Ok(c) => c, Err(e) => { eprintln!("{e}"); continue } } } else { s.space().sample(&mut rng) };
            match s.realize(&c, "kernel") {
                Ok(k) => {
                    let f = format!("{}/{}_{i}.c", a[2], s.name().replace([',', '=','@'], "_"));
                    std::fs::write(&f, &k.source).unwrap();
                    index += &format!("{f} {} {} {}\n", k.prepared.0, k.workspace.0, c);
                }
                Err(e) => eprintln!("{c}: {e}"),
            }
        }
    }
    std::fs::write(format!("{}/index", a[2]), index).unwrap();
}
