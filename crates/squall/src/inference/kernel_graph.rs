//! Which operators of a network became which kernels, with their times: what a report draws.
//! `Network::kernel_graph` fills it.

/// Which operators became which kernels, in order of execution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelGraph {
    /// The kernels and the nodes without one.
    pub kernels: Vec<GraphKernel>,
}

/// A kernel, or a node without one.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphKernel {
    /// The task's name, or the operator.
    pub name: String,
    /// `kernel`, `move` or `plain`.
    pub kind: &'static str,
    /// The names of its nodes and their operators.
    pub nodes: Vec<(String, String)>,
    /// Its time in an inference, in nanoseconds; 0 where it takes none.
    pub nanos: f64,
    /// The kernels whose values it reads, by their place.
    pub from: Vec<usize>,
}
