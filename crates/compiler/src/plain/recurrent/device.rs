//! The functions of `LSTM`, `GRU` and `RNN` on a GPU. Input: a call's extents and the texts that
//! its plain C has, too; output: the functions and launches of a [`Launched`]. One function
//! multiplies the inputs of many steps at once. Another one makes a step: its products with the
//! states and its gates, for both directions. It is launched for each step, so that a step waits
//! for the end of the launch before it. A `GRU` that resets states ahead of its last product has
//! one function more.
//!
//! In each function a warp, 32 threads that run together, makes the sums of one hidden unit for a
//! tile of rows. Its threads lie side by side along a sum, so that they read neighbours, and add
//! their parts by exchanges in the warp.

use super::{Names, Places, Way, added, given_state, last_bias, step};
use crate::plain::program::{DeviceLaunch, Launched, OF_WARP, Program};
use squall_core::graph::infer::Recurrent;
use std::fmt::Write as _;

/// Elements of the products of inputs that are kept ahead of the recurrence at most, 64 MiB, and
/// rows, of steps times the batch: as many as give all threads of a GPU work.
const MOST_AHEAD: i64 = 1 << 24;
const MOST_ROWS_AHEAD: i64 = 4096;

/// Launches of one call at most. A recurrence with more of them runs in one thread.
const MOST_LAUNCHES: i64 = 1 << 16;

/// Rows of a tile at most: the sums of four gates for eight rows are as many as a warp has threads.
const MOST_ROWS: i64 = 8;

/// Elements that a thread reads ahead of their products at most: as many as leave registers to the
/// sums.
const MOST_READ: i64 = 80;

/// The sums that a function makes: `gates` gates from number `first` on, for tiles of `rows` rows.
struct Tile {
    first: i64,
    gates: i64,
    rows: i64,
}

impl Tile {
    /// The sums of a warp, filled up to a power of two.
    fn sums(&self) -> i64 {
        ((self.gates * self.rows) as u64).next_power_of_two() as i64
    }

    /// How many threads of a warp have the same sum in the end.
    fn each(&self) -> i64 {
        32 / self.sums()
    }
}

/// The number of rows of a tile, where `rows` is the number of all rows.
fn tile_of(rows: i64) -> i64 {
    (rows.clamp(1, MOST_ROWS) as u64).next_power_of_two() as i64
}

/// Gives a program the functions of a call for a GPU, unless there would be too many launches.
pub(super) fn functions(
    p: &mut Program,
    r: &Recurrent,
    way: &Way,
    gates: i64,
) -> Result<(), String> {
    let of_step = r.batch.max(1).saturating_mul(r.directions * gates * r.hidden.max(1));
    let ahead = (MOST_AHEAD / of_step).min(MOST_ROWS_AHEAD / r.batch.max(1));
    let ahead = ahead.clamp(1, r.steps.max(1));
    let each = 1 + i64::from(way.resets_first);
    let all = r.steps.saturating_mul(each).saturating_add(r.steps / ahead + 1);
    if all > MOST_LAUNCHES {
        return Ok(());
    }
    p.int("STEPS_AHEAD", ahead);
    let states = r.directions * r.batch * r.hidden;
    // The states before a step and behind it take turns in two halves.
    let memory =
        [("states", 2 * states), ("cells", states), ("reset", states), ("ahead", ahead * of_step)];
    let pointers: String =
        memory.iter().map(|(name, count)| p.device_pointer("R", name, *count, 4)).collect();
    let head = format!("{OF_WARP}{pointers}");
    let is_empty = r.batch == 0 || r.hidden == 0;
    let tile = Tile { first: 0, gates, rows: tile_of(ahead.saturating_mul(r.batch)) };
    let rows = tile_of(r.batch);
    let first = format!("{head}{}", begin(p, r, is_empty));
    let mut functions = vec![match is_empty {
        true => first,
        false => first + &inputs(p, r, way, &tile)?,
    }];
    if !is_empty {
        if way.resets_first {
            let tile = Tile { first: 0, gates: 2, rows };
            functions.push(format!("{head}{}", reset_step(p, r, way, &tile)?));
        }
        let own = if way.resets_first { [2, 1] } else { [0, gates] };
        let tile = Tile { first: own[0], gates: own[1], rows };
        functions.push(format!("{head}{}", whole_step(p, r, way, &tile)?));
    }
    let units = |rows: i64, of: &Tile| {
        let warps = (rows.max(1) as u64).div_ceil(of.rows as u64);
        warps.saturating_mul((r.directions * r.hidden).max(1) as u64).saturating_mul(32)
    };
    let width = units(ahead.saturating_mul(r.batch), &tile);
    let tile = Tile { first: 0, gates, rows };
    let step_width = units(r.batch, &tile);
    let mut launches = vec![DeviceLaunch { function: 0, width, step: 0 }];
    for s in 0..if is_empty { 0 } else { r.steps } {
        if s > 0 && s % ahead == 0 {
            launches.push(DeviceLaunch { function: 0, width, step: s as i32 });
        }
        let own = 1..functions.len();
        launches.extend(own.map(|function| DeviceLaunch {
            function,
            width: step_width,
            step: s as i32,
        }));
    }
    p.launched_on_device(Launched { functions, launches });
    Ok(())
}

