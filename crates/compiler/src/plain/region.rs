//! Plain kernels (untuned C for one ONNX operator) of operators that sample images at positions
//! between pixels: `GridSample`, `RoiAlign`, `MaxRoiPool` (regions of interest), and of `Col2Im`,
//! which adds columns up to an image. Input: a call at constant shapes; output: C. (Regions of
//! nodes with open extents are another thing, in `regions/`.) `mod.rs` collects the tables `OPS` of
//! all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use squall_core::graph::infer::{Window, spread};
use squall_core::text::shown;
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Col2Im", col2im),
    ("GridSample", grid_sample),
    ("MaxRoiPool", max_roi_pool),
    ("RoiAlign", roi_align),
];

/// The C function that reflects a coordinate into a range.
const REFLECT: &str = "static inline R reflect(R x, R low, R high) {
  const R range = high - low;
  if (!(range > 0)) return low;
  if (x < low) {
    const R d = low - x;
    const long n = (long)(d / range);
    const R r = d - (R)n * range;
    return n % 2 == 0 ? low + r : high - r;
  }
  if (x > high) {
    const R d = x - high;
    const long n = (long)(d / range);
    const R r = d - (R)n * range;
    return n % 2 == 0 ? high - r : low + r;
  }
  return x;
}
";

/// The samples of a bin along an axis: their number, and the range of those that may lie in the
/// image. A region of a billion pixels has as many samples, and all but few of them lie outside,
/// where they are 0.
const SAMPLES: &str = "typedef struct { long begin, end; } roi_span;
static inline long roi_count(R count) {
  return count > 0 && count < C(1e15) ? (long)count : 0;
}
static inline roi_span roi_span_of(R from, R step, long count, long extent) {
  roi_span all = {0, count < 0 ? 0 : count};
  if (!(step > 0)) return all;
  const double a = (-1.0 - (double)from) / (double)step;
  const double b = ((double)extent - (double)from) / (double)step;
  const double share = sizeof(R) == 4 ? 1e-6 : 2e-15;
  const double first = a - 2 - share * fabs(a), last = b + 2 + share * fabs(b);
  if (first > 0) all.begin = first < (double)all.end ? (long)first : all.end;
  if (last < (double)all.end) all.end = last > (double)all.begin ? (long)last : all.begin;
  return all;
}
";

/// `roi_samples`: the samples of a region along an axis that lie in the image, of one bin after the
/// other; 0 where they are more than there is room for.
const ROI_SAMPLES: &str =
    "static int roi_samples(R from, R size, long count, long extent, long bins,
                       long room, roi_sample *samples, long *ends) {
  long all = 0;
  for (long bin = 0; bin < bins; bin++) {
    const roi_span span = roi_span_of(from + C(bin) * size, size / C(count), count, extent);
    for (long i = span.begin; i < span.end; i++) {
      R v = from + C(bin) * size + (C(i) + C(0.5)) * size / C(count);
      if (!(v >= -1 && v <= C(extent))) continue;
      if (all == room) return 0;
      v = v < 0 ? 0 : v;
      long one = (long)v, two = one + 1;
      if (one >= extent - 1) one = two = extent - 1, v = C(one);
      const R later = v - C(one);
      roi_sample *s = samples + all++;
      s->one = (int)one, s->two = (int)two, s->first = 1 - later, s->second = later;
    }
    ends[bin] = all;
  }
  return 1;
}
";

