//! Being written: waits for the frontend's graph.