/// The length of row `b`. One that cannot be is 0: the first launch says that the call fails, and
/// the others must read nothing outside of the operands.
fn length(p: &Program) -> &'static str {
    match p.has(4) {
        true => "(x4[b] < 0 || x4[b] > STEPS ? 0L : (long)x4[b])",
        false => "STEPS",
    }
}

/// Whether direction `d` goes backwards, in C.
fn is_back(p: &Program, r: &Recurrent) -> Result<&'static str, String> {
    let is_reverse = p.ctx.text("direction", "forward")? == "reverse";
    Ok(if r.directions == 2 { "d == 1" } else { ["0", "1"][usize::from(is_reverse)] })
}

/// Stores the state `u` and the cell `v` as the last ones of row `b`.
fn ends(p: &Program, last: &str) -> String {
    let text = |i: usize, of: &str| match p.result(i) {
        Some(_) => format!("      y{i}[({last}) * HIDDEN + i] = {of};\n"),
        None => String::new(),
    };
    // Only an LSTM has a third result.
    text(1, "u") + &text(2, "v")
}

/// The part of the first launch ahead of the products: it checks lengths, and sets states up.
fn begin(p: &Program, r: &Recurrent, is_empty: bool) -> String {
    let mut text = String::from("  const long threads = 32 * warps;\n  (void)lane;\n");
    if p.has(4) && r.batch > 0 {
        text += "  for (long b = thread; step_ == 0 && b < BATCH; b += threads)
    if (x4[b] < 0 || x4[b] > STEPS) failed_(status_);\n";
    }
    if is_empty {
        return text;
    }
    let Places { last, .. } = Places::of(r, "d");
    let cell = if p.ctx.node.op == "LSTM" { given_state(p, 6, &last) } else { "0".into() };
    let _ = write!(
        text,
        "  for (long n = thread; step_ == 0 && n < DIRS * BATCH * HIDDEN; n += threads) {{
    const long i = n % HIDDEN, b = n / HIDDEN % BATCH, d = n / HIDDEN / BATCH;
    const R u = {}, v = {cell};
    (void)i, (void)b, (void)d;
    states[n] = u, cells[n] = v;
{}  }}\n",
        given_state(p, 5, &last),
        // Without steps the first states are the last ones.
        if r.steps == 0 { ends(p, &last) } else { String::new() },
    );
    text
}

/// The products of the inputs of steps from `step_` on with the weights of all gates, and the
/// biases: the gates of a unit lie side by side in `ahead`.
fn inputs(p: &mut Program, r: &Recurrent, way: &Way, tile: &Tile) -> Result<String, String> {
    let exchange = exchange(p, tile);
    let (rows, each) = (tile.rows, tile.each());
    let text = format!(
        "  const long left = STEPS - step_;
  const long rows = (left < STEPS_AHEAD ? left : STEPS_AHEAD) * BATCH;
  const long all = (rows + {rows} - 1) / {rows} * DIRS * HIDDEN;
  for (long task = warp; task < all; task += warps) {{
    const long i = task % HIDDEN, d = task / HIDDEN % DIRS, first = task / HIDDEN / DIRS * {rows};
    const R *from[{rows}];
#pragma unroll
    for (int a = 0; a < {rows}; a++) {{
      const long row = first + a < rows ? first + a : rows - 1;
      const long s = step_ + row / BATCH, b = row % BATCH, length = LENGTH(b);
      const long t = s >= length ? 0 : {back} ? length - 1 - s : s;
      from[a] = x0 + ({x}) * FEATURES;
    }}
    const R *w = x1 + (d * GATES * HIDDEN + i) * FEATURES;
{products}    const R sum = {exchange}(sums, lane);
    const int of = lane / {each}, q = of / {rows}, a = of % {rows};
    if (lane % {each} == 0 && q < GATES && first + a < rows) {{
      const long k = q * HIDDEN + i;
      ahead[(((first + a) * DIRS + d) * HIDDEN + i) * GATES + q] = {bias} + sum;
    }}
  }}\n",
        back = is_back(p, r)?,
        x = Places::of(r, "d").x,
        products = products(tile, r.features, "FEATURES", &["x0", "x1"]),
        bias = added(p, way, "d"),
    );
    Ok(text.replace("LENGTH(b)", length(p)))
}

