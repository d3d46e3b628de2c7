//! Plain kernels (untuned C for one ONNX operator) of operators that select elements by their
//! values: `TopK`, `Unique`, `NonZero`, `Compress`, `NonMaxSuppression` and `TfIdfVectorizer`.
//! Input: a call at constant shapes; output: C. Results whose extents depend on the elements are
//! allocated at their largest size, and the real extents are written to a pointer behind the
//! results. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use super::reduce::split_at;
use squall_core::text::shown;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Compress", compress),
    ("NonMaxSuppression", suppress),
    ("NonZero", non_zero),
    ("TfIdfVectorizer", tf_idf),
    ("TopK", top_k),
    ("Unique", unique),
];

/// Declares the pointer `extents`, to which the results' real extents are written.
fn extents(p: &mut Program) {
    let count = p.ctx.node.outputs.len();
    p.body(&format!("  long long *extents = out[{count}];\n"));
}

/// The best `K` of each row, in order, kept sorted while the row is read; of equal ones the first.
fn top_k(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "k", "largest", "sorted"])?;
    let x = p.shape(0)?;
    let axis = p.ctx.axis(p.ctx.int_or("axis", -1)?, x.len())?;
    split_at(p, x, axis);
    let k = p.result(0).or(p.result(1)).map_or(0, |r| r.1[axis]);
    p.int("K", k);
    if k == 0 {
        return Ok(());
    }
    // A NaN is larger than any number, as in NumPy.
    let better = match p.ctx.int_or("largest", 1)? != 0 {
        true => "(a) > (b) || ((a) != (a) && (b) == (b))",
        false => "(a) < (b) || ((a) == (a) && (b) != (b))",
    };
    p.define("BETTER(a, b)", format!("({better})"));
    p.scratch_pointer("long", "best", k, 8);
    let values = match p.result(0).is_some() {
        true => "      y0[(o * K + k) * INNER + i] = v[best[k] * INNER];\n",
        false => "",
    };
    let places = match p.result(1).is_some() {
        true => "      y1[(o * K + k) * INNER + i] = best[k];\n",
        false => "",
    };
    p.body(&format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {{
    const T0 *v = x0 + o * EXTENT * INNER + i;
    long count = 0;
    for (long e = 0; e < EXTENT; e++) {{
      const T0 a = v[e * INNER];
      if (count == K && !BETTER(a, v[best[K - 1] * INNER])) continue;
      long at = count < K ? count++ : K - 1;
      for (; at > 0 && BETTER(a, v[best[at - 1] * INNER]); at--) best[at] = best[at - 1];
      best[at] = e;
    }}
    for (long k = 0; k < K; k++) {{
{values}{places}    }}
  }}
"
    ));
    Ok(())
}

/// The indices of each axis lie one behind the other: elements are counted first.
fn non_zero(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let x = p.shape(0)?;
    p.int("RANK", x.len() as i64);
    extents(p);
    p.body(
        "  long count = 0;
  for (long i = 0; i < N0; i++) count += x0[i] != 0;
  extents[0] = RANK, extents[1] = count;
",
    );
    if x.is_empty() {
        return Ok(());
    }
    let stores: String =
        (0..x.len()).map(|a| format!("      y0[{a} * count + at] = i{a};\n")).collect();
    let inner =
        format!("    if (x0[{}] != 0) {{\n{stores}      at++;\n    }}", offset("i", &strides(x)));
    p.body("  long at = 0;\n");
    let text = loops("i", x, &inner);
    p.body(&text);
    p.body("  (void)at;\n");
    Ok(())
}

fn compress(p: &mut Program) -> Result<(), String> {
    only(p, &["axis"])?;
    let x = p.shape(0)?;
    let axis = p.ctx.int("axis")?.map(|a| p.ctx.axis(a, x.len())).transpose()?;
    match axis {
        Some(a) => split_at(p, x, a),
        None => [("OUTER", 1), ("EXTENT", product(x)), ("INNER", 1)]
            .iter()
            .for_each(|(n, v)| p.int(n, *v)),
    }
    extents(p);
    p.body(
        "  const long most = N1 < EXTENT ? N1 : EXTENT;
  long count = 0;
  for (long k = 0; k < most; k++) count += x1[k] != 0;
  for (long o = 0; o < OUTER; o++) {
    long at = 0;
    for (long k = 0; k < most; k++) {
      if (!x1[k]) continue;
      for (long i = 0; i < INNER; i++)
        y0[(o * count + at) * INNER + i] = x0[(o * EXTENT + k) * INNER + i];
      at++;
    }
  }
",
    );
    for (i, d) in x.iter().enumerate() {
        match axis {
            Some(a) if a == i => p.body(&format!("  extents[{i}] = count;\n")),
            Some(_) => p.body(&format!("  extents[{i}] = {d};\n")),
            None => {}
        }
    }
    if axis.is_none() {
        p.body("  extents[0] = count;\n");
    }
    Ok(())
}

