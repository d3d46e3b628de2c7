//! The rows of ONNX's operators on images: convolutions, pools, normalisations of channels,
//! resizing and sampling. A row names the function that infers shapes (`graph/infer/conv_pool.rs`,
//! `graph/infer/vision.rs`) and states facts: `spreads` (threads can share the loops of its plain
//! C), `moves_data`, `keeps_sign`, `multiplies` (how many products there are), `picks` (operands
//! that may be read in part), and limits for the user's documentation. `operators/mod.rs` has the
//! table of all families.

use super::{Row, counted, row};
use crate::graph::infer::{conv_pool, vision};

pub(super) const ROWS: &[Row] = &[
    row("Conv", conv_pool::conv).multiplies(|ctx, y| counted::convolution(ctx, 1, y)).spreads(),
    row("ConvTranspose", conv_pool::conv_transpose).multiplies(counted::transposed),
    row("MaxPool", conv_pool::pool).spreads(),
    row("AveragePool", conv_pool::pool).keeps_sign().spreads(),
    row("LpPool", conv_pool::pool).spreads(),
    row("GlobalAveragePool", conv_pool::global_pool).keeps_sign().spreads(),
    row("GlobalMaxPool", conv_pool::global_pool).keeps_sign().spreads(),
    row("GlobalLpPool", conv_pool::global_pool).spreads(),
    row("BatchNormalization", conv_pool::batch_norm).spreads().limits("at inference only"),
    row("InstanceNormalization", conv_pool::channel_norm).spreads(),
    row("GroupNormalization", conv_pool::channel_norm).spreads(),
    row("LRN", conv_pool::image).spreads(),
    row("DepthToSpace", conv_pool::depth_to_space).moves_data().spreads(),
    row("SpaceToDepth", conv_pool::space_to_depth).moves_data().spreads(),
    row("Resize", conv_pool::resize).picks(&[0]).spreads().limits(
        "scales, sizes and roi must be known; integers by `nearest`, those of 8 bits by all",
    ),
    row("Upsample", conv_pool::resize).picks(&[0]).spreads(),
    row("AffineGrid", vision::affine_grid).spreads(),
    row("CenterCropPad", vision::center_crop_pad).picks(&[0]).spreads(),
    row("Col2Im", vision::col2im),
    row("DeformConv", vision::deform_conv)
        .multiplies(|ctx, y| counted::convolution(ctx, 1, y))
        .picks(&[0])
        .limits("images of two dimensions"),
    row("GridSample", vision::grid_sample).picks(&[0]).spreads(),
    row("MaxRoiPool", vision::max_roi_pool).picks(&[0]),
    row("MaxUnpool", vision::max_unpool),
    row("RoiAlign", vision::roi_align).picks(&[0]),
];