const CUBIC: &str = "static inline void cubic(R x, R *w) {
  const R a = C(-0.75);
  w[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
  w[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
  w[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
  w[3] = ((a * (2 - x) - 5 * a) * (2 - x) + 8 * a) * (2 - x) - 4 * a;
}
";

/// How many pixels of an axis a point takes, and the text that finds the first and their weights.
fn taps(p: &Program) -> Result<(i64, &'static str), String> {
    let mode = p.ctx.text("mode", "linear")?;
    Ok(match mode {
        "bilinear" | "linear" => (2, "base = F(floor)(v); w[1] = v - base, w[0] = 1 - w[1];"),
        "nearest" => (1, "base = F(rint)(v); w[0] = 1;"),
        "bicubic" | "cubic" => (4, "base = F(floor)(v); cubic(v - base, w); base -= 1;"),
        other => return Err(format!("attribute `mode` is `{}`", shown(other))),
    })
}

/// The treatment of a sampling point beyond the image, and of each pixel that is read there.
fn padding(p: &Program) -> Result<(&'static str, &'static str), String> {
    let each_at_border = "c = q < 0 ? 0 : q > C(SIZE[a] - 1) ? SIZE[a] - 1 : (long)q;";
    Ok(match p.ctx.text("padding_mode", "zeros")? {
        "zeros" => ("", "if (q < 0 || q >= C(SIZE[a])) c = -1;"),
        // A cubic's pixels are brought inside one by one and its point stays, as PyTorch and
        // onnxruntime have it; the evaluator of the `onnx` package moves the point.
        "border" if p.ctx.text("mode", "linear")?.ends_with("cubic") => ("", each_at_border),
        "border" => (
            "v = v < low || v > high ? (v < 0 ? 0 : v > C(SIZE[a] - 1) ? C(SIZE[a] - 1) : v) : v;",
            each_at_border,
        ),
        "reflection" => (
            "v = reflect(v, low, high);",
            "c = (long)reflect(q, low, high); c = c < 0 ? 0 : c >= SIZE[a] ? SIZE[a] - 1 : c;",
        ),
        other => return Err(format!("attribute `padding_mode` is `{}`", shown(other))),
    })
}

/// The samples of images of two dimensions: `point` finds pixels and weights, once for all channels
/// and of some points at a time.
fn sampled_together(point: &str) -> String {
    format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long first = 0; first < POINTS; first += 64) {{
    const long count = POINTS - first < 64 ? POINTS - first : 64;
    int places[ALL][64];
    R weights[ALL][64];
    for (long n = 0; n < count; n++) {{
      const long i = first + n;
      long at[RANK][TAPS];
      R weight[RANK][TAPS];
      for (long a = 0; a < RANK; a++) {{
      {point}
      }}
      for (long t = 0; t < ALL; t++) {{
        const long y = at[0][t % TAPS], x = at[1][t / TAPS];
        places[t][n] = y < 0 || x < 0 ? -1 : (int)(y * STEP[0] + x);
        weights[t][n] = weight[0][t % TAPS] * weight[1][t / TAPS];
      }}
    }}
    for (long c = 0; c < CHANNELS; c++) {{
      const T0 *x = x0 + (b * CHANNELS + c) * IMAGE;
      Y0 *y = y0 + (b * CHANNELS + c) * POINTS + first;
      for (long n = 0; n < count; n++) {{
        R sum = 0;
        for (long t = 0; t < ALL; t++)
          if (places[t][n] >= 0) sum += weights[t][n] * x[places[t][n]];
        y[n] = sum;
      }}
    }}
  }}
"
    )
}

/// The samples on a GPU, where a thread makes up to `EACH` channels of one point.
fn sampled_by_threads(point: &str) -> String {
    format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long part = 0; part < PARTS; part++)
  for (long i = 0; i < POINTS; i++) {{
    long at[RANK][TAPS];
    R weight[RANK][TAPS];
    for (long a = 0; a < RANK; a++) {{
      {point}
    }}
    long places[ALL];
    R weights[ALL];
    for (long t = 0; t < ALL; t++) {{
      const long y = at[0][t % TAPS], x = at[1][t / TAPS];
      places[t] = y < 0 || x < 0 ? -1 : y * STEP[0] + x;
      weights[t] = weight[0][t % TAPS] * weight[1][t / TAPS];
    }}
    for (long c = part * EACH; c < (part + 1) * EACH && c < CHANNELS; c++) {{
      const T0 *x = x0 + (b * CHANNELS + c) * IMAGE;
      R sum = 0;
      for (long t = 0; t < ALL; t++)
        if (places[t] >= 0) sum += weights[t] * x[places[t]];
      y0[(b * CHANNELS + c) * POINTS + i] = sum;
    }}
  }}
"
    )
}

/// The samples of images of any dimensions, one point after the other.
fn sampled_one_by_one(point: &str) -> String {
    format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long i = 0; i < POINTS; i++) {{
    long at[RANK][TAPS];
    R weight[RANK][TAPS];
    for (long a = 0; a < RANK; a++) {{
      {point}
    }}
    for (long c = 0; c < CHANNELS; c++) {{
      const T0 *x = x0 + (b * CHANNELS + c) * IMAGE;
      R sum = 0;
      for (long t = 0; t < ALL; t++) {{
        long rest = t, place = 0;
        int inside = 1;
        R w = 1;
        for (long a = 0; a < RANK; a++, rest /= TAPS) {{
          const long k = rest % TAPS;
          w *= weight[a][k];
          if (at[a][k] < 0) inside = 0;
          place += at[a][k] * STEP[a];
        }}
        if (inside) sum += w * x[place];
      }}
      y0[(b * CHANNELS + c) * POINTS + i] = sum;
    }}
  }}
