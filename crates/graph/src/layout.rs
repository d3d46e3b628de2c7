//! Layouts: the order of a value's elements in memory, either the model's own (NCHW for images) or
//! with the channels of images last (NHWC). A kernel that reads or writes a value must know its
//! layout; an assignment (the kernels that cover a model, and its layouts) says the layout of each
//! value, and `rewrite.rs` changes workloads to it.

use squall_core::DType;
use squall_core::graph::{Model, ValueId};

/// The order of a value's elements. A layout is a variant here, its name, and a rewrite of
/// workloads in `rewrite.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// The model's own order: row-major, for images with the channels before rows and columns.
    Model,
    /// Images with their channels after rows and columns.
    ChannelsLast,
}

impl Layout {
    /// All layouts, with their spelling in text.
    pub const ALL: &'static [(Layout, &'static str)] =
        &[(Layout::Model, "model"), (Layout::ChannelsLast, "nhwc")];

    /// The spelling in text.
    pub fn name(self) -> &'static str {
        Layout::ALL.iter().find(|(l, _)| *l == self).map_or("", |(_, name)| name)
    }

    /// The layout with this spelling.
    pub fn from_name(name: &str) -> Option<Layout> {
        Layout::ALL.iter().find(|(_, n)| *n == name).map(|(l, _)| *l)
    }
}

/// Extents of a batch of images: images, channels, height, width.
pub type Image = [i64; 4];

/// The extents of a value of four axes with more than one position. Values of bytes are excluded,
/// because their operators say their order.
pub fn image(model: &Model, v: ValueId) -> Option<Image> {
    if model.values[v].dtype == Some(DType::U8) {
        return None;
    }
    let &[n, c, h, w] = model.values[v].shape.as_deref()? else { return None };
    (n > 0 && c > 0 && h.checked_mul(w)? > 1).then_some([n, c, h, w])
}
