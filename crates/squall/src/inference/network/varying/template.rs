//! The text that texts for several extents have in common. Input: the same text made at several
//! extents, in which numbers alone differ; output: a [`Template`], whose places are numbered by
//! how their numbers vary, and the series of each. Whole numbers in decimal count, also those
//! with C's `L`; digits in a longer word, such as a name, are a part of it.

use super::fit::Series;

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// The same at all extents.
    Text(String),
    /// The place of a number that varies: one of the template's series.
    Number(usize),
}

/// A text with places for numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// Its pieces in order.
    pub pieces: Vec<Piece>,
}

/// A word of a text: a number, or all between numbers.
enum Word<'a> {
    Text(&'a str),
    Number(i64, &'a str),
}

/// Splits a text into numbers and what lies between.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let mut end = 0;
        while end < self.0.len() {
            let rest = &self.0[end..];
            let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
            let word = &rest[..length];
            // C spells a long number with an L.
            let digits = word.strip_suffix('L').unwrap_or(word);
            let number = Some(digits).filter(|w| w.bytes().all(|b| b.is_ascii_digit()));
            match number.filter(|w| !w.is_empty()).and_then(|w| w.parse().ok()) {
                Some(n) if end == 0 => {
                    self.0 = &rest[length..];
                    return Some(Word::Number(n, &rest[..length]));
                }
                Some(_) => break,
                None if length > 0 => end += length,
                None => end += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(Word::Text(text))
    }
}

/// A text without its numbers: texts of equal skeletons have a template.
pub fn skeleton(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for word in Words(text) {
        match word {
            Word::Text(t) => all.push_str(t),
            Word::Number(..) => all.push('\u{1}'),
        }
    }
    all
}

/// The template of texts of equal skeletons, and the series of numbers of its places.
pub fn generalised(texts: &[&str]) -> Option<(Template, Vec<Series>)> {
    let mut all: Vec<Words<'_>> = texts.iter().map(|t| Words(t)).collect();
    let mut template = Template { pieces: Vec::new() };
    let mut series: Vec<Series> = Vec::new();
    let mut text = String::new();
    loop {
        let mut words = Vec::new();
        for w in &mut all {
            words.push(w.next());
        }
        let Some(first) = words.first()?.as_ref() else {
            if words.iter().any(Option::is_some) {
                return None;
            }
            break;
        };
        match first {
            Word::Text(t) => {
                let is_same = |w: &Option<Word<'_>>| matches!(w, Some(Word::Text(o)) if o == t);
                if !words.iter().all(is_same) {
                    return None;
                }
                text.push_str(t);
            }
            Word::Number(n, digits) => {
                let number = |w: &Option<Word<'_>>| match w {
                    Some(Word::Number(n, _)) => Some(*n),
                    _ => None,
                };
                let own: Series = words.iter().map(number).collect::<Option<_>>()?;
                if own.iter().all(|o| o == n) {
                    text.push_str(digits);
                    continue;
                }
                if !text.is_empty() {
                    template.pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                let known = series.iter().position(|s| *s == own);
                template.pieces.push(Piece::Number(known.unwrap_or(series.len())));
                if known.is_none() {
                    series.push(own);
                }
            }
        }
    }
    if !text.is_empty() {
        template.pieces.push(Piece::Text(text));
    }
    Some((template, series))
}

impl Template {
    /// The text with something in the place of each number.
    pub fn with(&self, number: &dyn Fn(usize) -> String) -> String {
        let piece = |p: &Piece| match p {
            Piece::Text(t) => t.clone(),
            Piece::Number(n) => number(*n),
        };
        self.pieces.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_vary_are_places_and_equal_series_are_one() {
        let text = |n: i64| format!("for m0_ < {n}: t4[16 + {n}*m0_] = {}.5 {}", 3, 2 * n);
        let texts = [text(5), text(7), text(11)];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (template, series) = generalised(&texts).unwrap();
        assert_eq!(series, [vec![5, 7, 11], vec![10, 14, 22]]);
        let shown = template.with(&|n| format!("<{n}>"));
        assert_eq!(shown, "for m0_ < <0>: t4[16 + <0>*m0_] = 3.5 <1>");
        for (i, t) in texts.iter().enumerate() {
            assert_eq!(template.with(&|n| series[n][i].to_string()), *t);
        }
    }

    #[test]
    fn texts_of_other_words_have_no_template() {
        assert_eq!(generalised(&["a 1 b", "a 1 c"]), None);
        assert_eq!(generalised(&["a 1", "a 1 2"]), None);
        assert_eq!(generalised(&["a1", "a2"]), None);
        assert_ne!(skeleton("a 1.5"), skeleton("a 2.5"));
        assert_eq!(skeleton("a 1 5L"), skeleton("a 2 77L"));
    }
}