/// The sums of a tile in this thread: of `depth` elements of the rows `from` and of weights `w`,
/// whose gates lie `HIDDEN` times `apart` elements apart, those at the thread's place in its warp.
/// Four elements are read at once where `bases`, the pointers to the operands, lie at multiples of
/// 16 bytes: a warp then waits for memory once for four times as many.
fn products(tile: &Tile, depth: i64, apart: &str, bases: &[&str]) -> String {
    let Tile { gates, rows, .. } = *tile;
    let mut text = format!("    R sums[{}] = {{0}};\n    int k = lane;\n", tile.sums());
    // Rows that lie at multiples of 16 bytes as the first one does.
    let parts = if depth % 4 == 0 { depth / 128 } else { 0 };
    if parts > 0 {
        let most = MOST_READ / 4 / (gates + rows);
        let reads = (0..=most.max(1).ilog2()).rev().map(|n| 1 << n).find(|n| parts % n == 0);
        let reads: i64 = reads.unwrap_or(1);
        let test: Vec<String> =
            bases.iter().map(|b| format!("(unsigned long long){b} % 16 == 0")).collect();
        let whole = parts * 128;
        let _ = write!(
            text,
            "    if ({test}) {{
      for (int n = 4 * lane; n < {whole}; n += 128 * {reads}) {{
        float4 in[{reads}][{rows}], weight[{reads}][{gates}];
#pragma unroll
        for (int c = 0; c < {reads}; c++) {{
#pragma unroll
          for (int a = 0; a < {rows}; a++) in[c][a] = *(const float4 *)(from[a] + n + 128 * c);
#pragma unroll
          for (int q = 0; q < {gates}; q++)
            weight[c][q] = *(const float4 *)(w + q * HIDDEN * {apart} + n + 128 * c);
        }}
#pragma unroll
        for (int c = 0; c < {reads}; c++) {{
#pragma unroll
          for (int q = 0; q < {gates}; q++) {{
#pragma unroll
            for (int a = 0; a < {rows}; a++)
              sums[q * {rows} + a] = mad_four(in[c][a], weight[c][q], sums[q * {rows} + a]);
          }}
        }}
      }}
      k = {whole} + lane;
    }}\n",
            test = test.join(" && "),
        );
    }
    let _ = write!(
        text,
        "    for (; k < {depth}; k += 32) {{
#pragma unroll
      for (int q = 0; q < {gates}; q++) {{
        const R weight = w[q * HIDDEN * {apart} + k];
#pragma unroll
        for (int a = 0; a < {rows}; a++)
          sums[q * {rows} + a] = madf(from[a][k], weight, sums[q * {rows} + a]);
      }}
    }}\n"
    );
    text
}

/// Defines a function that adds a tile's sums up over the threads of a warp, and gives its name;
/// others that functions share are defined, too. Of `n` sums, thread `l` gets number `l * n / 32`.
/// As long as a thread has several sums, it gives half of them to another thread and gets that
/// one's parts of the other half.
fn exchange(p: &mut Program, tile: &Tile) -> String {
    let mut left = tile.sums();
    let name = format!("warp_sums_{left}");
    let mut text = format!("static inline R {name}(R *sums, int lane) {{\n");
    let other = |of: &str, mask: i64| {
        format!("__uint_as_float(__shfl_xor_sync(0xffffffffu, __float_as_uint({of}), {mask}))")
    };
    for mask in [16, 8, 4, 2, 1] {
        if left == 1 {
            let _ = writeln!(text, "  sums[0] += {};", other("sums[0]", mask));
            continue;
        }
        left /= 2;
        let _ = writeln!(
            text,
            "#pragma unroll
  for (int n = 0; n < {left}; n++) {{
    const R kept = lane & {mask} ? sums[n + {left}] : sums[n];
    const R given = lane & {mask} ? sums[n] : sums[n + {left}];
    sums[n] = kept + {};
  }}",
            other("given", mask)
        );
    }
    text += "  (void)lane;\n  return sums[0];\n}\n";
    p.table(&name, text);
    let shared = "static inline R of_lane(R x, int lane) {
  return __uint_as_float(__shfl_sync(0xffffffffu, __float_as_uint(x), lane));
}\n";
    p.table("of_lane", shared.into());
    let four = "static inline R mad_four(float4 a, float4 b, R c) {
  return madf(a.w, b.w, madf(a.z, b.z, madf(a.y, b.y, madf(a.x, b.x, c))));
}\n";
    p.table("mad_four", four.into());
    name
}

