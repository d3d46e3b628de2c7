//! The C loops of a Resize by weights along one axis. Input: the axis, the names of the arrays that
//! are read and written; output: text that reads the tables `PLACE`, `WEIGHT`, `REST` and `EMPTY`
//! of the axis, which `resize.rs` writes.

use super::super::program::product;

/// One step of `weighted`: along an axis each place gets a sum of at most `most` elements. `from`
/// and `to` are the types and names of the arrays that are read and written, and `value` is C that
/// makes the written element of `sum`.
pub(super) struct AxisSums {
    pub axis: usize,
    pub most: usize,
    /// Whether some places lie outside of the operand and get a given value, without a sum.
    pub has_rest: bool,
    pub from: (&'static str, &'static str),
    pub to: (&'static str, &'static str),
    pub value: String,
}

impl AxisSums {
    /// The most terms that are written out as one expression.
    const WRITTEN_OUT: usize = 4;

    /// The loops, for a shape whose axis gets `extent` places.
    pub fn text(&self, shape: &[i64], extent: i64) -> String {
        let AxisSums { axis: a, most, has_rest, from, to, value } = self;
        let (outer, inner) = (product(&shape[..*a]), product(&shape[a + 1..]));
        let alone = match has_rest {
            true => format!(
                "    if (EMPTY{a}[k]) {{
      const R sum = rest;
      for (long i = 0; i < {inner}; i++) t[i] = {value};
      continue;
    }}
"
            ),
            false => String::new(),
        };
        let begin = format!(
            "  for (long o = 0; o < {outer}; o++)
  for (long k = 0; k < {extent}; k++) {{
    const {} *s = {} + o * {}L;
    {} *t = {} + (o * {extent}L + k) * {inner}L;
    const long *place = PLACE{a} + k * {most}L;
    const float *weight = WEIGHT{a} + k * {most}L;
    const R rest = REST{a}[k];
{alone}",
            from.0,
            from.1,
            shape[*a] * inner,
            to.0,
            to.1,
        );
        if *most > Self::WRITTEN_OUT {
            return begin
                + &format!(
                    "    for (long i = 0; i < {inner}; i++) {{
      R sum = rest;
      for (long j = 0; j < {most}; j++) sum += (R)weight[j] * (R)s[place[j] * {inner}L + i];
      t[i] = {value};
    }}
  }}
"
                );
        }
        let names: String = (0..*most)
            .map(|j| {
                format!(
                    "    const R w{j} = weight[{j}];\n    const {} *s{j} = s + place[{j}] * \
                     {inner}L;\n",
                    from.0
                )
            })
            .collect();
        let terms: String = (0..*most).map(|j| format!(" + w{j} * (R)s{j}[i]")).collect();
        begin
            + &names
            + &format!(
                "    for (long i = 0; i < {inner}; i++) {{
      const R sum = rest{terms};
      t[i] = {value};
    }}
  }}
"
            )
    }
}