"
    )
}

fn grid_sample(p: &mut Program) -> Result<(), String> {
    only(p, &["align_corners", "mode", "padding_mode"])?;
    p.real0()?;
    p.table("reflect", REFLECT.into());
    p.table("cubic", CUBIC.into());
    let x = p.shape(0)?;
    let rank = x.len() - 2;
    let corners = p.ctx.int_or("align_corners", 0)? != 0;
    let ((taps, find), (whole, each)) = (taps(p)?, padding(p)?);
    p.int("RANK", rank as i64);
    p.int("TAPS", taps);
    p.int("ALL", taps.pow(rank as u32));
    p.int("BATCH", x[0]);
    p.int("CHANNELS", x[1]);
    p.ints("SIZE", &x[2..]);
    p.ints("STEP", &strides(&x[2..]));
    p.int("IMAGE", product(&x[2..]));
    p.int("POINTS", product(&p.out()?[2..]));
    let (place, low, high) = match corners {
        true => ("(g + 1) / 2 * C(SIZE[a] - 1)", "C(0)", "C(SIZE[a] - 1)"),
        false => ("((g + 1) * C(SIZE[a]) - 1) / 2", "C(-0.5)", "C(SIZE[a]) - C(0.5)"),
    };
    let point = format!(
        "const R g = x1[(b * POINTS + i) * RANK + (RANK - 1 - a)], low = {low}, high = {high};
      R v = {place}, base, *w = weight[a];
      (void)low, (void)high;
      if (!(v > C(-1e9) && v < C(1e9))) v = C(-1e9);
      {whole}
      {find}
      for (long t = 0; t < TAPS; t++) {{
        const R q = base + C(t);
        long c = (long)q;
        {each}
        at[a][t] = c;
      }}"
    );
    if rank == 2 {
        // Where there are points enough for all threads, each has several channels of one.
        let each = if product(p.out()?) >= 1 << 17 { 4 } else { 1 };
        p.int("EACH", each);
        p.int("PARTS", (x[1] + each - 1) / each);
        p.on_device(&sampled_by_threads(&point));
    }
    // Places of pixels are whole numbers of 32 bits.
    match rank == 2 && product(&x[2..]) <= i64::from(i32::MAX) {
        true => p.body(&sampled_together(&point)),
        false => p.body(&sampled_one_by_one(&point)),
    }
    Ok(())
}

const ROI_ALIGN: &[&str] = &[
    "coordinate_transformation_mode",
    "mode",
    "output_height",
    "output_width",
    "sampling_ratio",
    "spatial_scale",
];

/// Whether coordinates of regions count from the middles of pixels.
fn half_pixel(p: &Program) -> Result<bool, String> {
    let usual = if p.ctx.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    Ok(match p.ctx.text("coordinate_transformation_mode", usual)? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => {
            let other = shown(other);
            return Err(format!("attribute `coordinate_transformation_mode` is `{other}`"));
        }
    })
}

/// The step by which the four parts of a sample change `s`, and the result of `s`.
fn joined(p: &Program) -> Result<(&'static str, &'static str), String> {
    Ok(match p.ctx.text("mode", "avg")? {
        "avg" => {
            ("s += a + b + c + d;", "s / (rows > 0 && columns > 0 ? C(rows) * C(columns) : C(1))")
        }
        "max" => {
            ("R m = larger_r(larger_r(a, b), larger_r(c, d)); s = first ? m : larger_r(s, m);", "s")
        }
        other => return Err(format!("attribute `mode` is `{}`", shown(other))),
    })
}

