//! Plans over a range of lengths. Input: the text of a host plan in which some numbers are
//! `$K`, with a formula for each K and the symbols over which the formulas are; output: the host
//! plan of given extents. docs/plan-format.md describes the text, which exported libraries hold
//! and `host/varying.c` reads.

mod formula;

pub use formula::{Formula, MOST_WORDS};

use crate::plan::{HostPlan, HostPlanError};
use std::fmt::{self, Display, Formatter, Write as _};

/// The first line of the text.
const HEAD: &str = "squall varying 1";
/// The most symbols of a plan.
pub const MOST_SYMBOLS: usize = 8;

/// The largest extent of a range.
const LARGEST_EXTENT: i64 = 1 << 31;

/// A dimension whose extent each call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name in the model.
    pub name: String,
    /// The least extent.
    pub least: i64,
    /// The largest.
    pub most: i64,
    /// Extents are multiples of this.
    pub step: i64,
}

impl Symbol {
    /// The least extent that is a multiple of the step.
    pub fn first(&self) -> i64 {
        (self.least + self.step - 1) / self.step * self.step
    }

    /// The largest that is one.
    pub fn last(&self) -> i64 {
        self.most / self.step * self.step
    }

    /// Reads a range as users write it: `1..512` or `64..2048:64`.
    pub fn parse(name: &str, text: &str) -> Result<Symbol, String> {
        let fail = || format!("`{text}` is no range; write LEAST..MOST or LEAST..MOST:MULTIPLE");
        let (least, rest) = text.split_once("..").ok_or_else(fail)?;
        let (most, step) = rest.split_once(':').unwrap_or((rest, "1"));
        let number = |t: &str| t.trim().parse::<i64>().map_err(|_| fail());
        let (least, most, step) = (number(least)?, number(most)?, number(step)?);
        let symbol = Symbol { name: name.into(), least, most, step };
        if least < 1 || step < 1 || most > LARGEST_EXTENT || symbol.first() > symbol.last() {
            return Err(format!(
                "`{text}` holds no extent: ranges begin at 1 or above, end at {LARGEST_EXTENT} or \
                 below, and hold a multiple of the number behind `:`"
            ));
        }
        Ok(symbol)
    }

    /// Whether an extent is one of the symbol's.
    pub fn holds(&self, extent: i64) -> bool {
        (self.least..=self.most).contains(&extent) && extent % self.step.max(1) == 0
    }
}

impl Display for Symbol {
    /// The range as users write it: `1..512` or `64..2048:64`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.least, self.most)?;
        if self.step > 1 { write!(f, ":{}", self.step) } else { Ok(()) }
    }
}

