//! What users are told of operators: which are not supported and why, and what of the others is
//! not.

/// Operators of the standard domain that no model may use, with the reason.
pub const NOT_SUPPORTED: &[(&str, &str)] = &[
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

/// What is not supported of operators that have plain kernels.
pub const LIMITS: &[(&str, &str)] = &[
    ("Attention", "all floats are computed in 32 bits, whatever `softmax_precision` says"),
    ("BatchNormalization", "at inference only"),
    ("Compress", "extents depend on elements"),
    ("DeformConv", "images of two dimensions"),
    ("DequantizeLinear", "from integers; known scales must be above 0, in blocks finite"),
    ("Dropout", "at inference: it drops nothing"),
    ("MelWeightMatrix", "its inputs must be known when the model is read"),
    ("NonMaxSuppression", "extents depend on elements"),
    ("NonZero", "extents depend on elements"),
    ("OptionalGetElement", "of tensors"),
    ("OptionalHasElement", "of tensors"),
    ("QLinearConv", "known scales must be above 0"),
    ("QLinearMatMul", "known scales must be above 0"),
    ("QuantizeLinear", "to integers of 2, 4, 8 and 16 bits; known scales must be above 0"),
    ("Range", "on GPUs its inputs must be known when the model is read"),
    (
        "Resize",
        "scales, sizes and roi must be known; integers by `nearest`, those of 8 bits by all",
    ),
    ("Slice", "on GPUs starts, ends, axes and steps must be known when the model is read"),
    ("TfIdfVectorizer", "`mode` TF over integers"),
    ("Unique", "extents depend on elements"),
];
