//! Prints warp instructions (`nest/warp.rs`) as calls of device functions on fragments: loads of
//! matrices from shared memory, products by tensor cores (`mma.sync`, `wgmma`), stores and
//! reductions. `cuda_prelude.rs` defines the functions. Methods of the printer for GPU threads.
//!
//! The layout across registers is that of `mma.sync`. Of a matrix of factors, thread `l` of a warp
//! holds the elements of rows `l / 4` and `l / 4 + 8`: 4 bytes from column byte `4 * (l % 4)` on,
//! and the same 16 bytes further. Of a matrix of sums it holds two neighbours at column `2 * (l %
//! 4)` of those rows, and the same 8 columns further.

use super::dialect::ProductForm;
use super::printer::{Printer, Value, c_name};
use crate::gcd;
use crate::nest::{
    Loop, Matrix, Mode, Scope, TileSlice, Warp, extents, lies_across, thread_elements,
};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::workload::{Reducer, flatten};
use std::f64::consts::{LN_2, LOG2_E};

/// The parts of a load into a matrix: see [`Warp::Load`].
#[derive(Clone, Copy)]
struct MatrixLoad<'w> {
    to: &'w Matrix,
    rows: &'w [(Var, i64)],
    first: &'w Affine,
    column: Var,
    columns: i64,
    from: Source,
    index: &'w [Affine],
}