/// The text that averages the samples of a region's bins for all channels, where the places and
/// weights of its samples fit into tables: rows of the image are added up for each row of bins, and
/// columns of those for each bin. A region with more samples goes on to the text behind.
fn averaged(p: &mut Program, x: &[i64], out: &[i64]) -> String {
    for (axis, extent, bins) in [("y", x[2], out[2]), ("x", x[3], out[3])] {
        let room = 4 * extent + 8 * bins;
        p.int(&format!("ROOM_{axis}"), room);
        p.scratch_pointer("roi_sample", &format!("sample_{axis}"), room, 24);
        p.scratch_pointer("long", &format!("end_{axis}"), bins, 8);
    }
    p.scratch_pointer("R", "row", x[3], 8);
    let sample = "typedef struct { int one, two; R first, second; } roi_sample;\n";
    p.table("roi_sample", sample.into());
    p.table("roi_samples", ROI_SAMPLES.into());
    "    if (roi_samples(top, high, rows, HEIGHT, ROWS, ROOM_y, sample_y, end_y) &&
        roi_samples(left, wide, columns, WIDTH, COLUMNS, ROOM_x, sample_x, end_x)) {
      const R all = rows > 0 && columns > 0 ? C(rows) * C(columns) : C(1);
      long low = WIDTH, last = -1;
      for (long j = 0; j < end_x[COLUMNS - 1]; j++) {
        low = sample_x[j].one < low ? sample_x[j].one : low;
        last = sample_x[j].two > last ? sample_x[j].two : last;
      }
      for (long ch = 0; ch < CHANNELS; ch++)
      for (long r = 0; r < ROWS; r++) {
        const T0 *image_x = x0 + (image * CHANNELS + ch) * HEIGHT * WIDTH;
        Y0 *y = y0 + ((n * CHANNELS + ch) * ROWS + r) * COLUMNS;
        for (long k = low; k <= last; k++) row[k] = 0;
        for (long i = r ? end_y[r - 1] : 0; i < end_y[r]; i++) {
          const T0 *a = image_x + sample_y[i].one * WIDTH, *b = image_x + sample_y[i].two * WIDTH;
          const R v = sample_y[i].first, u = sample_y[i].second;
          for (long k = low; k <= last; k++) row[k] += v * a[k] + u * b[k];
        }
        for (long q = 0; q < COLUMNS; q++) {
          R s = 0;
          for (long j = q ? end_x[q - 1] : 0; j < end_x[q]; j++) {
            const roi_sample *e = sample_x + j;
            s += e->first * row[e->one] + e->second * row[e->two];
          }
          y[q] = s / all;
        }
      }
      continue;
    }
"
    .into()
}

/// The text that makes a bin of a region by all of its samples: `step` adds a sample and `end` is
/// the result.
fn sample_by_sample(step: &str, end: &str) -> String {
    format!(
        "      const T0 *x = x0 + (image * CHANNELS + ch) * HEIGHT * WIDTH;
      R s = 0;
      int first = 1;
      const roi_span ys = roi_span_of(top + C(r) * high, high / C(rows), rows, HEIGHT);
      const roi_span xs = roi_span_of(left + C(q) * wide, wide / C(columns), columns, WIDTH);
      if ((ys.end - ys.begin < rows || xs.end - xs.begin < columns) && rows > 0 && columns > 0) {{
        const R a = 0, b = 0, c = 0, d = 0;
        {step}
        first = 0;
      }}
      for (long i = ys.begin; i < ys.end; i++)
      for (long j = xs.begin; j < xs.end; j++) {{
        R v = top + C(r) * high + (C(i) + C(0.5)) * high / C(rows);
        R u = left + C(q) * wide + (C(j) + C(0.5)) * wide / C(columns);
        R a = 0, b = 0, c = 0, d = 0;
        if (v >= -1 && v <= C(HEIGHT) && u >= -1 && u <= C(WIDTH)) {{
          v = v < 0 ? 0 : v, u = u < 0 ? 0 : u;
          long y1 = (long)v, x1 = (long)u, y2 = y1 + 1, x2 = x1 + 1;
          if (y1 >= HEIGHT - 1) y1 = y2 = HEIGHT - 1, v = C(y1);
          if (x1 >= WIDTH - 1) x1 = x2 = WIDTH - 1, u = C(x1);
          const R lv = v - C(y1), lu = u - C(x1);
          a = (1 - lv) * (1 - lu) * x[y1 * WIDTH + x1], b = (1 - lv) * lu * x[y1 * WIDTH + x2];
          c = lv * (1 - lu) * x[y2 * WIDTH + x1], d = lv * lu * x[y2 * WIDTH + x2];
        }}
        {step}
        first = 0;
      }}
      (void)first;
      y0[((n * CHANNELS + ch) * ROWS + r) * COLUMNS + q] = {end};
"
    )
}

