//! The C text of a kernel over a range of extents. Input: a [`Template`] of one kernel's texts at
//! several extents; output: a text in which numbers that vary are read from an array of longs that
//! stands behind the kernel's other data. Functions that the entry calls get the array as a
//! parameter. A text is refused where C wants a constant in such a place.

use super::template::Template;
use std::fmt::Write as _;

/// The array, and the beginning of the names of its numbers.
const ARRAY: &str = "squall_extents_";
const NUMBER: &str = "squall_extent_";

/// A function at the top of a text.
struct Function {
    /// Its first lines up to the brace that opens its body.
    head: String,
    name: String,
    /// The lines of its body, or one where it stands on one line.
    body: Vec<String>,
    is_on_one_line: bool,
    /// Whether a number that varies is in it or in a function that it calls.
    needs_numbers: bool,
}

/// A part of a text.
enum Part {
    Other(String),
    Function(Function),
}

/// The text of a kernel whose entry is `entry`, where the array is its data number `data`; `most`
/// has the numbers at the largest extents, which functions that tell sizes return and by which
/// arrays are declared.
pub fn varying_text(
    template: &Template,
    entry: &str,
    data: usize,
    most: &[i64],
) -> Result<String, String> {
    let text = template.with(&|n| format!("{NUMBER}{n}_"));
    let mut parts = parts_of(&text)?;
    let macros = macros_of(&parts);
    for part in &mut parts {
        let Part::Function(f) = part else { continue };
        // Memory of its own is made for the largest extents.
        let is_size = f.name.ends_with("_bytes");
        for line in f.body.iter_mut().filter(|l| is_size || declares_array(l, &macros)) {
            *line = with_values(&expanded(line, &macros), most);
        }
    }
    spread_needs(&mut parts, &macros);
    let needing: Vec<String> = functions(&parts)
        .filter(|f| f.needs_numbers && f.name != entry)
        .map(|f| f.name.clone())
        .collect();
    if needing.iter().any(|n| *n == format!("{entry}_prepare")) {
        return Err("its packed weights depend on the extent".into());
    }
    let mut out = String::with_capacity(text.len() + 1024);
    for part in &parts {
        match part {
            Part::Other(text) => {
                let is_macro = text.starts_with("#define ");
                if !is_macro && depends(text, &macros) {
                    return Err("a table or a type depends on the extent".into());
                }
                out.push_str(&passed(text, &needing, true)?);
            }
            Part::Function(f) => print(f, entry, data, &needing, &macros, &mut out)?,
        }
    }
    Ok(out)
}

fn functions(parts: &[Part]) -> impl Iterator<Item = &Function> {
    parts.iter().filter_map(|p| match p {
        Part::Function(f) => Some(f),
        Part::Other(_) => None,
    })
}

/// Splits a text as the printers write it: functions begin and end at the start of a line.
fn parts_of(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let is_code = line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !is_code {
            parts.push(Part::Other(format!("{line}\n")));
            continue;
        }
        let mut head = line.to_string();
        while !head.ends_with(['{', ';', '}']) {
            let more = lines.next().ok_or("a declaration has no end")?;
            let _ = write!(head, "\n{more}");
        }
        let opens = head.find('{');
        let is_function = opens.is_some_and(|at| head[..at].trim_end().ends_with(')'));
        if !is_function {
            // A type or a table goes on to the line that closes it.
            while opens.is_some() && !head.ends_with(';') {
                let more = lines.next().ok_or("a declaration has no end")?;
                let _ = write!(head, "\n{more}");
            }
            parts.push(Part::Other(head + "\n"));
            continue;
        }
        let at = opens.unwrap_or(head.len());
        let name = head.split('(').next().unwrap_or("");
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let name = name.rsplit(|c| !is_of_name(c)).next().unwrap_or("").to_string();
        let is_on_one_line = head.ends_with('}');
        let mut body = Vec::new();
        if is_on_one_line {
            body.push(head[at + 1..head.len() - 1].to_string());
        } else {
            for line in lines.by_ref() {
                if line == "}" {
                    break;
                }
                body.push(line.to_string());
            }
        }
        let head = head[..at].to_string();
        parts.push(Part::Function(Function {
            needs_numbers: false,
            head,
            name,
            body,
            is_on_one_line,
        }));
    }
    Ok(parts)
}

/// The words of a line, each with what stands before it.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.split(move |c| !is_of_word(c))
        .filter(|w| !w.is_empty())
        .map(move |w| (w.as_ptr() as usize - line.as_ptr() as usize, w))
}