/// `sort_items`: indices of items in ascending order of their elements, equal ones in their own. As
/// in NumPy, NaN comes last, and all of them are one.
const SORT: &str = "static int before(const T0 *x, long a, long b) {
  for (long o = 0; o < OUTER; o++)
    for (long i = 0; i < INNER; i++) {
      const T0 u = x[(o * EXTENT + a) * INNER + i], v = x[(o * EXTENT + b) * INNER + i];
      if (u != v && (u == u || v == v)) return u < v || v != v;
    }
  return a < b;
}
static int same(const T0 *x, long a, long b) {
  for (long o = 0; o < OUTER; o++)
    for (long i = 0; i < INNER; i++) {
      const T0 u = x[(o * EXTENT + a) * INNER + i], v = x[(o * EXTENT + b) * INNER + i];
      if (u != v && (u == u || v == v)) return 0;
    }
  return 1;
}
static void sift(const T0 *x, long *order, long at, long count) {
  for (;;) {
    long child = 2 * at + 1;
    if (child >= count) return;
    if (child + 1 < count && before(x, order[child], order[child + 1])) child++;
    if (!before(x, order[at], order[child])) return;
    long t = order[at];
    order[at] = order[child], order[child] = t, at = child;
  }
}
static void sort_items(const T0 *x, long *order) {
  for (long i = 0; i < EXTENT; i++) order[i] = i;
  for (long i = EXTENT / 2; i-- > 0;) sift(x, order, i, EXTENT);
  for (long i = EXTENT; i-- > 1;) {
    long t = order[0];
    order[0] = order[i], order[i] = t;
    sift(x, order, 0, i);
  }
}
";

fn unique(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "sorted"])?;
    let x = p.shape(0)?;
    let axis = p.ctx.int("axis")?.map(|a| p.ctx.axis(a, x.len())).transpose()?;
    match axis {
        Some(a) => split_at(p, x, a),
        None => [("OUTER", 1), ("EXTENT", product(x)), ("INNER", 1)]
            .iter()
            .for_each(|(n, v)| p.int(n, *v)),
    }
    p.table("sort_items", SORT.into());
    let n = axis.map_or(product(x), |a| x[a]);
    for name in ["order", "group", "first", "sizes", "place"] {
        p.scratch_pointer("long", name, n, 8);
    }
    extents(p);
    let sorted = p.ctx.int_or("sorted", 1)? != 0;
    let place = match sorted {
        true => "  for (long g = 0; g < count; g++) place[g] = g;\n",
        false => {
            "  long next = 0;
  for (long i = 0; i < EXTENT; i++) {
    if (first[group[i]] == i) place[group[i]] = next++;
  }
"
        }
    };
    p.body(&format!(
        "  long count = 0;
  sort_items(x0, order);
  for (long i = 0; i < EXTENT; i++) {{
    if (i == 0 || !same(x0, order[i - 1], order[i])) first[count] = order[i], sizes[count++] = 0;
    group[order[i]] = count - 1, sizes[count - 1]++;
  }}
{place}"
    ));
    let stores = [
        "    for (long o = 0; o < OUTER; o++)
      for (long i = 0; i < INNER; i++)
        y0[(o * count + place[g]) * INNER + i] = x0[(o * EXTENT + first[g]) * INNER + i];
",
        "    y1[place[g]] = first[g];\n",
        "",
        "    y3[place[g]] = sizes[g];\n",
    ];
    p.body("  for (long g = 0; g < count; g++) {\n    (void)sizes;\n");
    for (i, store) in stores.iter().enumerate() {
        if p.result(i).is_some() {
            p.body(store);
        }
    }
    p.body("  }\n");
    if p.result(2).is_some() {
        p.body("  for (long i = 0; i < EXTENT; i++) y2[i] = place[group[i]];\n");
    }
    let mut at = 0;
    for i in 0..4 {
        let Some((_, shape)) = p.result(i) else { continue };
        for (k, d) in shape.iter().enumerate() {
            let real = match (i, axis) {
                (2, _) => "EXTENT".into(),
                (0, Some(a)) if a != k => format!("{d}"),
                _ => "count".to_string(),
            };
            p.body(&format!("  extents[{at}] = {real};\n"));
            at += 1;
        }
    }
    Ok(())
}

const OVERLAP: &str = "static float overlap(const float *a, const float *b) {
  float l[2], h[2], m[2], n[2];
  for (int i = 0; i < 2; i++) {
    if (CENTER) {
      l[i] = a[i] - a[i + 2] / 2, h[i] = a[i] + a[i + 2] / 2;
      m[i] = b[i] - b[i + 2] / 2, n[i] = b[i] + b[i + 2] / 2;
    } else {
      l[i] = fminf(a[i], a[i + 2]), h[i] = fmaxf(a[i], a[i + 2]);
      m[i] = fminf(b[i], b[i + 2]), n[i] = fmaxf(b[i], b[i + 2]);
    }
  }
  float w = fminf(h[0], n[0]) - fmaxf(l[0], m[0]), v = fminf(h[1], n[1]) - fmaxf(l[1], m[1]);
  if (w <= 0 || v <= 0) return 0;
  float one = (h[0] - l[0]) * (h[1] - l[1]), two = (n[0] - m[0]) * (n[1] - m[1]);
  if (one <= 0 || two <= 0) return 0;
  return w * v / (one + two - w * v);
}
";