/// A host plan for a range of extents.
#[derive(Clone, Debug, PartialEq)]
pub struct VaryingPlan {
    /// The symbols, which formulas name by number.
    pub symbols: Vec<Symbol>,
    /// The formula of each `$K` of the text.
    pub values: Vec<Formula>,
    /// The plan's text, with `$K` in the place of numbers that vary, and `$$` for a `$`.
    pub text: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaryingError {
    /// The text is not one of a plan over a range.
    #[error("line {0} of the plan over a range cannot be read")]
    Line(usize),
    /// An extent is outside.
    #[error("{name} is {extent}; it may be {symbol}")]
    Outside {
        /// The symbol's name.
        name: String,
        /// The extent.
        extent: i64,
        /// The range.
        symbol: String,
    },
    /// A formula has no value there.
    #[error("the formula of ${0} has no value at these extents")]
    Formula(usize),
    /// The plan of these extents does not fit together.
    #[error(transparent)]
    Plan(#[from] HostPlanError),
}

impl VaryingPlan {
    /// The plan's text at some extents, one a symbol.
    pub fn text_at(&self, extents: &[i64]) -> Result<String, VaryingError> {
        for (s, e) in self.symbols.iter().zip(extents) {
            if !s.holds(*e) {
                let (name, symbol) = (s.name.clone(), s.to_string());
                return Err(VaryingError::Outside { name, extent: *e, symbol });
            }
        }
        let mut values = Vec::new();
        for (k, f) in self.values.iter().enumerate() {
            values.push(f.at(extents).ok_or(VaryingError::Formula(k))?);
        }
        let mut text = String::with_capacity(self.text.len());
        let mut rest = self.text.as_str();
        while let Some((before, behind)) = rest.split_once('$') {
            text.push_str(before);
            if let Some(behind) = behind.strip_prefix('$') {
                text.push('$');
                rest = behind;
                continue;
            }
            let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let number = behind[..end].parse().unwrap_or(usize::MAX);
            let value = values.get(number).ok_or(VaryingError::Formula(number))?;
            let _ = write!(text, "{value}");
            rest = &behind[end..];
        }
        text.push_str(rest);
        Ok(text)
    }

    /// The plan at some extents, verified.
    pub fn at(&self, extents: &[i64]) -> Result<HostPlan, VaryingError> {
        Ok(HostPlan::parse(&self.text_at(extents)?)?)
    }

    /// Reads a text.
    pub fn parse(text: &str) -> Result<VaryingPlan, VaryingError> {
        let mut plan = VaryingPlan { symbols: Vec::new(), values: Vec::new(), text: String::new() };
        let (mut rest, mut line) = (text, 0);
        loop {
            let (first, more) = rest.split_once('\n').ok_or(VaryingError::Line(line + 1))?;
            line += 1;
            let read = match (line, first.split_once(' ')) {
                (1, _) => (first == HEAD).then_some(()),
                (_, Some(("symbol", s))) if plan.values.is_empty() => {
                    symbol(s).filter(|_| plan.symbols.len() < MOST_SYMBOLS).map(|s| {
                        plan.symbols.push(s);
                    })
                }
                (_, Some(("value", f))) => {
                    Formula::parse(f, plan.symbols.len()).map(|f| plan.values.push(f))
                }
                _ => {
                    plan.text = rest.into();
                    return Ok(plan);
                }
            };
            read.ok_or(VaryingError::Line(line))?;
            rest = more;
        }
    }
}

/// Reads `LEAST MOST STEP NAME`.
fn symbol(text: &str) -> Option<Symbol> {
    let mut words = text.splitn(4, ' ');
    let mut number = || words.next()?.parse::<i64>().ok().filter(|n| *n >= 0);
    let (least, most, step) = (number()?, number()?, number()?);
    let name = words.next()?.into();
    (step > 0 && least <= most).then_some(Symbol { name, least, most, step })
}

impl Display for VaryingPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for s in &self.symbols {
            writeln!(f, "symbol {} {} {} {}", s.least, s.most, s.step, s.name)?;
        }
        self.values.iter().try_for_each(|v| writeln!(f, "value {v}"))?;
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> VaryingPlan {
        let symbol = Symbol { name: "a length".into(), least: 2, most: 8, step: 2 };
        let value = Formula::symbol(0).times(Formula::number(3));
        let text = "squall plan 2\nbuffer data f $0 own file $$\n".into();
        VaryingPlan { symbols: vec![symbol], values: vec![value], text }
    }

    #[test]
    fn a_plan_over_a_range_prints_parses_and_has_a_plan_at_each_extent() {
        let p = plan();
        assert_eq!(VaryingPlan::parse(&p.to_string()), Ok(p.clone()));
        assert_eq!(p.at(&[4]).unwrap().buffers[0].count, 12);
        assert_eq!(p.at(&[4]).unwrap().buffers[0].file.as_deref(), Some("$"));
        let refused = p.at(&[10]).unwrap_err().to_string();
        assert_eq!(refused, "a length is 10; it may be 2..8:2");
        assert!(p.at(&[3]).is_err());
    }

    #[test]
    fn damaged_texts_are_refused() {
        let text = plan().to_string();
        for (from, to) in [("varying 1", "varying 2"), ("s0", "s1"), ("2 8 2", "9 8 2")] {
            assert!(VaryingPlan::parse(&text.replace(from, to)).is_err(), "{to}");
        }
        let beyond = VaryingPlan::parse(&text.replace("$0", "$1")).unwrap();
        assert_eq!(beyond.at(&[2]), Err(VaryingError::Formula(1)));
    }
}
