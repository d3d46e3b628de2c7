//! Plain kernels (untuned C for one ONNX operator) of operators that select elements by their
//! values: `TopK`, `Unique`, `NonZero`, `Compress`, `NonMaxSuppression` and `TfIdfVectorizer`.
//! Input: a call at constant shapes; output: C. Results whose extents depend on the elements are
//! allocated at their largest size, and the real extents are written to a pointer behind the
//! results. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use super::ranks;
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

/// More of the best than are kept sorted while a row is read.
const FEW_OF_THE_BEST: i64 = 16;

/// `best_of`: the places of the best `K` of `EXTENT` floats in order, of equal ones the first. Each
/// element has a whole number that is the larger the better it is; the numbers' leading bits are
/// counted, elements that cannot be among the best are left out, and the rest is sorted digit by
/// digit.
const BEST_OF: &str = r#"enum { DIGIT = 256, LEADING = 2048 };
static void best_of(const float *v, long step, unsigned *keys, unsigned *kept, unsigned *other,
                    long *best) {
  for (long e = 0; e < EXTENT; e++) {
    union { float f; unsigned i; } a;
    a.f = v[e * step] + 0.0f;
    const unsigned key = a.i ^ (a.i >> 31 ? 0xffffffffu : 0x80000000u);
    keys[e] = (a.f != a.f ? 0xffffffffu : key) ^ FLIPPED;
  }
  unsigned counts[LEADING] = {0};
  for (long e = 0; e < EXTENT; e++) counts[keys[e] >> 21]++;
  long bin = LEADING - 1;
  for (long seen = counts[bin]; seen < K; seen += counts[bin]) bin--;
  const unsigned least = (unsigned)bin << 21;
  long count = 0;
  for (long e = 0; e < EXTENT; e++) {
    kept[count] = (unsigned)e;
    count += keys[e] >= least;
  }
  for (int shift = 0; shift < 32; shift += 8) {
    unsigned starts[DIGIT] = {0};
    for (long i = 0; i < count; i++) starts[255 - (keys[kept[i]] >> shift & 255)]++;
    unsigned all = 0;
    for (int d = 0; d < DIGIT; d++) {
      const unsigned own = starts[d];
      starts[d] = all, all += own;
    }
    for (long i = 0; i < count; i++)
      other[starts[255 - (keys[kept[i]] >> shift & 255)]++] = kept[i];
    unsigned *turned = kept;
    kept = other, other = turned;
  }
  for (long k = 0; k < K; k++) best[k] = kept[k];
}
"#;

/// The best `K` of each row, in order; of equal ones the first. A few are kept sorted while the row
/// is read; many floats are chosen first and then sorted.
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
    let is_largest = p.ctx.int_or("largest", 1)? != 0;
    let better = match is_largest {
        true => "(a) > (b) || ((a) != (a) && (b) == (b))",
        false => "(a) < (b) || ((a) == (a) && (b) != (b))",
    };
    p.define("BETTER(a, b)", format!("({better})"));
    p.scratch_pointer("long", "best", k, 8);
    let is_long = k > FEW_OF_THE_BEST && x[axis] <= i64::from(u32::MAX);
    let choose = if is_long && p.dtype(0)? == squall_core::DType::F32 {
        p.table("best_of", BEST_OF.into());
        p.define("FLIPPED", if is_largest { "0u" } else { "0xffffffffu" });
        for name in ["keys", "kept", "other"] {
            p.scratch_pointer("unsigned", name, x[axis] + 1, 4);
        }
        "    best_of(v, INNER, keys, kept, other, best);\n"
    } else {
        ranks::INSERTED
    };
    let text = ranks::over_lines(p, choose);
    p.body(&text);
    let lines = product(&x[..axis]) * product(&x[axis + 1..]);
    ranks::on_device(p, [lines, x[axis], k])
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

