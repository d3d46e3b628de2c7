//! cargo-fuzz's program for the target `find_database` of `squall_fuzz::targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| squall_fuzz::targets::run("find_database", bytes));
