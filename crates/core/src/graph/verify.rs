//! Checks a model: names are unique, nodes stand in an order of execution, and a value's type and
//! shape agree with its constant. Input: a model; output: nothing, or a message with the name of
//! the wrong node or value. Parsers of texts and the graph's rewritings end with this check.

use super::{Attribute, Constant, Model, Value, ValueId, elements};
use std::collections::HashSet;

impl Model {
    /// Checks the model; says what is wrong and where.
    pub fn verify(&self) -> Result<(), String> {
        let mut known = vec![false; self.values.len()];
        let mut names = HashSet::new();
        for (id, v) in self.values.iter().enumerate() {
            if v.name.is_empty() || !names.insert(v.name.as_str()) {
                return Err(format!("the name `{}` of value {id} is empty or taken", v.name));
            }
            self.verify_value(id, v).map_err(|e| format!("value `{}`: {e}", v.name))?;
        }
        let made: HashSet<ValueId> = self.nodes.iter().flat_map(|n| n.outputs.clone()).collect();
        for (id, known) in known.iter_mut().enumerate() {
            *known = !made.contains(&id);
            if *known && !self.values[id].weight && !self.inputs.contains(&id) {
                return Err(format!("nothing gives the value `{}`", self.values[id].name));
            }
        }
        for &id in &self.inputs {
            if id >= known.len() || !known[id] || self.values[id].weight {
                return Err(format!("input {id} is a weight, or a node's result, or no value"));
            }
        }
        let (mut nodes, mut last) = (HashSet::new(), None);
        for n in &self.nodes {
            let fail = |e: String| Err(format!("node `{}`: {e}", n.name));
            if n.name.is_empty() || !nodes.insert(n.name.as_str()) {
                return fail("its name is empty or taken".into());
            }
            for a in n.attributes.values() {
                if let Attribute::Tensor(t) = a
                    && let Some(c) = &t.constant
                {
                    holds(c, Some(&t.shape)).map_err(|e| format!("node `{}`: {e}", n.name))?;
                }
            }
            if let Some(id) = n.inputs.iter().flatten().find(|&&id| known.get(id) != Some(&true)) {
                return fail(format!("it reads value {id}, which is not known by then"));
            }
            for &id in &n.outputs {
                if id >= known.len() || known[id] || last >= Some(id) {
                    return fail(format!("its result {id} is another's, or out of order"));
                }
                (known[id], last) = (true, Some(id));
            }
        }
        match self.outputs.iter().find(|&&id| id >= known.len()) {
            Some(id) => Err(format!("output {id} is no value")),
            None => Ok(()),
        }
    }

    fn verify_value(&self, id: ValueId, v: &Value) -> Result<(), String> {
        if let Some(shape) = &v.shape {
            elements(shape)?;
        }
        if let Some(c) = &v.constant {
            holds(c, v.shape.as_deref())?;
        }
        match v.alias {
            Some(of) if of >= id || self.values[of].alias.is_some() => {
                Err("it is an alias of a later value, or of an alias".into())
            }
            _ => Ok(()),
        }
    }
}

/// Whether a constant has as many elements as its shape says, and the shape that is said of it.
fn holds(c: &Constant, said: Option<&[i64]>) -> Result<(), String> {
    let (shape, len) = (c.shape(), c.len());
    match elements(shape)? as usize == len && said.is_none_or(|s| s == shape) {
        true => Ok(()),
        false => Err(format!("it is {said:?}, but holds {len} elements of shape {shape:?}")),
    }
}