impl Printer<'_> {
    /// The C text of a pointer to a matrix's registers.
    fn registers_of(&self, m: &Matrix) -> String {
        let buf = self.n.buffer(m.buffer);
        // The registers of each of a warp's 32 threads.
        let (r, c) = extents(self.n, m);
        let each = if buf.dtype == DType::F32 { r * c / 32 } else { 4 };
        let leading = &buf.shape[..buf.shape.len() - 2];
        format!(
            "{} + {}",
            c_name(&buf.name),
            self.affine(&self.fold(&flatten(&m.at, leading).scale(each)))
        )
    }

    /// Prints a warp instruction.
    pub(super) fn warp(&mut self, w: &Warp) {
        match w {
            Warp::Zero(m) => {
                let (r, c) = extents(self.n, m);
                let text = format!(
                    "for (int i = 0; i < {}; i++) ({})[i] = 0.0f;",
                    r * c / 32,
                    self.registers_of(m)
                );
                self.line(self.simt.words.unrolled);
                self.line(&text);
            }
            Warp::Load { to, rest, rows, first, column, columns, from, index } => {
                self.open("{");
                self.load_matrix(&MatrixLoad {
                    to,
                    rows,
                    first,
                    column: *column,
                    columns: *columns,
                    from: *from,
                    index,
                });
                self.simt.dealt.clear();
                let whole = self.registers_of(to);
                if let Some(rest) = rest {
                    let rest = self.registers_of(rest);
                    self.line(&format!("matrix_split({whole}, {rest});"));
                } else if self.n.buffer(*from).dtype != self.n.buffer(to.buffer).dtype {
                    self.line(&format!("matrix_round({whole});"));
                }
                self.close();
            }
            Warp::Multiply { to, a, b } => {
                for half in 0..2 {
                    let call = self.half_product(half, to, a, b);
                    self.line(&call);
                }
            }
            Warp::WarpgroupMultiply { to, rows, columns, a, b, replaces } => {
                self.warpgroup(*to, [(a, rows), (b, columns)], *replaces)
            }
            Warp::Store { from, row, column, to, index } => {
                self.store_matrix(from, *row, *column, *to, index)
            }
            Warp::Unpack { to, from } => {
                let each = thread_elements(self.n, from);
                self.copy_registers(each, &self.thread_part(to), &self.registers_of(from));
            }
            Warp::Pack { to, from } => self.pack(to, from),
            Warp::Reduce { op, buffer, lanes } => self.reduce(*op, *buffer, *lanes),
        }
    }

    /// A thread's elements of a matrix, in its local buffer.
    fn thread_part(&self, m: &Matrix) -> String {
        let buf = self.n.buffer(m.buffer);
        let (leading, own) = buf.shape.split_at(m.at.len());
        let at = self.fold(&flatten(&m.at, leading).scale(own.iter().product()));
        format!("{} + {}", c_name(&buf.name), self.affine(&at))
    }

    /// Copies `count` registers, which takes no instruction.
    fn copy_registers(&mut self, count: i64, to: &str, from: &str) {
        self.line(self.simt.words.unrolled);
        self.line(&format!("for (int i = 0; i < {count}; i++) ({to})[i] = ({from})[i];"));
    }

    /// Makes a matrix of what threads have of it: two neighbours of 16 bits are a register.
    fn pack(&mut self, to: &Matrix, from: &Matrix) {
        let dtype = self.n.buffer(to.buffer).dtype;
        let second = self.simt.second.contains(&to.buffer);
        let each = thread_elements(self.n, to);
        let (to, from) = (self.registers_of(to), self.thread_part(from));
        if dtype == DType::F32 {
            return self.copy_registers(each, &to, &from);
        }
        self.line(self.simt.words.unrolled);
        let pair = format!("pair_{}", self.element_type(dtype));
        // A first factor's registers go down its rows first, a second one's along its columns.
        let i = if second { "(i >> 1) + (i & 1) * 2" } else { "i" };
        self.line(&format!(
            "for (int i = 0; i < 4; i++) ({to})[{i}] = {pair}(({from})[2*i], ({from})[2*i + 1]);"
        ));
    }

    /// A power of e in a program that rounds what threads computed to 16 bits: the device's own
    /// instruction for powers of two is precise enough there, and `expf` takes four times as long.
    pub(super) fn power(&mut self, exponent: &Expr) -> Value {
        self.helper("powers");
        let of_two = match exponent {
            Expr::Binary(Binary::Mul, x, by) if **by == Expr::Const(LN_2) => Some(x),
            _ => None,
        };
        let text = match of_two {
            Some(x) => self.value(x).text,
            None => format!("{} * {}", self.value(exponent).text, self.constant(LOG2_E)),
        };
        Value::scalar(format!("power_of_two({text})"))
    }

    /// Combines what threads side by side have.
    fn reduce(&mut self, op: Reducer, buffer: Source, lanes: i64) {
        self.helper("lanes");
        let buf = self.n.buffer(buffer);
        let place = format!("{}[i]", c_name(&buf.name));
        let other = format!("of_lane({place}, mask)");
        let combined = self.combined(buffer, &place, Some(op), &other, 1);
        self.line(self.simt.words.unrolled);
        self.line(&format!("for (int i = 0; i < {}; i++)", buf.elements()));
        self.line(self.simt.words.unrolled);
        self.line(&format!("  for (int mask = 1; mask < {lanes}; mask *= 2) {combined}"));
    }

    /// The product with one half of a second factor.
    pub(super) fn half_product(&self, half: usize, to: &Matrix, a: &Matrix, b: &Matrix) -> String {
        self.helper("matrices");
        let name = self.n.buffer(a.buffer).dtype.name();
        let [c, a, b] = [to, a, b].map(|m| self.registers_of(m));
        let (which, rest) = [("left", ""), ("right", " + 4")][half];
        format!("{which}_{name}({c}{rest}, {a}, {b});")
    }

    /// Begins a product of a warpgroup: 16 columns of both factors an instruction.
    fn warpgroup(&mut self, to: Source, factors: [(&Matrix, &TileSlice); 2], replaces: bool) {
        let [(a, _), (b, _)] = factors;
        let is_held = self.n.buffer(a.buffer).scope == Scope::Fragment;
        self.open("{");
        for (name, (m, part)) in ["a", "b"].into_iter().zip(factors) {
            if self.n.buffer(m.buffer).scope == Scope::Fragment {
                let own = self.n.buffer(m.buffer).shape.len() - m.at.len();
                let rest = vec![Affine::constant(0); own - 2];
                let at = m.at.iter().cloned().chain(rest).collect();
                let held = self.registers_of(&Matrix { buffer: m.buffer, at });
                self.line(&format!("unsigned *{name} = {held};"));
                continue;
            }
            let buf = self.n.buffer(m.buffer);
            // Blocks of 64 rows that lie across take as much room as 64 rows.
            let row = part.first.scale(128);
            let lead = self.offset(
                m.buffer,
                &m.at
                    .iter()
                    .cloned()
                    .chain(vec![Affine::constant(0); buf.shape.len() - m.at.len()])
                    .collect::<Vec<_>>(),
            );
            let at = lead
                .scale(buf.dtype.bytes() as i64)
                .add(&self.fold(&row))
                .plus(self.simt.places.get(&m.buffer).copied().unwrap_or(0));
            let leading = if lies_across(self.n, m) { 512 } else { 1 };
            let text = format!(
                "const unsigned long long {name} = swizzled_rows((const char *)shared + {}, \
                 {leading});",
                self.affine(&at)
            );
            self.line(&text);
        }
        let sums = self.n.buffer(to);
        let (matrices, columns) = (sums.shape[0], sums.shape[2]);
        let (name, format) = (c_name(&sums.name), self.n.buffer(a.buffer).dtype.name());
        let across = [!is_held && lies_across(self.n, a), lies_across(self.n, b)];
        self.helper("swizzled");
        // Counted in 16 bytes: 16 columns, or 16 rows of 128 bytes where they lie across.
        let [step_a, step_b] = across.map(|across| if across { 128 } else { 2 });
        if is_held {
            // Writes of threads to these registers are ordered before the products that read them.
            self.line(self.simt.words.unrolled);
            self.line("for (int i = 0; i < 16; i++) factor_made(a[i]);");
            self.line(self.simt.words.unrolled);
            self.line(&format!(
                "for (int i = 0; i < {}; i++) product_done({name}[i]);",
                columns / 2
            ));
        }
        self.line("products_begin();");
        for k in 0..4 {
            let form = match (is_held, replaces && k == 0) {
                (true, _) => ProductForm::Held,
                (false, true) => ProductForm::Replacing,
                (false, false) => ProductForm::Adding,
            };
            self.used.borrow_mut().products.insert((format, columns, across, form));
            let word = form.word();
            for i in 0..matrices {
                let to = format!("{name} + {}", i * columns / 2);
                let from = if is_held { 4 * k } else { 512 * i + step_a * k };
                let [across_a, across_b] = across.map(i64::from);
                self.line(&format!(
                    "group_{word}{format}<{columns}, {across_a}, {across_b}>({to}, a + {from}, b \
                     + {});",
                    step_b * k
                ));
            }
        }
        self.line("products_commit();");
        self.close();
    }

    /// Waits for products. Where none is left, sums may not be touched earlier, as the C++ compiler
    /// could: nothing else tells it what writes them.
    pub(super) fn await_products(&mut self, last: u32) {
        self.line(&format!("products_await<{last}>();"));
        if last > 0 {
            return;
        }
        for b in self.simt.warpgroup_sums.clone() {
            let buf = self.n.buffer(b);
            self.line(self.simt.words.unrolled);
            self.line(&format!(
                "for (int i = 0; i < {}; i++) product_done({}[i]);",
                buf.elements() / 32,
                c_name(&buf.name)
            ));
        }
    }

    /// Declares the row variables at a count of rows, `first` and `and`, up to `most` behind it,
    /// which is not to pass `last`.
    fn row(&mut self, rows: &[(Var, i64)], first: &Affine, and: &str, most: i64, last: i64) {
        let first = self.fold(first);
        let reach =
            |t: &(Var, i64)| self.simt.ranges.get(&t.0).filter(|_| t.1 >= 0).map(|r| t.1 * (r - 1));
        let furthest: Option<i64> = first.terms().iter().map(reach).sum();
        let within = furthest.is_some_and(|f| f + first.offset() + most <= last);
        let count = format!("{} + {and}", self.affine(&first));
        self.line(&if within {
            format!("const int count = {count};")
        } else {
            format!("const int count = min({count}, {last});")
        });
        let loops: Vec<Loop> = rows
            .iter()
            .map(|&(var, extent)| Loop {
                var,
                extent,
                mode: Mode::Serial,
                start: None,
                body: Vec::new(),
            })
            .collect();
        self.number("count", &loops.iter().collect::<Vec<_>>());
        // Where one axis alone counts the rows, the thread's part of it can be told from the rest.
        if !within {
            return;
        }
        let long: Vec<&(Var, i64)> = rows.iter().filter(|r| r.1 > 1).collect();
        let (own, rest): (Vec<_>, Vec<_>) =
            first.terms().iter().copied().partition(|t| self.simt.fixed.contains(&t.0));
        let (own, rest) = (Affine::new(own, 0), Affine::new(rest, first.offset()));
        match long[..] {
            [row] => {
                self.simt
                    .rounds
                    .insert(row.0, rest.terms().iter().fold(rest.offset(), |g, t| gcd(g, t.1)));
                let [own, rest] = [own, rest].map(|a| self.affine(&a));
                self.simt.dealt.insert(row.0, [rest, format!("{own} + {and}")]);
            }
            [block, place] if place.1 == 64 => {
                self.dealt_blocks([block.0, place.0], &own, &rest, and)
            }
            _ => {}
        }
    }

    fn load_matrix(&mut self, m: &MatrixLoad<'_>) {
        let MatrixLoad { to, rows, first, column, columns, from, index } = *m;
        let dtype = self.n.buffer(to.buffer).dtype;
        let total: i64 = rows.iter().map(|r| r.1).product();
        // Elements that one lane's address stands for.
        let each = 16 / dtype.bytes() as i64;
        let k = self.var(column);
        // Which quarter of the matrix the registers hold: a first factor goes down its rows first.
        let second = self.simt.second.contains(&to.buffer);
        let off = self.offset(from, index);
        let innermost = rows.iter().rev().find(|r| r.1 > 1).copied();
        let whole = columns == extents(self.n, to).1;
        if whole && off.coefficient(column) == 1 && self.aligned(&off, column, each) {
            let (lane_row, lane_column) = match second {
                false => ("(warp_lane & 15)", format!("(warp_lane >> 4) * {each}")),
                true => (
                    "(warp_lane & 7) + (warp_lane >> 4) * 8",
                    format!("(warp_lane >> 3 & 1) * {each}"),
                ),
            };
            let before = self.out.len();
            self.row(rows, first, lane_row, 15, total - 1);
            self.line(&format!("const int {k} = {lane_column};"));
            return self.matrix("matrix", m, lane_column, before);
        }
        if let Some((v, extent)) = innermost
            && whole
            && dtype.is_half()
            && extent % 8 == 0
            && off.coefficient(v) == 1
            && self.aligned(&off, v, 8)
        {
            let (row, down) = if second {
                ("(warp_lane >> 4) * 8", "warp_lane & 15")
            } else {
                ("(warp_lane & 8)", "(warp_lane & 7) + (warp_lane >> 4) * 8")
            };
            let before = self.out.len();
            self.row(rows, first, row, 8, total - 8);
            self.line(&format!("const int {k} = {down};"));
            return self.matrix("matrix_transposed", m, down.into(), before);
        }
        self.load_elements(m, second, each);
    }

    /// Loads a matrix element by element, as the instruction would.
    fn load_elements(&mut self, m: &MatrixLoad<'_>, second: bool, each: i64) {
        let MatrixLoad { to, rows, first, column, columns, from, index } = *m;
        let dtype = self.n.buffer(to.buffer).dtype;
        let registers = self.registers_of(to);
        let total: i64 = rows.iter().map(|r| r.1).product();
        let whole = columns == extents(self.n, to).1;
        let k = self.var(column);
        self.line(self.simt.words.unrolled);
        self.open("for (int r = 0; r < 4; r++) {");
        let (down, across) = if second { ("(r >> 1)", "(r & 1)") } else { ("(r & 1)", "(r >> 1)") };
        self.row(rows, first, &format!("(warp_lane >> 2) + {down} * 8"), 15, total - 1);
        let per = if dtype.is_half() { 2 } else { 1 };
        let start = format!("(warp_lane & 3) * {per} + {across} * {each}");
        for i in 0..per {
            self.open("{");
            self.line(&format!("const int {k} = {start} + {i};"));
            let place = self.at(from, index, &self.offset(from, index));
            let text = if dtype.is_half() {
                format!("{place}.bits")
            } else {
                format!("__float_as_uint({place})")
            };
            let text = if whole { text } else { format!("({k} < {columns} ? {text} : 0u)") };
            self.line(&match i {
                0 => format!("({registers})[r] = {text};"),
                _ => format!("({registers})[r] |= (unsigned){text} << 16;"),
            });
            self.close();
        }
        self.close();
    }

    /// Loads a matrix from where the lanes' rows and columns say, which are declared from a byte of
    /// the text on; `lane` is a lane's column.
    fn matrix(&mut self, name: &str, m: &MatrixLoad<'_>, lane: String, declared: usize) {
        self.helper("matrices");
        let registers = self.registers_of(m.to);
        self.simt.dealt.insert(m.column, [String::new(), lane]);
        let place = self.kept(m.from, m.index);
        // An address that was worked out before the steps may need none of them.
        let mut variables = m.rows.iter().map(|r| r.0).chain([m.column]);
        if !variables.any(|v| place.contains(&self.var(v))) {
            self.out.truncate(declared);
        }
        self.line(&format!("{name}({registers}, {place});"));
    }

    fn store_matrix(&mut self, from: &Matrix, row: Var, column: Var, to: Source, index: &[Affine]) {
        let registers = self.registers_of(from);
        let off = self.offset(to, index);
        // The column is even.
        self.simt.multiple.insert(column, 2);
        let pairs = off.coefficient(column) == 1
            && self.aligned(&off, Var(u32::MAX), 2)
            && !self.n.buffer(to).dtype.is_half();
        // Four numbers of 16 bits are as wide as two of 32.
        self.simt.multiple.insert(column, 4);
        let half = self.n.buffer(to).dtype.is_half();
        let fours = half && off.coefficient(column) == 1 && self.aligned(&off, Var(u32::MAX), 4);
        self.simt.multiple.remove(&column);
        let (r, c) = (self.var(row), self.var(column));
        self.line(self.simt.words.unrolled);
        let (rows, columns) = extents(self.n, from);
        if fours && (rows, columns) == (16, 16) {
            self.open("for (int h = 0; h < 2; h++) {");
            self.line(&format!("const int {r} = (warp_lane >> 2) + h * 8;"));
            self.line(&format!("const int {c} = (warp_lane & 1) * 8 + (warp_lane >> 1 & 1) * 4;"));
            let place = self.at(to, index, &off);
            self.helper("fours");
            self.line(&format!(
                "*(uint2 *)&{place} = fours_{}({registers} + 2*h);",
                self.element_type(self.n.buffer(to).dtype)
            ));
            return self.close();
        }
        self.open(&format!("for (int h = 0; h < {}; h++) {{", rows * columns / 64));
        self.line(&format!("const int {r} = (warp_lane >> 2) + (h & 1) * 8;"));
        self.line(&format!("const int {c} = (warp_lane & 3) * 2 + (h >> 1) * 8;"));
        if pairs {
            let place = self.at(to, index, &off);
            self.line(&format!(
                "*(float2 *)&{place} = make_float2(({registers})[2*h], ({registers})[2*h + 1]);"
            ));
        } else {
            for i in 0..2 {
                let index: Vec<Affine> = index
                    .iter()
                    .map(|a| a.substitute(column, &Affine::new([(column, 1)], i)))
                    .collect();
                let place = self.at(to, &index, &self.offset(to, &index));
                self.line(&format!("{place} = ({registers})[2*h + {i}];"));
            }
        }
        self.close();
    }
}
