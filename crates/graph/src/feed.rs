//! Feeds: the origin of each input of a kernel. An input is a value of the model as it is, or
//! numbers made of weights before the first call, such as filters scaled by a batch normalisation
//! (its factor and addend of each channel folded into the weights). A fusion candidate has one feed
//! for each input of its workload; `state.rs` computes the numbers.

use squall_core::graph::words::{Words, quote};
use squall_core::graph::{Model, ValueId};
use squall_core::text::TextError;
use std::collections::HashMap;

/// The parameters of a batch normalisation at inference, all known before the first call.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Four values with one number a channel each: factor, addend, mean and variance.
    pub parameters: [ValueId; 4],
    /// The number that is added to the variance.
    pub eps: f64,
    /// The number of channels.
    pub channels: i64,
}

/// The origin of a kernel's input.
#[derive(Clone, Debug, PartialEq)]
pub enum Feed {
    /// A value as it is.
    Value(ValueId),
    /// Filters, each scaled as a batch normalisation scales its channel.
    Scaled {
        /// The filters.
        weight: ValueId,
        /// The normalisation.
        norm: Norm,
    },
    /// The factor of each channel.
    Factor(Norm),
    /// The addend of each channel, with the bias that was added before the normalisation.
    Addend {
        /// The bias that was added before.
        bias: Option<ValueId>,
        /// The normalisation.
        norm: Norm,
    },
}

impl Feed {
    /// The values that it is made of.
    pub fn values(&self) -> Vec<ValueId> {
        let norm = |n: &Norm| n.parameters.to_vec();
        match self {
            Feed::Value(v) => vec![*v],
            Feed::Scaled { weight, norm: n } => [vec![*weight], norm(n)].concat(),
            Feed::Factor(n) => norm(n),
            Feed::Addend { bias, norm: n } => {
                [bias.iter().copied().collect::<Vec<_>>(), norm(n)].concat()
            }
        }
    }

    /// Whether it is made ahead of the first call.
    pub fn is_made(&self) -> bool {
        !matches!(self, Feed::Value(_))
    }

    /// How many elements it has, where that is known.
    pub fn elements(&self, model: &Model) -> Option<i64> {
        let of = |v: ValueId| {
            let value = &model.values[v];
            let shape = value.shape.as_ref();
            shape.or(model.values[value.alias.unwrap_or(v)].shape.as_ref())
        };
        match self {
            Feed::Value(v) | Feed::Scaled { weight: v, .. } => Some(of(*v)?.iter().product()),
            Feed::Factor(norm) | Feed::Addend { norm, .. } => Some(norm.channels),
        }
    }

    /// The words that [`Feed::parse`] reads.
    pub fn text(&self, model: &Model) -> String {
        let name = |v: ValueId| quote(&model.values[v].name);
        let norm = |n: &Norm| {
            let list: Vec<String> = n.parameters.iter().map(|&v| name(v)).collect();
            format!("{} {:?} {}", list.join(" "), n.eps, n.channels)
        };
        match self {
            Feed::Value(v) => name(*v),
            Feed::Scaled { weight, norm: n } => format!("scaled {} by {}", name(*weight), norm(n)),
            Feed::Factor(n) => format!("factor {}", norm(n)),
            Feed::Addend { bias: None, norm: n } => format!("addend {}", norm(n)),
            Feed::Addend { bias: Some(b), norm: n } => {
                format!("addend after {} {}", name(*b), norm(n))
            }
        }
    }

    /// Reads one feed.
    pub fn parse(w: &mut Words<'_>, names: &Names<'_>) -> Result<Feed, TextError> {
        if w.is_quoted() {
            return Ok(Feed::Value(names.value(w)?));
        }
        let start = w.clone();
        match w.bare()? {
            "scaled" => {
                let weight = names.value(w)?;
                w.expect("by")?;
                Ok(Feed::Scaled { weight, norm: norm(w, names)? })
            }
            "factor" => Ok(Feed::Factor(norm(w, names)?)),
            "addend" => {
                let bias = if w.accept("after") { Some(names.value(w)?) } else { None };
                Ok(Feed::Addend { bias, norm: norm(w, names)? })
            }
            _ => start.error("expected a value, `scaled`, `factor` or `addend`"),
        }
    }
}

fn norm(w: &mut Words<'_>, names: &Names<'_>) -> Result<Norm, TextError> {
    let mut parameters = [0; 4];
    for p in &mut parameters {
        *p = names.value(w)?;
    }
    let (eps, channels) = (w.value("a number")?, w.value("a number of channels")?);
    Ok(Norm { parameters, eps, channels })
}

/// The names of a model's nodes and values.
pub struct Names<'a> {
    values: HashMap<&'a str, ValueId>,
    nodes: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// All of them.
    pub fn new(model: &'a Model) -> Names<'a> {
        let values = model.values.iter().enumerate().map(|(i, v)| (v.name.as_str(), i));
        let nodes = model.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i));
        Names { values: values.collect(), nodes: nodes.collect() }
    }

    /// Reads the name of a value.
    pub fn value(&self, w: &mut Words<'_>) -> Result<ValueId, TextError> {
        let start = w.clone();
        match self.values.get(w.quoted()?.as_str()) {
            Some(&id) => Ok(id),
            None => start.error("the model has no value of this name"),
        }
    }

    /// Reads the name of a node.
    pub fn node(&self, w: &mut Words<'_>) -> Result<usize, TextError> {
        let start = w.clone();
        match self.nodes.get(w.quoted()?.as_str()) {
            Some(&i) => Ok(i),
            None => start.error("the model has no node of this name"),
        }
    }
}