/// The part of a step's functions that makes the sums of a tile: thread `a` of a warp has those of
/// row `first + a` of the batch, in `g`, and the state `u` of unit `i`. All threads of the warp
/// come here together, since they exchange values.
fn step_sums(p: &mut Program, way: &Way, hidden: i64, tile: &Tile) -> String {
    let exchange = exchange(p, tile);
    let Tile { first, rows, .. } = *tile;
    let is_after = way.has_last_gate && !way.resets_first;
    let mut gathered = String::new();
    for q in 0..tile.gates {
        let to = match is_after && q == 2 {
            true => "last_sum".to_string(),
            false => format!("g[{}]", first + q),
        };
        let at = format!("({} + lane % {rows}) * {}", q * rows, tile.each());
        let _ = writeln!(gathered, "    {to} += of_lane(sum, {at});");
    }
    format!(
        "  const R *old = states + (step_ & 1) * DIRS * BATCH * HIDDEN;
  R *begun = ahead + step_ % STEPS_AHEAD * BATCH * DIRS * HIDDEN * GATES;
  const long all = (BATCH + {rows} - 1) / {rows} * DIRS * HIDDEN;
  for (long task = warp; task < all; task += warps) {{
    const long i = task % HIDDEN, d = task / HIDDEN % DIRS, first = task / HIDDEN / DIRS * {rows};
    const int is_own = lane < {rows} && first + lane < BATCH;
    const long b = is_own ? first + lane : first, at = (d * BATCH + b) * HIDDEN + i;
    const long s = step_, length = LENGTH(b);
    R *sum0 = begun + ((b * DIRS + d) * HIDDEN + i) * GATES, u = old[at], g[GATES];
#pragma unroll
    for (int q = 0; q < GATES; q++) g[q] = sum0[q];
{last}    const R *from[{rows}];
#pragma unroll
    for (int a = 0; a < {rows}; a++)
      from[a] = {source} + (d * BATCH + (first + a < BATCH ? first + a : first)) * HIDDEN;
    const R *w = x2 + ((d * GATES + {first}) * HIDDEN + i) * HIDDEN;
{products}    const R sum = {exchange}(sums, lane);
{gathered}",
        last = match is_after {
            true => format!("    R last_sum = {};\n", last_bias(p, "d")),
            false => String::new(),
        },
        source = if first > 0 { "reset" } else { "old" },
        products = products(tile, hidden, "HIDDEN", &["x2"]),
    )
}

/// Text of each direction, by which direction `d` is.
fn by_direction(
    r: &Recurrent,
    of: impl Fn(i64) -> Result<String, String>,
) -> Result<String, String> {
    match r.directions {
        1 => Ok(format!("        {}\n", of(0)?)),
        _ => Ok(format!(
            "        if (d == 0) {{\n        {}\n        }} else {{\n        {}\n        }}\n",
            of(0)?,
            of(1)?
        )),
    }
}

/// The function of a `GRU` ahead of its last product: the sums of its update gate, which it leaves
/// with those of the inputs, and states times their reset gates.
fn reset_step(p: &mut Program, r: &Recurrent, way: &Way, tile: &Tile) -> Result<String, String> {
    let sums = step_sums(p, way, r.hidden, tile);
    let gate = |d: i64| Ok(format!("reset[at] = gate{d}_0(CLIP(g[1])) * u;"));
    let text = format!(
        "{sums}    if (is_own && s < length) {{
        sum0[0] = g[0];
{}    }}
  }}\n",
        by_direction(r, gate)?
    );
    Ok(text.replace("LENGTH(b)", length(p)))
}

/// The function that ends a step: the gates, the new states, and results. Rows that have ended keep
/// their states, and their results are 0.
fn whole_step(p: &mut Program, r: &Recurrent, way: &Way, tile: &Tile) -> Result<String, String> {
    let sums = step_sums(p, way, r.hidden, tile);
    let is_lstm = p.ctx.node.op == "LSTM";
    let names =
        Names { sum: &|gate| format!("g[{gate}]"), state: "u", cell: "v", last: "last_sum" };
    let Places { all, last, .. } = Places::of(r, "d");
    let store = match p.result(0) {
        Some(_) => format!("      y0[({all}) * HIDDEN + i] = s < length ? u : 0;\n"),
        None => String::new(),
    };
    let text = format!(
        "{sums}{cell}    if (is_own) {{
      if (s < length) {{
{step}      }}
      (states + (1 - (step_ & 1)) * DIRS * BATCH * HIDDEN)[at] = u;
{kept}      const long t = s < length && ({back}) ? length - 1 - s : s;
      (void)t;
{store}      if (s == STEPS - 1) {{
{ends}      }}
    }}
  }}\n",
        cell = if is_lstm { "    R v = cells[at];\n" } else { "" },
        step = by_direction(r, |d| step(p, way, d, &names))?,
        kept = if is_lstm { "      cells[at] = v;\n" } else { "" },
        back = is_back(p, r)?,
        ends = ends(p, &last),
    );
    Ok(text.replace("LENGTH(b)", length(p)))
}
