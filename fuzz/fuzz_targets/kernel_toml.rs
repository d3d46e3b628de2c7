//! cargo-fuzz's program for the target `kernel_toml` of `squall_fuzz::targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| squall_fuzz::targets::run("kernel_toml", bytes));