fn has_word(line: &str, name: &str) -> bool {
    line.contains(name) && words(line).any(|(_, w)| w == name)
}

/// A macro in whose place numbers come that vary.
struct Macro {
    name: String,
    body: String,
}

/// The macros of a text that stand for numbers which vary, themselves or by other macros.
fn macros_of(parts: &[Part]) -> Vec<Macro> {
    let mut all: Vec<Macro> = Vec::new();
    for part in parts {
        let Part::Other(text) = part else { continue };
        let Some(rest) = text.strip_prefix("#define ") else { continue };
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, body) = rest.split_at(end);
        if depends(body, &all) {
            all.push(Macro { name: name.into(), body: body.trim().into() });
        }
    }
    all
}

/// Whether a text has a number that varies, or a macro for one.
fn depends(text: &str, macros: &[Macro]) -> bool {
    text.contains(NUMBER) || macros.iter().any(|m| has_word(text, &m.name))
}

/// A line with the bodies of macros in their places.
fn expanded(line: &str, macros: &[Macro]) -> String {
    let mut line = line.to_string();
    for m in macros.iter().rev() {
        let places: Vec<usize> =
            words(&line).filter(|(_, w)| *w == m.name).map(|(at, _)| at).collect();
        for at in places.into_iter().rev() {
            line.replace_range(at..at + m.name.len(), &format!("({})", m.body));
        }
    }
    line
}