fn suppress(p: &mut Program) -> Result<(), String> {
    only(p, &["center_point_box"])?;
    let (scores, most) = (p.shape(1)?, p.out()?[0]);
    let center = p.ctx.int_or("center_point_box", 0)?;
    p.int("CENTER", center);
    p.int("BATCH", scores[0]);
    p.int("CLASSES", scores[1]);
    p.int("BOXES", scores[2]);
    p.int("MOST", most);
    p.table("overlap", OVERLAP.into());
    p.scratch_pointer("unsigned char", "open", scores[2], 1);
    extents(p);
    let value = |i: usize, default: &str| match p.has(i) {
        true => format!("*x{i}"),
        false => default.to_string(),
    };
    let (each, iou) = (value(2, "0"), value(3, "0"));
    let over = if p.has(4) { "s[i] > *x4" } else { "1" };
    p.body(&format!(
        "  long count = 0;
  for (long b = 0; b < BATCH; b++)
  for (long c = 0; c < CLASSES; c++) {{
    const float *s = x1 + (b * CLASSES + c) * BOXES, *box = x0 + b * BOXES * 4;
    for (long i = 0; i < BOXES; i++) open[i] = {over};
    for (long k = 0; k < (long){each} && count < MOST; k++) {{
      long best = -1;
      for (long i = 0; i < BOXES; i++) {{
        if (open[i] && (best < 0 || s[i] > s[best])) best = i;
      }}
      if (best < 0) break;
      y0[count * 3] = b, y0[count * 3 + 1] = c, y0[count * 3 + 2] = best, count++;
      open[best] = 0;
      for (long i = 0; i < BOXES; i++) {{
        if (open[i] && overlap(box + best * 4, box + i * 4) > {iou}) open[i] = 0;
      }}
    }}
  }}
  extents[0] = count, extents[1] = 3;
"
    ));
    Ok(())
}

/// How often each known sequence of whole numbers is in a row, also with gaps.
fn tf_idf(p: &mut Program) -> Result<(), String> {
    only(
        p,
        &[
            "max_gram_length",
            "max_skip_count",
            "min_gram_length",
            "mode",
            "ngram_counts",
            "ngram_indexes",
            "pool_int64s",
            "weights",
        ],
    )?;
    let mode = p.ctx.text("mode", "")?;
    if mode != "TF" {
        return Err(format!("attribute `mode` `{}` is not supported", shown(mode)));
    }
    let counts = p.ctx.ints("ngram_counts")?.ok_or("attribute `ngram_counts` is missing")?;
    let pool = p.ctx.ints("pool_int64s")?.ok_or("attribute `pool_int64s` is missing")?;
    let ids = p.ctx.ints("ngram_indexes")?.ok_or("attribute `ngram_indexes` is missing")?;
    let need =
        |name: &str| p.ctx.int(name)?.ok_or_else(|| format!("attribute `{name}` is missing"));
    let (least, most) = (need("min_gram_length")?, need("max_gram_length")?);
    let skips = need("max_skip_count")?;
    let shape = p.shape(0)?;
    let row = shape.last().copied().unwrap_or(1);
    p.int("ROW", row);
    p.int("ROWS", if shape.len() == 2 { shape[0] } else { 1 });
    p.int("COLUMNS", p.out()?.last().copied().unwrap_or(0));
    p.int("SKIPS", skips);
    p.ints("POOL", pool);
    p.ints("IDS", ids);
    p.body("  for (long i = 0; i < M0; i++) y0[i] = 0;\n");
    let mut known = 0;
    for n in 1..=counts.len() as i64 {
        let from = counts[n as usize - 1];
        let to = counts.get(n as usize).copied().unwrap_or(pool.len() as i64);
        if from < 0 || to < from || to > pool.len() as i64 || (to - from) % n != 0 {
            return Err(format!("attribute `ngram_counts` is {counts:?}"));
        }
        let grams = (to - from) / n;
        if known + grams > ids.len() as i64 {
            return Err(format!("attribute `ngram_indexes` has {} elements", ids.len()));
        }
        // Sequences of one element have no gaps.
        let last = if n == 1 { "1" } else { "SKIPS + 1" };
        if (least..=most).contains(&n) && grams > 0 {
            p.body(&format!(
                "  for (long r = 0; r < ROWS; r++)
  for (long d = 1; d <= {last}; d++)
  for (long s = 0; s + {m} * d < ROW; s++)
  for (long g = 0; g < {grams}; g++) {{
    long k = 0;
    while (k < {n} && (long)x0[r * ROW + s + k * d] == POOL[{from} + g * {n} + k]) k++;
    if (k == {n}) y0[r * COLUMNS + IDS[{known} + g]] += 1;
  }}
",
                m = n - 1
            ));
        }
        known += grams;
    }
    if ids.iter().any(|i| *i < 0) {
        return Err("attribute `ngram_indexes` has negative elements".into());
    }
    Ok(())
}
