//! Occupancy: how many blocks of a GPU kernel one multiprocessor holds at once, as CUDA's occupancy
//! calculator counts it from threads, shared memory and registers. The features of a kernel
//! (`features/gpu.rs`) and the launch bounds that are printed with it both count by this function.

/// The resources of a multiprocessor, or the part of them that one block takes.
pub struct Resources {
    pub threads: f64,
    /// Bytes of shared memory.
    pub shared: f64,
    /// 32-bit registers.
    pub registers: f64,
}

/// The blocks that a multiprocessor holds: as many as its scarcest resource allows, at least one,
/// because a block that a device refuses is never launched, and `most` at most.
pub fn blocks_per_multiprocessor(has: &Resources, block: &Resources, most: f64) -> f64 {
    let times = |all: f64, each: f64| (all / each.max(1.0)).floor();
    times(has.threads, block.threads)
        .min(times(has.shared, block.shared))
        .min(times(has.registers, block.registers))
        .clamp(1.0, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcest_resource_limits_blocks() {
        let has = Resources { threads: 2048.0, shared: 233_472.0, registers: 65_536.0 };
        let count = |threads: f64, shared: f64, registers: f64| {
            blocks_per_multiprocessor(&has, &Resources { threads, shared, registers }, 32.0)
        };
        assert_eq!(count(256.0, 1024.0, 256.0 * 20.0), 8.0);
        assert_eq!(count(256.0, 100_000.0, 256.0 * 20.0), 2.0);
        assert_eq!(count(256.0, 1024.0, 256.0 * 100.0), 2.0);
        assert_eq!(count(32.0, 0.0, 0.0), 32.0, "no more than the device counts");
        assert_eq!(count(1024.0, 1024.0, 1024.0 * 128.0), 1.0, "never none");
    }
}