/// Marks the functions that read numbers, and those that call one that does.
fn spread_needs(parts: &mut [Part], macros: &[Macro]) {
    for part in parts.iter_mut() {
        if let Part::Function(f) = part {
            f.needs_numbers = f.body.iter().any(|l| depends(l, macros));
        }
    }
    loop {
        let needing: Vec<String> =
            functions(parts).filter(|f| f.needs_numbers).map(|f| f.name.clone()).collect();
        let mut changed = false;
        for part in parts.iter_mut() {
            if let Part::Function(f) = part
                && !f.needs_numbers
                && f.body.iter().any(|l| needing.iter().any(|n| has_word(l, n)))
            {
                f.needs_numbers = true;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

/// A line with the numbers themselves.
fn with_values(line: &str, values: &[i64]) -> String {
    let mut line = line.to_string();
    for (n, v) in values.iter().enumerate() {
        line = line.replace(&format!("{NUMBER}{n}_"), &v.to_string());
    }
    line
}

/// A line whose calls of functions that need numbers hand the array on; declarations of such
/// functions have a parameter for it.
fn passed(line: &str, needing: &[String], is_declaration: bool) -> Result<String, String> {
    let mut line = line.to_string();
    for name in needing.iter().filter(|n| line.contains(n.as_str())).collect::<Vec<_>>() {
        let places: Vec<usize> =
            words(&line).filter(|(_, w)| w == name).map(|(at, _)| at).collect();
        for at in places.into_iter().rev() {
            let behind = at + name.len();
            if !line[behind..].starts_with('(') {
                return Err(format!("`{name}` is called by its address"));
            }
            let rest = &line[behind + 1..];
            let given = if is_declaration { format!("const long *{ARRAY}") } else { ARRAY.into() };
            let (end, rest) = match rest.strip_prefix("void)").filter(|_| is_declaration) {
                Some(rest) => (")", rest),
                None if rest.starts_with(')') => ("", rest),
                None => (", ", rest),
            };
            line = format!("{}({given}{end}{rest}", &line[..behind]);
        }
    }
    Ok(line)
}

/// Whether a line wants a constant where it has a number.
fn wants_constant(line: &str) -> bool {
    let line = line.trim_start();
    ["case ", "static ", "enum ", "#"].iter().any(|b| line.starts_with(b))
        && !line.starts_with("#pragma")
}

/// Whether a line declares an array of so many elements as a number says.
fn declares_array(line: &str, macros: &[Macro]) -> bool {
    let Some((before, behind)) = line.trim_start().split_once('[') else { return false };
    let is_plain = before.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ' ');
    let extent = behind.split(']').next().unwrap_or("");
    is_plain
        && before.trim().contains(' ')
        && !before.starts_with("return ")
        && depends(extent, macros)
}

fn print(
    f: &Function,
    entry: &str,
    data: usize,
    needing: &[String],
    macros: &[Macro],
    out: &mut String,
) -> Result<(), String> {
    let is_entry = f.name == entry;
    let mut head = f.head.clone();
    if f.needs_numbers && !is_entry {
        head = passed(&head, std::slice::from_ref(&f.name), true)?;
    }
    if depends(&head, macros) {
        return Err("a parameter depends on the extent".into());
    }
    let body: Vec<String> =
        f.body.iter().map(|l| passed(l, needing, false)).collect::<Result<_, String>>()?;
    if let Some(line) = body.iter().find(|l| depends(l, macros) && wants_constant(l)) {
        return Err(format!("C wants a constant here: {}", line.trim()));
    }
    let mut numbers: Vec<usize> = Vec::new();
    for line in &body {
        let line = expanded(line, macros);
        for (_, word) in words(&line).filter(|(_, w)| w.starts_with(NUMBER)) {
            let digits = word[NUMBER.len()..].trim_end_matches('_');
            numbers.extend(digits.parse::<usize>().ok());
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    out.push_str(&head);
    out.push('{');
    if is_entry && f.needs_numbers {
        let _ = write!(out, "\n  const long *{ARRAY} = (const long *)data[{data}];");
    }
    for n in numbers {
        let _ = write!(out, "\n  const long {NUMBER}{n}_ = {ARRAY}[{n}];");
    }
    if f.is_on_one_line {
        let _ = writeln!(out, "{}}}", body.concat());
        return Ok(());
    }
    out.push('\n');
    for line in &body {
        let _ = writeln!(out, "{line}");
    }
    out.push_str("}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::template::generalised;
    use super::*;

    fn varying(text: &dyn Fn(i64) -> String) -> Result<String, String> {
        let texts = [text(5), text(7), text(11)];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (template, series) = generalised(&texts).unwrap();
        let most: Vec<i64> = series.iter().map(|s| s[2]).collect();
        varying_text(&template, "k", 1, &most)
    }

    #[test]
    fn numbers_reach_the_functions_that_need_them() {
        let text = |n: i64| {
            format!(
                "static float add(float a) {{ return a + {n}; }}\nstatic void all(void) {{\n  \
                 add(1);\n}}\nsize_t k_workspace_bytes(void) {{ return {n}; }}\n\nint k(const void \
                 *const *data, void *const *outputs,\n    void *workspace) {{\n  for (long i = 0; \
                 i < {n}; i++) {{\n    all();\n  }}\n  return 0;\n}}\n"
            )
        };
        let made = varying(&text).unwrap();
        assert_eq!(
            made,
            "static float add(const long *squall_extents_, float a) {\n  const long \
             squall_extent_0_ = squall_extents_[0]; return a + squall_extent_0_; }\nstatic void \
             all(const long *squall_extents_) {\n  add(squall_extents_, 1);\n}\nsize_t \
             k_workspace_bytes(void) { return 11; }\n\nint k(const void *const *data, void *const \
             *outputs,\n    void *workspace) {\n  const long *squall_extents_ = (const long \
             *)data[1];\n  const long squall_extent_0_ = squall_extents_[0];\n  for (long i = 0; i \
             < squall_extent_0_; i++) {\n    all(squall_extents_);\n  }\n  return 0;\n}\n"
        );
    }

    #[test]
    fn macros_stand_for_numbers() {
        let text = |n: i64| {
            format!(
                "#define N {n}L\n#define ALL (2*N)\nint k(int *data) {{\n  float t[N];\n  return \
                 ALL;\n}}\n"
            )
        };
        let made = varying(&text).unwrap();
        assert!(made.contains("#define N squall_extent_0_\n"), "{made}");
        assert!(made.contains("squall_extent_0_ = squall_extents_[0];"), "{made}");
        assert!(made.contains("float t[(11)];"), "{made}");
    }

    #[test]
    fn places_that_want_a_constant_are_refused() {
        for body in ["static int a = #;", "switch (1) {\n  case #: break;\n  }"] {
            let text = |n: i64| {
                format!("int k(int *data) {{\n  {}\n}}\n", body.replace('#', &n.to_string()))
            };
            assert!(varying(&text).is_err(), "{body}");
        }
        let array =
            |n: i64| format!("int k(int *data) {{\n  float t[{n}] __attribute__((x));\n}}\n");
        assert!(varying(&array).unwrap().contains("float t[11] "));
        let table = |n: i64| format!("static const int t[2] = {{{n}, 1}};\n");
        assert!(varying(&table).is_err());
        let packed = |n: i64| format!("int k_prepare(void) {{ return {n}; }}\n");
        assert!(varying(&packed).is_err());
    }
}
