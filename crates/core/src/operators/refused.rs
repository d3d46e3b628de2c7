//! The ONNX operators that have no row in the table (`operators/mod.rs`): those that no model may
//! use, each with the reason that users read, and those that hold other nodes (`If`, `Loop`, ..),
//! which the reader replaces by their nodes.

/// Operators of the standard domain that no model may use, with the reason.
pub const REFUSED: &[(&str, &str)] = &[
    ("Bernoulli", "its result is random"),
    ("ConcatFromSequence", "sequences are not supported"),
    ("ImageDecoder", "it decodes files of images"),
    ("Multinomial", "its result is random"),
    ("Optional", "optional values are not supported"),
    ("RandomNormal", "its result is random"),
    ("RandomNormalLike", "its result is random"),
    ("RandomUniform", "its result is random"),
    ("RandomUniformLike", "its result is random"),
    ("RegexFullMatch", "strings are not supported"),
    ("SequenceAt", "sequences are not supported"),
    ("SequenceConstruct", "sequences are not supported"),
    ("SequenceEmpty", "sequences are not supported"),
    ("SequenceErase", "sequences are not supported"),
    ("SequenceInsert", "sequences are not supported"),
    ("SequenceLength", "sequences are not supported"),
    ("SequenceMap", "sequences are not supported"),
    ("SplitToSequence", "sequences are not supported"),
    ("StringConcat", "strings are not supported"),
    ("StringNormalizer", "strings are not supported"),
    ("StringSplit", "strings are not supported"),
];

/// Operators that hold other nodes: these stand in their place when the model is read.
pub const WRITTEN_OUT: &[(&str, &str)] = &[
    ("If", "the branch of a known condition; else the run takes one; of other shapes on CPUs"),
    ("Loop", "a long one, or one that data ends, stays a loop, on CPUs"),
    ("Scan", "opset 9 and later; a long one stays a loop, on CPUs"),
];
