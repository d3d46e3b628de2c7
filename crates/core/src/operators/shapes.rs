//! The rows of ONNX's operators that move elements or make shapes, without arithmetic: `Reshape`,
//! `Transpose`, `Slice`, `Concat`, `Shape` and others. A row names the function that infers shapes
//! (`graph/infer/shape_ops.rs`) and the evaluator (`graph/fold`), and says whose elements move
//! (`moves`), that only the shape changes (`renames`), or that a part of an operand may be read
//! (`picks`). `operators/mod.rs` has the table of all families.

use super::{Moving, Row, row};
use crate::graph::fold;
use crate::graph::infer::shape_ops;

pub(super) const ROWS: &[Row] = &[
    row("Constant", shape_ops::constant).folds(fold::constant).moves_data(),
    row("ConstantOfShape", shape_ops::constant_of_shape)
        .folds(fold::constant_of_shape)
        .moves_data()
        .spreads(),
    row("Shape", shape_ops::shape).folds(fold::shape).moves_data(),
    row("Size", shape_ops::size).folds(fold::size).moves_data(),
    row("Reshape", shape_ops::reshape).folds(fold::renamed).keeps_sign().renames(),
    row("Flatten", shape_ops::flatten).folds(fold::renamed).keeps_sign().renames(),
    row("Transpose", shape_ops::transpose)
        .folds(fold::transpose)
        .keeps_sign()
        .moves(Moving::Only(&[0]))
        .spreads(),
    row("Squeeze", shape_ops::squeeze).folds(fold::renamed).keeps_sign().renames(),
    row("Unsqueeze", shape_ops::unsqueeze).folds(fold::renamed).keeps_sign().renames(),
    row("Concat", shape_ops::concat).folds(fold::concat).keeps_sign_of_all().moves(Moving::All),
    row("Split", shape_ops::split)
        .folds(fold::split)
        .keeps_sign()
        .moves(Moving::Only(&[0]))
        .spreads(),
    row("Slice", shape_ops::slice)
        .folds(fold::slice)
        .keeps_sign()
        .moves(Moving::Only(&[0]))
        .picks(&[0])
        .spreads()
        .limits("on GPUs starts, ends, axes and steps must be known when the model is read"),
    row("Gather", shape_ops::gather)
        .folds(fold::gather)
        .keeps_sign()
        .moves(Moving::Only(&[0]))
        .picks(&[0])
        .spreads(),
    row("GatherElements", shape_ops::gather_elements)
        .folds(fold::gather_elements)
        .moves_data()
        .picks(&[0])
        .spreads(),
    row("Expand", shape_ops::expand)
        .folds(fold::expand)
        .keeps_sign()
        .moves(Moving::Only(&[0]))
        .spreads(),
    row("Tile", shape_ops::tile).folds(fold::tile).moves(Moving::Only(&[0])).spreads(),
    row("Pad", shape_ops::pad).folds(fold::pad).moves(Moving::Only(&[0, 2])).picks(&[0]).spreads(),
    row("Range", shape_ops::range)
        .folds(fold::range)
        .moves_data()
        .spreads()
        .limits("on GPUs its inputs must be known when the model is read"),
    row("Trilu", shape_ops::like_first).folds(fold::trilu).spreads(),
    row("ScatterND", shape_ops::like_first).folds(fold::scatter_nd).moves_data(),
    row("Scatter", shape_ops::scatter_elements),
    row("ScatterElements", shape_ops::scatter_elements).folds(fold::scatter_elements).moves_data(),
];
