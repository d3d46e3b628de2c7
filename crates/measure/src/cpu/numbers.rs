//! Sources whose whole numbers stand apart. Plain loops for two sizes of one operator differ in
//! their extents and strides alone; with these in an array that the runner fills when it loads a
//! library, both are one text, which is compiled and linked once. Input: a kernel in C as
//! `squall_compiler` prints plain loops; output: the text with numbers in the array's places, and
//! the numbers. References of tasks are built in this way (`../local/mod.rs`).

use squall_core::{Bytes, KernelSource, Language};
use std::fmt::Write;

/// The symbol of every shared source, and the beginning of the names of its other functions.
const SYMBOL: &str = "squall_shared";

/// Smaller numbers stay in the text, where a compiler unrolls the loops that they bound.
const SMALLEST: u64 = 5;

/// Beyond this many, loading the numbers would take longer than compiling the text.
const MOST: usize = 4096;

/// Words that tell arithmetic whose meaning changes with the type of a literal, or places where
/// C wants a constant. Sources with one of them are left as they are.
const REFUSED: [&str; 14] = [
    "case", "enum", "static", "sizeof", "switch", "goto", "unsigned", "uint", "int8_t", "int16_t",
    "int32_t", "int64_t", "short", "struct",
];

/// A source that kernels of other sizes share, and the numbers that make it this kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSource {
    /// The source; it announces no sizes, because they differ from kernel to kernel.
    pub source: KernelSource,
    /// The values of its array `squall_shared_numbers`, each a `long`.
    pub numbers: Vec<u64>,
}

impl SharedSource {
    /// The source that plain loops share with those of other sizes; nothing where their text has
    /// parts whose meaning might change.
    pub fn of(kernel: &KernelSource) -> Option<SharedSource> {
        if kernel.language != Language::C || !kernel.launches.is_empty() {
            return None;
        }
        if !kernel.source.lines().next()?.ends_with(", made by Squall */") {
            return None;
        }
        let text = kernel.source.replace(&kernel.symbol, SYMBOL);
        let at = text.find(&format!("size_t {SYMBOL}_"))?;
        let (before, functions) = text.split_at(at);
        let mut apart = Apart { text: String::new(), numbers: Vec::new() };
        apart.functions(functions)?;
        let Apart { text, numbers } = apart;
        let count = numbers.len();
        if count == 0 || count > MOST {
            return None;
        }
        let source = format!(
            "{before}long {SYMBOL}_numbers[{count}];\n\
             size_t {SYMBOL}_number_count(void) {{ return {count}; }}\n\n{text}"
        );
        let (symbol, none) = (SYMBOL.into(), Bytes(0));
        let shared =
            KernelSource { source, symbol, prepared: none, workspace: none, ..kernel.clone() };
        Some(SharedSource { source: shared, numbers })
    }
}

/// A text that is being rewritten.
struct Apart {
    text: String,
    numbers: Vec<u64>,
}

