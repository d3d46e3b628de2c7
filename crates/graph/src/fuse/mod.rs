//! The parts that the rules of fusion (`../rules`) are made of, to build one kernel of several
//! nodes: anchors, the operators that a kernel is built around ([`anchor`]), elementwise nodes as
//! expressions ([`step`]), and groups, in which elementwise nodes join an anchor ([`group`]).

pub mod anchor;
pub mod group;
pub mod step;