/// `heap_down` lets the box at `at` sink in a heap of boxes, whose first has the largest score (of
/// equal scores the first box). `is_covered` says whether a chosen box and another have more than a
/// share of their union in common. The numbers of boxes lie one kind behind the other: lower and
/// higher ends along both axes, and the area.
const BOXES: &str = r#"static inline int is_ahead(const float *s, long a, long b) {
  return s[a] > s[b] || (s[a] == s[b] && a < b) || (s[b] != s[b] && (s[a] == s[a] || a < b));
}
static void heap_down(const float *s, long *heap, long at, long count) {
  const long moved = heap[at];
  for (;;) {
    long child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && is_ahead(s, heap[child + 1], heap[child])) child++;
    if (!is_ahead(s, heap[child], moved)) break;
    heap[at] = heap[child], at = child;
  }
  heap[at] = moved;
}
static int is_covered(const float *chosen, long room, long count, const float *own, float most) {
  for (long from = 0; from < count; from += 32) {
    const long end = count - from < 32 ? count : from + 32;
    int any = 0;
    for (long k = from; k < end; k++) {
      const float *c = chosen + k;
      const float y = own[2] < c[2 * room] ? own[2] : c[2 * room];
      const float x = own[3] < c[3 * room] ? own[3] : c[3 * room];
      const float v = y - (own[0] > c[0] ? own[0] : c[0]);
      const float w = x - (own[1] > c[room] ? own[1] : c[room]);
      const float area = c[4 * room], both = v * w, share = both / (own[4] + area - both);
      const int is = v > 0 && w > 0 && area > 0 && own[4] > 0;
      any |= (is ? share : 0.0f) > most;
    }
    if (any) return 1;
  }
  return 0;
}
"#;

/// Boxes are taken by their scores, the largest first, from a heap; one that no chosen box overlaps
/// too much is chosen, until there are enough.
fn suppress(p: &mut Program) -> Result<(), String> {
    only(p, &["center_point_box"])?;
    let (scores, most) = (p.shape(1)?, p.out()?[0]);
    let ends = match p.ctx.int_or("center_point_box", 0)? {
        // Widths and heights around middles, the horizontal first.
        1 => {
            "e[0] = b4[0] - b4[2] / 2, e[1] = b4[1] - b4[3] / 2, e[2] = b4[0] + b4[2] / 2, e[3] = \
             b4[1] + b4[3] / 2;"
        }
        _ => {
            "e[0] = fminf(b4[0], b4[2]), e[1] = fminf(b4[1], b4[3]), e[2] = fmaxf(b4[0], b4[2]), \
             e[3] = fmaxf(b4[1], b4[3]);"
        }
    };
    for (name, value) in
        [("BATCH", scores[0]), ("CLASSES", scores[1]), ("BOXES", scores[2]), ("MOST", most)]
    {
        p.int(name, value);
    }
    let room = scores[2].min(most.max(1));
    p.int("ROOM", room);
    p.table("is_covered", BOXES.into());
    p.scratch_pointer("long", "heap", scores[2], 8);
    p.scratch_pointer("float", "chosen", 5 * room, 4);
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
    long left = 0, taken = 0;
    for (long i = 0; i < BOXES; i++) {{
      heap[left] = i;
      left += {over};
    }}
    for (long at = left / 2; at-- > 0;) heap_down(s, heap, at, left);
    while (left > 0 && taken < (long){each} && count < MOST) {{
      const long best = heap[0];
      heap[0] = heap[--left];
      heap_down(s, heap, 0, left);
      const float *b4 = box + best * 4;
      float e[5];
      {ends}
      e[4] = (e[2] - e[0]) * (e[3] - e[1]);
      if (is_covered(chosen, ROOM, taken, e, {iou})) continue;
      for (int k = 0; k < 5; k++) chosen[k * ROOM + taken] = e[k];
      taken++;
      y0[count * 3] = b, y0[count * 3 + 1] = c, y0[count * 3 + 2] = best, count++;
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