impl Apart {
    /// Rewrites functions that begin and end at the start of a line.
    fn functions(&mut self, text: &str) -> Option<()> {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.is_empty() {
                self.text.push('\n');
                continue;
            }
            let (head, rest) = line.split_once('{')?;
            let _ = write!(self.text, "{head}{{");
            if rest.ends_with('}') {
                self.line(rest, true)?;
                self.text.push('\n');
                continue;
            }
            self.body(&mut lines)?;
        }
        Some(())
    }

    /// A body of several lines. Its numbers are read into constants where it begins: loops then
    /// need not ask whether a store changed them.
    fn body<'a>(&mut self, lines: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        let (outer, first) = (std::mem::take(&mut self.text), self.numbers.len());
        loop {
            let line = lines.next()?;
            if line == "}" {
                break;
            }
            match line.trim_start().starts_with("#pragma omp ") {
                true => self.text.push_str(line),
                false => self.line(line, false)?,
            }
            self.text.push('\n');
        }
        let body = std::mem::replace(&mut self.text, outer);
        self.text.push('\n');
        for i in first..self.numbers.len() {
            let _ = writeln!(self.text, "  const long number{i}_ = {SYMBOL}_numbers[{i}];");
        }
        self.text += &body;
        self.text.push_str("}\n");
        Some(())
    }

    /// Rewrites one line; `is_alone` is a function of its own.
    fn line(&mut self, line: &str, is_alone: bool) -> Option<()> {
        let refused = |c: char| matches!(c, '"' | '\'' | '#' | '~' | '\\');
        if line.contains(refused) || line.contains("//") || line.contains("/*") {
            return None;
        }
        if line.contains("<<") || line.contains(">>") {
            return None;
        }
        let bytes = line.as_bytes();
        let (mut at, mut brackets) = (0, 0);
        while let Some(&c) = bytes.get(at) {
            if !c.is_ascii() {
                return None;
            }
            if !is_of_word(c) {
                brackets += i32::from(c == b'[') - i32::from(c == b']');
                self.text.push(char::from(c));
                at += 1;
                continue;
            }
            let end = word_end(bytes, at);
            let word = &line[at..end];
            at = end;
            if REFUSED.iter().any(|r| word == *r || *r == "uint" && word.starts_with(r)) {
                return None;
            }
            match word.parse::<u64>() {
                Ok(n) if brackets == 0 && (SMALLEST..1 << 62).contains(&n) => {
                    let i = self.numbers.len();
                    let _ = match is_alone {
                        true => write!(self.text, "(size_t){SYMBOL}_numbers[{i}]"),
                        false => write!(self.text, "number{i}_"),
                    };
                    self.numbers.push(n);
                }
                _ => self.text.push_str(word),
            }
        }
        Some(())
    }
}

fn is_of_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'.'
}

/// The end of an identifier or of a number with its sign of an exponent.
fn word_end(bytes: &[u8], start: usize) -> usize {
    let is_number = bytes[start].is_ascii_digit() || bytes[start] == b'.';
    let is_hex = bytes[start..].starts_with(b"0x");
    let mut at = start;
    while let Some(&c) = bytes.get(at) {
        let is_exponent = at > start
            && is_number
            && matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P')
            && (!is_hex || matches!(bytes[at - 1], b'p' | b'P'));
        if !(is_of_word(c) || is_exponent && matches!(c, b'+' | b'-')) {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALED: &str = "/* scaled, made by Squall */
#include <stddef.h>

size_t SYMBOL_workspace_bytes(void) { return BYTES; }

int SYMBOL(const void *const *data, void *const *outputs) {
  const float *x = data[0];
  float *y = outputs[0];
#pragma omp parallel for num_threads(8)
  for (long i = 0; i < ROWS; i++) {
    y[0] = 3*i + SCALE * x[17] * ROWS.0;
  }
  return 0;
}
";

    fn kernel(rows: u64, scale: &str) -> KernelSource {
        let symbol = format!("squall_scaled_{rows}");
        KernelSource {
            language: Language::C,
            source: SCALED
                .replace("SYMBOL", &symbol)
                .replace("BYTES", &(8 * rows).to_string())
                .replace("ROWS", &rows.to_string())
                .replace("SCALE", scale),
            symbol,
            prepared: Bytes(0),
            workspace: Bytes(8 * rows),
            openmp: true,
            full_optimisation: false,
            flags: Vec::new(),
            launches: Vec::new(),
        }
    }

    /// Two sizes are one text; array places, small numbers, floats and pragmas stay.
    #[test]
    fn sizes_share_a_text() {
        let small = SharedSource::of(&kernel(40, "1e+7")).unwrap();
        assert_eq!(small.numbers, [320, 40]);
        let text = &small.source.source;
        for kept in ["num_threads(8)", "3*i + 1e+7 * x[17] * 40.0", "i < number1_"] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        assert!(text.contains("return (size_t)squall_shared_numbers[0];"), "{text}");
        let large = SharedSource::of(&kernel(4000, "1e+7")).unwrap();
        assert_eq!(large.numbers, [32000, 4000]);
        let other = large.source.source.replace("4000.0", "40.0");
        assert_eq!(*text, other);
    }

    /// A text in which the type of a literal could matter is left alone.
    #[test]
    fn arithmetic_of_other_types_is_refused() {
        for scale in ["(unsigned)7", "(1 << 12)", "sizeof(float)", "'a'", "(uint32_t)9"] {
            assert_eq!(SharedSource::of(&kernel(40, scale)), None, "{scale}");
        }
    }
}
