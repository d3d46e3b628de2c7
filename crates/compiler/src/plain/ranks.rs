//! The body of `TopK` for a GPU: C loops that find the best `K` of each line of elements by merging
//! sorted runs. Input: a program with the macros of `pick.rs` (`OUTER`, `EXTENT`, `INNER`, `K` and
//! `BETTER(a, b)`); output: its body for a GPU. Each element finds its own rank: first among the
//! elements of its run, then, loop by loop, among those of `WAYS` neighbouring runs, in which it
//! counts by bisection the elements ahead of it. Elements that have `K` ahead of them are left out,
//! and of equal ones the first is ahead.

use super::program::{Program, long};

/// Elements of a first run.
const RUN: i64 = 128;
/// Runs that a loop merges into one.
const WAYS: i64 = 4;
/// From `WHOLE_LINES` lines on, with at most `FEW` elements asked of each, a thread has a whole
/// line.
const WHOLE_LINES: i64 = 4 << 10;
const FEW: i64 = 16;

/// The sorted runs that a loop leaves: the number of runs of a line, the number of elements that
/// each run was made of, and the number of its best elements that are kept at most.
#[derive(Clone, Copy)]
struct Runs {
    count: i64,
    elements: i64,
    kept: i64,
}

/// Writes the body of `k` of `extent` elements of each of these lines.
pub(super) fn on_device(p: &mut Program, [lines, extent, k]: [i64; 3]) -> Result<(), String> {
    // Places of elements have 32 bits.
    if lines == 0 || k == 0 || extent > i64::from(i32::MAX) {
        return Ok(());
    }
    p.int("LINES", lines);
    if lines >= WHOLE_LINES && k <= FEW {
        let text = over_lines(p, &format!("    long best[K];\n{INSERTED}"));
        p.on_device(&text);
        return Ok(());
    }
    let runs = |elements: i64| Runs {
        count: (extent + elements - 1) / elements,
        elements,
        kept: elements.min(k),
    };
    let mut all = vec![runs(RUN)];
    while let Some(&last) = all.last().filter(|r| r.count > 1) {
        all.push(runs(last.elements * WAYS));
    }
    let bytes = p.dtype(0)?.bytes();
    let mut text = String::new();
    for side in 0..2 {
        // The last loop writes results.
        let used = all[..all.len() - 1].iter().skip(side).step_by(2);
        if let Some(room) = used.map(|r| lines * r.count * r.kept).max() {
            text += &p.device_pointer("T0", &format!("values{side}"), room, bytes);
            text += &p.device_pointer("int", &format!("places{side}"), room, 4);
        }
    }
    text += &format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long e = 0; e < EXTENT; e++)
  for (long i = 0; i < INNER; i++) {{
    const T0 *v = x0 + o * EXTENT * INNER + i;
    const long r = e / {RUN}, from = r * {RUN}, end = from + {RUN} < EXTENT ? from + {RUN} : EXTENT;
    const long line = o * INNER + i;
    const T0 a = v[e * INNER];
    long rank = 0;
    for (long j = from; j < end; j++) {{
      const T0 b = v[j * INNER];
      rank += BETTER(b, a) || (j < e && !BETTER(a, b));
    }}
{}  }}
",
        stored(p, &all, 0)
    );
    for level in 1..all.len() {
        text += &merged(p, &all, level);
    }
    p.on_device(&text);
    Ok(())
}

/// The text that puts element `a` of place `e` where it belongs in run `r` of a level: into memory
/// of the call, or into the results.
fn stored(p: &Program, all: &[Runs], level: usize) -> String {
    let Runs { count, kept, .. } = all[level];
    if level + 1 < all.len() {
        let side = level % 2;
        return format!(
            "    if (rank < {kept}) {{
      const long to = (line * {} + r) * {kept} + rank;
      values{side}[to] = a, places{side}[to] = (int)e;
    }}
",
            long(count)
        );
    }
    let mut text = String::from(
        "    (void)r;
    if (rank < K) {
      const long to = (line / INNER * K + rank) * INNER + line % INNER;
",
    );
    if p.result(0).is_some() {
        text += "      y0[to] = a;\n";
    }
    if p.result(1).is_some() {
        text += "      y1[to] = e;\n";
    }
    text + "      (void)to;\n    }\n"
}

/// The loops that merge the runs of the level before.
fn merged(p: &Program, all: &[Runs], level: usize) -> String {
    let Runs { count, elements, kept } = all[level - 1];
    let side = (level - 1) % 2;
    let [count, elements, kept] = [count, elements, kept].map(long);
    format!(
        "  for (long line = 0; line < LINES; line++)
  for (long q = 0; q < {count}; q++)
  for (long s = 0; s < {kept}; s++) {{
    if (q * {elements} + s >= EXTENT) continue;
    const T0 *values = values{side} + line * {count} * {kept};
    const T0 a = values[q * {kept} + s];
    const long e = places{side}[(line * {count} + q) * {kept} + s];
    const long r = q / {WAYS}, first = r * {WAYS};
    long rank = s;
    for (long n = first; n < first + {WAYS} && n < {count}; n++) {{
      if (n == q) continue;
      const T0 *other = values + n * {kept};
      long low = 0, high = EXTENT - n * {elements};
      if (high > {kept}) high = {kept};
      while (low < high) {{
        const long middle = (low + high) / 2;
        const T0 b = other[middle];
        if (BETTER(b, a) || (n < q && !BETTER(a, b))) low = middle + 1;
        else high = middle;
      }}
      rank += low;
    }}
{}  }}
",
        stored(p, all, level)
    )
}

/// C that keeps the best elements of a line in `best` while it reads the line: few of them.
pub(super) const INSERTED: &str = "    long count = 0;
    for (long e = 0; e < EXTENT; e++) {
      const T0 a = v[e * INNER];
      if (count == K && !BETTER(a, v[best[K - 1] * INNER])) continue;
      long at = count < K ? count++ : K - 1;
      for (; at > 0 && BETTER(a, v[best[at - 1] * INNER]); at--) best[at] = best[at - 1];
      best[at] = e;
    }
";

/// The loops over lines, of which C puts the places of the best elements into `best`.
pub(super) fn over_lines(p: &Program, choose: &str) -> String {
    let mut stores = String::new();
    if p.result(0).is_some() {
        stores += "      y0[(o * K + k) * INNER + i] = v[best[k] * INNER];\n";
    }
    if p.result(1).is_some() {
        stores += "      y1[(o * K + k) * INNER + i] = best[k];\n";
    }
    format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {{
    const T0 *v = x0 + o * EXTENT * INNER + i;
{choose}    for (long k = 0; k < K; k++) {{
{stores}    }}
  }}
"
    )
}
