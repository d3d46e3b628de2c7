//! Plain kernels over open extents (extents that only the run knows), by fitting: the kernel is
//! generated for several numbers in place of each open extent. Where the texts differ only in whole
//! numbers, and each number is `times * (a product of extents) + plus` in all of them, that
//! expression is printed in its place. A last text, for odd numbers, has to agree; a kernel that
//! does not fit is refused.
//!
//! Numbers that depend on an extent in steps, as the windows of a pooling do, are treated as
//! extents of their own (`steps.rs`). `calls.rs` calls this.

use super::super::{PlainSource, source};
use squall_core::graph::OperatorCall;
use squall_core::graph::infer::region::trial;
use std::fmt::Write as _;

/// The number of texts that are compared: three for fitting, and one that has to agree.
pub(super) const TRIALS: usize = 4;
/// The number of texts where numbers depend on extents in steps; the trial extents must differ in
/// their remainders.
pub(super) const MORE_TRIALS: usize = 14;

/// The number that stands for an open extent in a trial.
pub(super) fn number(k: usize, symbol: usize) -> i64 {
    match k {
        0..3 => trial(k, symbol),
        3 => 331 + 62 * symbol as i64,
        // A number that is constant up to here, such as the single window of a wide pooling, may
        // change beyond.
        4 => 4099 + 62 * symbol as i64,
        _ => {
            let mixed = (k as i64 * 7919 + (symbol as i64 + 1) * 104_729) * (k as i64 + 13);
            300 + (mixed / 5) % 397
        }
    }
}

/// The numbers of all open extents in a number of trials.
pub(super) fn numbers(symbols: usize, trials: usize) -> Vec<Vec<i64>> {
    (0..symbols).map(|s| (0..trials).map(|k| number(k, s)).collect()).collect()
}

/// A product of extents, times a number, plus a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub factors: Vec<usize>,
    pub times: i64,
    pub plus: i64,
}

impl Fit {
    fn at(&self, of: &[Vec<i64>], k: usize) -> i64 {
        self.times.saturating_mul(product(of, &self.factors, k)).saturating_add(self.plus)
    }

    /// The C expression over an array of the extents.
    pub fn text(&self, array: &str) -> String {
        let factors: String = self.factors.iter().map(|f| format!(" * {array}[{f}]")).collect();
        match self.plus {
            0 => format!("({}L{factors})", self.times),
            plus => format!("({}L{factors} + ({plus}L))", self.times),
        }
    }
}

fn product(of: &[Vec<i64>], factors: &[usize], k: usize) -> i64 {
    factors.iter().map(|f| of[*f][k]).fold(1, i64::saturating_mul)
}

/// The numbers `seen` in the trials as a form of extents, whose numbers in these trials are `of`.
pub(super) fn fit(seen: &[i64], of: &[Vec<i64>]) -> Option<Fit> {
    fits(seen, of).into_iter().next()
}

/// Trials in which all extents are multiples of 64.
const EVEN_TRIALS: usize = 3;

/// A room's place, or the bytes of all: the sum of the sizes of `rooms` rooms, each rounded up to
/// 64 bytes. It is fitted where nothing is rounded, and may be short of a trial's number by that
/// rounding alone: sizes that follow in steps look like others there. The closest one is taken.
fn fit_rooms(seen: &[i64], of: &[Vec<i64>], rooms: usize) -> Option<Fit> {
    let short = |f: &Fit| {
        let each = seen.iter().enumerate().map(|(k, n)| n.checked_sub(f.at(of, k)));
        let each: Option<Vec<i64>> = each.collect();
        let each = each?;
        let is_rounding = |short: &i64| (0..64 * rooms as i64).contains(short);
        each.iter().all(is_rounding).then(|| each.iter().sum::<i64>())
    };
    let all = fits(&seen[..EVEN_TRIALS], of);
    let all = all.into_iter().filter_map(|f| Some((short(&f)?, f)));
    all.min_by_key(|(short, _)| *short).map(|(_, f)| f)
}

/// All such forms, the simplest first.
fn fits(seen: &[i64], of: &[Vec<i64>]) -> Vec<Fit> {
    if seen.iter().all(|n| *n == seen[0]) {
        return vec![Fit { factors: Vec::new(), times: 0, plus: seen[0] }];
    }
    let symbols = of.len();
    let mut all: Vec<Vec<usize>> = (0..symbols).map(|s| vec![s]).collect();
    let mut last = all.clone();
    for _ in 1..4 {
        let longer = |m: &Vec<usize>| {
            let first = m.last().copied().unwrap_or(0);
            (first..symbols).map(|s| [&m[..], &[s]].concat()).collect::<Vec<_>>()
        };
        last = last.iter().flat_map(longer).collect();
        all.extend(last.iter().cloned());
    }
    let tried = |factors: Vec<usize>| {
        let a = product(of, &factors, 0);
        // Two trials in which the product differs say how it counts.
        let other = (1..seen.len()).find(|k| product(of, &factors, *k) != a)?;
        let b = product(of, &factors, other);
        let (rise, run) = (seen[0].checked_sub(seen[other])?, a.checked_sub(b)?);
        if rise == 0 || rise % run != 0 {
            return None;
        }
        let times = rise / run;
        let plus = seen[0].checked_sub(times.checked_mul(a)?)?;
        let fit = Fit { factors, times, plus };
        seen.iter().enumerate().all(|(k, n)| fit.at(of, k) == *n).then_some(fit)
    };
    let mut found: Vec<Fit> = all.into_iter().filter_map(tried).collect();
    found.sort_by_key(|f| (f.plus != 0, f.factors.len()));
    found
}