/// The loops over the bins of a region.
const BINS: &str = "    for (long ch = 0; ch < CHANNELS; ch++)
    for (long r = 0; r < ROWS; r++)
    for (long q = 0; q < COLUMNS; q++)";

/// The text of a bin. Where its samples are few, it takes all of them without a search for those
/// inside of the image: samples outside add nothing there, too.
fn few_samples_first(bin: &str) -> String {
    let all = |bin: &str, span: &str, count: &str| {
        let head = format!("const roi_span {span} = ");
        let few = format!("roi_span {span} = {{0, {count}}};\n      if ({count} > 16) {span} = ");
        bin.replace(&head, &few)
    };
    all(&all(bin, "ys", "rows"), "xs", "columns")
}

fn roi_align(p: &mut Program) -> Result<(), String> {
    only(p, ROI_ALIGN)?;
    p.real0()?;
    let (x, out) = (p.shape(0)?, p.out()?);
    let half = half_pixel(p)?;
    let (step, end) = joined(p)?;
    let ratio = p.ctx.int_or("sampling_ratio", 0)?;
    let scale = p.ctx.float_or("spatial_scale", 1.0)?;
    p.float("SCALE", scale);
    p.float("SHIFT", if half { 0.5 } else { 0.0 });
    p.table("roi_span", SAMPLES.into());
    for (name, v) in [
        ("IMAGES", x[0]),
        ("CHANNELS", x[1]),
        ("HEIGHT", x[2]),
        ("WIDTH", x[3]),
        ("REGIONS", out[0]),
        ("ROWS", out[2]),
        ("COLUMNS", out[3]),
    ] {
        p.int(name, v);
    }
    let least = match half {
        true => "",
        false => "    if (w < 1) w = 1;\n    if (h < 1) h = 1;\n",
    };
    let count = |extent: &str, of: &str| match ratio > 0 {
        true => format!("{ratio}L"),
        // An extent that is NaN or too large has no samples.
        false => format!("roi_count(F(ceil)({extent} / C({of})))"),
    };
    let (rows, columns) = (count("h", "ROWS"), count("w", "COLUMNS"));
    let each = sample_by_sample(step, end);
    let tables = match p.ctx.text("mode", "avg")? {
        "avg" => averaged(p, x, out),
        _ => String::new(),
    };
    let region = format!(
        "    const T1 *roi = x1 + n * 4;
    const long image = (long)x2[n];
    if (image < 0 || image >= IMAGES) return 1;
    const R left = roi[0] * SCALE - SHIFT, top = roi[1] * SCALE - SHIFT;
    R w = roi[2] * SCALE - SHIFT - left, h = roi[3] * SCALE - SHIFT - top;
{least}    const R high = h / C(ROWS), wide = w / C(COLUMNS);
    const long rows = {rows}, columns = {columns};
"
    );
    p.body(&format!(
        "  for (long n = 0; n < REGIONS; n++) {{\n{region}{tables}{BINS} {{\n{each}    }}\n  }}\n"
    ));
    // On a GPU each bin is a thread's. A bin of few samples needs no search for those inside.
    let each = few_samples_first(&each);
    p.on_device(&format!("  for (long n = 0; n < REGIONS; n++)\n{BINS} {{\n{region}{each}  }}\n"));
    Ok(())
}

