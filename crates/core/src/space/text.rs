//! A configuration's text: pairs `knob=value` between commas, such as `tile_k=32,vec=16`. A comma
//! within a value stands behind a backslash, so that one text names one configuration whatever its
//! values are. `escaped` writes a value, and `pieces` and `pairs` take a text apart; records,
//! reports and predictors carry configurations in this form.

use std::borrow::Cow;

/// A value as it stands in a configuration's text. Backslashes count only where they stand before a
/// comma or at the end, and are doubled there.
pub fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(',') && !value.ends_with('\\') {
        return value.into();
    }
    let mut out = String::with_capacity(value.len() + 2);
    let mut run = 0;
    for c in value.chars() {
        if c == ',' {
            out.extend(std::iter::repeat_n('\\', run + 1));
        }
        run = if c == '\\' { run + 1 } else { 0 };
        out.push(c);
    }
    out.extend(std::iter::repeat_n('\\', run));
    out.into()
}

/// The value of an escaped text: the reverse of [`escaped`].
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains("\\,") && !text.ends_with('\\') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut run = 0;
    for c in text.chars() {
        if c == '\\' {
            run += 1;
            continue;
        }
        out.extend(std::iter::repeat_n('\\', if c == ',' { run / 2 } else { run }));
        run = 0;
        out.push(c);
    }
    // A backslash alone at the end is one that older texts wrote so.
    out.extend(std::iter::repeat_n('\\', run.div_ceil(2)));
    out.into()
}

/// The parts of a configuration's text between the commas that separate pairs.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let mut run = 0;
        for (at, c) in all.char_indices() {
            if c == ',' && run % 2 == 0 {
                rest = Some(&all[at + 1..]);
                return Some(&all[..at]);
            }
            run = if c == '\\' { run + 1 } else { 0 };
        }
        rest = None;
        Some(all)
    })
}

/// The knobs and values of a configuration's text; parts that are no pair are left out.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    pieces(text)
        .filter_map(|piece| piece.trim().split_once('='))
        .map(|(knob, value)| (knob, unescaped(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_from_a_text() {
        for word in
            ["", "a", "-O2,-g", ",", ",,", "\\", "a\\,b", "\\\\", "a\\b", "x,y\\", "k=1,m=2"]
        {
            let text = format!("flags={},tile=4", escaped(word));
            let found: Vec<(&str, Cow<str>)> = pairs(&text).collect();
            assert_eq!(found, [("flags", word.into()), ("tile", "4".into())], "{text}");
        }
        assert_eq!(pieces("a=1,b").collect::<Vec<_>>(), ["a=1", "b"]);
        assert_eq!(escaped("a\\b"), "a\\b", "texts of old stay as they were");
    }
}