/// A kernel over open extents.
pub(super) struct Fitted {
    /// `int SYMBOL(data, outputs, prepared, workspace)`, whose last data are the extents.
    pub text: String,
    /// Bytes of memory during a call, as C over an array `e` of the extents.
    pub scratch: String,
}

/// Words of a text, and what lies between them.
fn words(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut list = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (i, c) in text.char_indices() {
        if i > start && is_word(c) != inside {
            list.push(&text[start..i]);
            start = i;
        }
        inside = is_word(c);
    }
    list.push(&text[start..]);
    list
}

fn whole(word: &str) -> Option<i64> {
    word.strip_suffix('L').unwrap_or(word).parse().ok()
}

/// A kernel for open extents: `call` gives a trial's call, `of` the numbers of the extents in each
/// trial.
pub(super) fn fitted(
    of: &[Vec<i64>],
    inputs: usize,
    call: &dyn Fn(usize) -> Result<OperatorCall, String>,
) -> Result<Fitted, String> {
    let mut made: Vec<PlainSource> = Vec::new();
    let trials = of.first().map_or(TRIALS, Vec::len);
    for k in 0..trials {
        let call = call(k)?;
        made.push(source(&call, "@PART_operator").map_err(|e| e.what)?);
    }
    let unfit = || "it is not written for extents that only the run knows".to_string();
    let all: Vec<Vec<&str>> = made.iter().map(|m| words(&m.text)).collect();
    if all.iter().any(|w| w.len() != all[0].len()) {
        return Err(unfit());
    }
    let mut text = String::from("static __thread const long *squall_e;\n");
    let mut rooms = 0;
    for i in 0..all[0].len() {
        let word: Vec<&str> = all.iter().map(|w| w[i]).collect();
        let is_room =
            i > 0 && all[0][i - 1].ends_with(" + ") && i > 1 && all[0][i - 2] == "scratch";
        rooms += usize::from(is_room);
        if word.iter().all(|w| *w == word[0]) && !is_room {
            text += word[0];
            continue;
        }
        let seen: Option<Vec<i64>> = word.iter().map(|w| whole(w)).collect();
        let seen = seen.ok_or_else(unfit)?;
        // Rooms begin at multiples of 64; their sizes are not rounded in the expression.
        let found = if is_room { fit_rooms(&seen, of, rooms) } else { fit(&seen, of) };
        let found = found.ok_or_else(unfit)?;
        let found = found.text("squall_e");
        let _ = match is_room {
            true => write!(text, "(({found} + 63) / 64 * 64 + 64L * {rooms})"),
            false => write!(text, "{found}"),
        };
    }
    let text: String = text.lines().map(table).collect();
    let scratch: Vec<i64> = made.iter().map(|m| m.scratch_bytes as i64).collect();
    let scratch = fit_rooms(&scratch, of, rooms + 1).ok_or_else(unfit)?.text("e");
    let text = text
        + &format!(
            "\nint @PART(const void *const *data, void *const *outputs, const void *prepared,\n    \
             void *workspace) {{\n  (void)prepared;\n  squall_e = data[{inputs}];\n  return \
             @PART_operator(data, outputs, workspace);\n}}\n"
        );
    Ok(Fitted { text, scratch: format!("({scratch} + 64L * {})", rooms + 2) })
}

/// A line; a table of numbers that the run knows becomes one where it is used.
fn table(line: &str) -> String {
    let made = line.strip_prefix("static const long ").filter(|l| l.contains("squall_e"));
    let parts = made.and_then(|l| l.strip_suffix("};")).and_then(|l| l.split_once("[] = {"));
    match parts {
        Some((name, list)) => format!("#define {name} ((const long[]){{{list}}})\n"),
        None => format!("{line}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of an extent, rounded up, is the extent itself by a number wherever that is even.
    #[test]
    fn rooms_whose_sizes_follow_in_steps_are_not_fitted_where_the_steps_do_not_show() {
        let n = numbers(1, MORE_TRIALS).remove(0);
        let half: Vec<i64> = n.iter().map(|n| (n + 1) / 2).collect();
        for size in [4, 60, 14_336] {
            let seen: Vec<i64> = half.iter().map(|h| (size * h + 63) / 64 * 64).collect();
            let fit = |of: &[Vec<i64>]| fit_rooms(&seen, of, 1).map(|f| f.text("e"));
            assert_eq!(fit(&[n.clone(), half.clone()]), Some(format!("({size}L * e[1])")));
            if size > 128 {
                assert_eq!(fit(std::slice::from_ref(&n)), None);
            }
        }
    }

    #[test]
    fn numbers_are_products_of_extents() {
        let of = |f: &dyn Fn(i64, i64) -> i64| {
            let seen: Vec<i64> = (0..TRIALS).map(|k| f(number(k, 0), number(k, 1))).collect();
            fit(&seen, &numbers(2, TRIALS)).map(|f| f.text("e"))
        };
        assert_eq!(of(&|n, _| n).as_deref(), Some("(1L * e[0])"));
        assert_eq!(of(&|n, m| 12 * n * m).as_deref(), Some("(12L * e[0] * e[1])"));
        assert_eq!(of(&|_, m| m * m - 3).as_deref(), Some("(1L * e[1] * e[1] + (-3L))"));
        assert_eq!(of(&|_, _| 7).as_deref(), Some("(0L + (7L))"));
        // A sum of two extents and a rounded number do not fit.
        assert_eq!(of(&|n, m| n + m), None);
        assert_eq!(of(&|n, _| (n + 15) / 16 * 16), None);
    }
}