fn max_roi_pool(p: &mut Program) -> Result<(), String> {
    only(p, &["pooled_shape", "spatial_scale"])?;
    p.real0()?;
    let (x, out) = (p.shape(0)?, p.out()?);
    let scale = p.ctx.float_or("spatial_scale", 1.0)?;
    p.float("SCALE", scale);
    for (name, v) in [
        ("IMAGES", x[0]),
        ("CHANNELS", x[1]),
        ("HEIGHT", x[2]),
        ("WIDTH", x[3]),
        ("REGIONS", out[0]),
        ("ROWS", out[2]),
        ("COLUMNS", out[3]),
    ] {
        p.int(name, v);
    }
    let region = "    const T1 *roi = x1 + n * 5;
    const long image = (long)roi[0];
    if (image < 0 || image >= IMAGES) return 1;
    const long left = (long)F(round)(roi[1] * SCALE), top = (long)F(round)(roi[2] * SCALE);
    const long right = (long)F(round)(roi[3] * SCALE), end = (long)F(round)(roi[4] * SCALE);
    const long h = end - top + 1 > 1 ? end - top + 1 : 1;
    const long w = right - left + 1 > 1 ? right - left + 1 : 1;
";
    let bin = "      long y1 = r * h / ROWS + top, y2 = ((r + 1) * h + ROWS - 1) / ROWS + top;
      long u1 = q * w / COLUMNS + left, u2 = ((q + 1) * w + COLUMNS - 1) / COLUMNS + left;
      y1 = y1 < 0 ? 0 : y1, u1 = u1 < 0 ? 0 : u1;
      y2 = y2 > HEIGHT ? HEIGHT : y2, u2 = u2 > WIDTH ? WIDTH : u2;
      const T0 *x = x0 + (image * CHANNELS + ch) * HEIGHT * WIDTH;
      R s = y2 <= y1 || u2 <= u1 ? C(0) : -C(INFINITY);
      for (long i = y1; i < y2; i++)
        for (long j = u1; j < u2; j++) s = larger_r(x[i * WIDTH + j], s);
      y0[((n * CHANNELS + ch) * ROWS + r) * COLUMNS + q] = s;
";
    p.body(&format!(
        "  for (long n = 0; n < REGIONS; n++) {{\n{region}{BINS} {{\n{bin}    }}\n  }}\n"
    ));
    p.on_device(&format!("  for (long n = 0; n < REGIONS; n++)\n{BINS} {{\n{region}{bin}  }}\n"));
    Ok(())
}

fn col2im(p: &mut Program) -> Result<(), String> {
    only(p, &["dilations", "pads", "strides"])?;
    p.real0()?;
    let out = p.out()?;
    let image = &out[2..];
    let block = p.ctx.integers(2, "block_shape")?.ok_or("input 2 is missing")?;
    let w = spread(&p.ctx, image, block)?;
    p.int("PLANES", out[0] * out[1]);
    p.int("IMAGE", product(image));
    p.int("BLOCK", product(block));
    p.int("COLUMNS", product(&w.out));
    gathered_columns(p, image, block, &w);
    let (mut inner, mut tests) = (String::new(), Vec::new());
    for (i, e) in image.iter().enumerate() {
        let _ = writeln!(
            inner,
            "    const long c{i} = o{i} * {}L + k{i} * {}L - ({}L);",
            w.strides[i], w.dilations[i], w.before[i]
        );
        tests.push(format!("c{i} >= 0 && c{i} < {e}L"));
    }
    let _ = write!(
        inner,
        "    if ({}) y[{}] += x[({}) * COLUMNS + {}];",
        tests.join(" && "),
        offset("c", &strides(image)),
        offset("k", &strides(block)),
        offset("o", &strides(&w.out))
    );
    let text = loops("k", block, &loops("o", &w.out, &inner));
    p.body(&format!(
        "  for (long i = 0; i < M0; i++) y0[i] = 0;
  for (long n = 0; n < PLANES; n++) {{
  Y0 *y = y0 + n * IMAGE;
  const T0 *x = x0 + n * BLOCK * COLUMNS;
{text}  }}
"
    ));
    Ok(())
}

/// On a GPU a thread makes an element of the image: it adds up the elements of the columns that
/// belong there, in the order of a CPU.
fn gathered_columns(p: &mut Program, image: &[i64], block: &[i64], w: &Window) {
    let (mut inner, mut tests) = (String::new(), Vec::new());
    for i in 0..image.len() {
        let (step, dilation, before) = (w.strides[i], w.dilations[i], w.before[i]);
        let _ = writeln!(
            inner,
            "    const long u{i} = c{i} + ({before}L) - k{i} * {dilation}L, o{i} = u{i} / {step}L;"
        );
        tests.push(format!("u{i} >= 0 && u{i} % {step}L == 0 && o{i} < {}L", w.out[i]));
    }
    let _ = write!(
        inner,
        "    if ({}) s += x[({}) * COLUMNS + {}];",
        tests.join(" && "),
        offset("k", &strides(block)),
        offset("o", &strides(&w.out))
    );
    let body = format!(
        "    const T0 *x = x0 + n * BLOCK * COLUMNS;\n    R s = 0;\n{}    y0[n * IMAGE + {}] = s;",
        loops("k", block, &inner),
        offset("c", &strides(image))
    );
    let text = loops("c", image, &body);
    p.on_device(&format!("  for (long n = 0; n < PLANES; n++) {{\n{text}  }}\n"));
}
