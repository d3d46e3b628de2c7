//! Rewrites the C text of a kernel so that a caller's thread pool can run its parallel loops.
//! Input: a kernel whose loops are marked `#pragma omp parallel for`; output: the same kernel with
//! each of these loops moved to a function of its own, which the run's `rt_pool` calls for each
//! iteration. A loop that cannot be moved (something but counters is declared around it) stays.
//! `sources.rs` applies it to the kernels of every exported library.

use std::fmt::Write as _;

/// The line before a parallel loop begins so.
const PRAGMA: &str = "#pragma omp parallel for";

/// The text that is put above a rewritten kernel.
const SHARE: &str = "#include \"runtime/pool.h\"\n
/* The pool of the run stands ahead of the first data pointer; without one the caller does all. */
static void share(const void *const *data, size_t tasks, rt_task *task, void *argument) {
  const rt_pool *pool = (const rt_pool *)data[-1];
  if (pool) pool->parallel_for(pool->state, tasks, task, argument);
  else
    for (size_t i = 0; i < tasks; i++) task(argument, i);
}\n
struct shared {
  const void *const *data;
  void *const *outputs;
  const void *prepared;
  void *workspace;
  const long *outer;
};
";

/// A loop `for (long NAME = 0; NAME < EXTENT; NAME++) {` by its name and extent.
fn counted(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim().strip_prefix("for (long ")?;
    let (name, rest) = rest.split_once(" = 0; ")?;
    let rest = rest.strip_prefix(name)?.strip_prefix(" < ")?;
    let (extent, rest) = rest.split_once("; ")?;
    let closed = rest.strip_prefix(name)?.strip_prefix("++) {")?;
    // Of a network over a range, extents are numbers that each call reads.
    let digits = extent.strip_prefix("squall_extent_").and_then(|e| e.strip_suffix('_'));
    let digits = digits.unwrap_or(extent);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (closed.is_empty() && is_number).then_some((name, extent))
}

/// The number in `WORD(N)` of a line.
fn clause(line: &str, word: &str) -> Option<usize> {
    let (_, rest) = line.split_once(&format!(" {word}("))?;
    rest.split_once(')')?.0.parse().ok()
}

/// How far a line opens blocks.
fn depth(line: &str) -> i64 {
    let count = |c| line.matches(c).count() as i64;
    count('{') - count('}')
}

/// A loop with the lines that it consists of.
struct SharedLoops<'a> {
    threads: usize,
    loops: Vec<(&'a str, &'a str)>,
    body: &'a [&'a str],
    lines: usize,
}

/// The loop behind a pragma; none where it is not of the form that generated kernels have.
fn part<'a>(lines: &'a [&'a str]) -> Option<SharedLoops<'a>> {
    let pragma = lines[0].trim();
    let threads = clause(pragma, "num_threads").unwrap_or(1);
    let together = clause(pragma, "collapse").unwrap_or(1);
    let heads = lines.get(1..=together)?;
    let loops: Vec<_> = heads.iter().map(|l| counted(l)).collect::<Option<_>>()?;
    let (mut open, mut end) = (0, 1);
    while end == 1 || open > 0 {
        open += depth(lines.get(end)?);
        end += 1;
    }
    // The last lines close the loops, one each.
    let body = lines.get(1 + together..end.checked_sub(together)?)?;
    let closing = lines.get(end - together..end)?;
    closing.iter().all(|l| l.trim() == "}").then_some(())?;
    Some(SharedLoops { threads, loops, body, lines: end })
}

/// A kernel's source without pragmas: each shared loop a function that a pool calls. A loop that
/// cannot be moved out, because more than counters of outer loops is declared around it, is left to
/// one thread.
pub fn shared(source: &str, symbol: &str) -> String {
    if !source.contains(PRAGMA) {
        return source.into();
    }
    let lines: Vec<&str> = source.lines().collect();
    let head = format!("int {symbol}(");
    let Some(start) = lines.iter().position(|l| l.starts_with(&head)) else {
        return source.into();
    };
    let pointers: Vec<&str> =
        lines[start + 1..].iter().take_while(|l| is_pointer(l)).copied().collect();
    let (mut parts, mut function) = (String::new(), String::new());
    // Blocks that are open: of each, whether something but a counter is declared there, and the
    // counter of its loop.
    let mut blocks: Vec<(bool, Option<&str>)> = vec![(false, None)];
    let (mut i, mut count) = (start + 1 + pointers.len(), 0);
    while i < lines.len() {
        let line = lines[i];
        if line.trim_start().starts_with(PRAGMA) {
            let movable = blocks.iter().all(|(declared, _)| !declared);
            if let Some(p) = part(&lines[i..]).filter(|p| movable && p.threads > 1) {
                let outer: Vec<&str> = blocks.iter().filter_map(|(_, counter)| *counter).collect();
                parts += &outlined(symbol, count, &p, &pointers, &outer);
                function += &called(symbol, count, p.threads, &outer);
                count += 1;
                i += p.lines;
                continue;
            }
            i += 1;
            continue;
        }
        match depth(line) {
            1 => blocks.push((false, counted(line).map(|(name, _)| name))),
            -1 => drop(blocks.pop()),
            _ => {
                if let Some(block) = blocks.last_mut() {
                    block.0 |= is_declaration(line);
                }
            }
        }
        function += line;
        function.push('\n');
        i += 1;
    }
    let before = lines[..start].join("\n");
    let declared: String = pointers.iter().map(|p| format!("{p}\n")).collect();
    let unused: String = pointers.iter().filter_map(|p| name(p)).map(void).collect();
    format!("{before}\n{SHARE}{parts}\n{}\n{declared}{unused}{function}", lines[start])
}

/// Whether a line makes a pointer to what the kernel is given.
fn is_pointer(line: &str) -> bool {
    let from = [
        " = data[",
        " = outputs[",
        "(const char *)prepared + ",
        "(const char *)workspace + ",
        " = (const long *)data[",
        " = squall_extents_[",
    ];
    line.starts_with("  ") && line.ends_with(';') && from.iter().any(|f| line.contains(f))
}

/// Whether a line declares something.
fn is_declaration(line: &str) -> bool {
    const TYPES: [&str; 9] =
        ["const", "long", "float", "double", "int", "unsigned", "short", "char", "static"];
    let first = line.trim().split(' ').next().unwrap_or("");
    let lanes = first.strip_prefix(['v', 'i']).unwrap_or("");
    TYPES.contains(&first) || (!lanes.is_empty() && lanes.bytes().all(|b| b.is_ascii_digit()))
}

/// The name that a pointer's declaration declares.
fn name(declaration: &str) -> Option<&str> {
    declaration.split_once(" = ")?.0.rsplit([' ', '*']).next()
}

fn void(name: &str) -> String {
    format!("  (void){name};\n")
}

/// The function of a loop: a share of its iterations.
fn outlined(
    symbol: &str,
    n: usize,
    p: &SharedLoops<'_>,
    pointers: &[&str],
    outer: &[&str],
) -> String {
    let mut f = format!(
        "\nstatic void {symbol}_part_{n}(void *argument, size_t number) {{\n  const struct shared \
         *all = (const struct shared *)argument;\n  const void *const *data = all->data;\n  void \
         *const *outputs = all->outputs;\n  const void *prepared = all->prepared;\n  void \
         *workspace = all->workspace;\n"
    );
    pointers.iter().for_each(|l| _ = writeln!(f, "{l}"));
    for (i, counter) in outer.iter().enumerate() {
        let _ = writeln!(f, "  const long {counter} = all->outer[{i}];");
    }
    let names = ["data", "outputs", "prepared", "workspace"].into_iter();
    let names = names.chain(pointers.iter().filter_map(|p| name(p))).chain(outer.iter().copied());
    names.for_each(|n| f += &void(n));
    let total = p.loops.iter().map(|l| l.1).collect::<Vec<_>>().join(" * ");
    let _ = writeln!(
        f,
        "  const long all_of_them = {total}, tasks = {};\n  const long end = all_of_them * \
         ((long)number + 1) / tasks;\n  for (long iteration = all_of_them * (long)number / tasks; \
         iteration < end; iteration++) {{",
        p.threads
    );
    for (i, (counter, extent)) in p.loops.iter().enumerate() {
        let inner = p.loops[i + 1..].iter().map(|l| format!(" / {}", l.1)).collect::<String>();
        let within = if i == 0 { String::new() } else { format!(" % {extent}") };
        let _ = writeln!(f, "    const long {counter} = iteration{inner}{within};");
    }
    // A loop inside that was to be shared is its thread's own.
    let body = p.body.iter().filter(|l| !l.trim_start().starts_with(PRAGMA));
    body.for_each(|l| _ = writeln!(f, "{l}"));
    f + "  }\n}\n"
}

/// Its call.
fn called(symbol: &str, n: usize, threads: usize, outer: &[&str]) -> String {
    let list = if outer.is_empty() { "0".into() } else { outer.join(", ") };
    format!(
        "{{\n  const long outer_{n}[] = {{{list}}};\n  struct shared all = {{data, outputs, \
         prepared, workspace, outer_{n}}};\n  share(data, {threads}, {symbol}_part_{n}, \
         &all);\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "#include <stddef.h>
int k(const void *const *data, void *const *outputs, const void *prepared, void *workspace) {
  const float *restrict X_ = data[0];
  float *restrict Y_ = outputs[0];
  float *restrict P_ = (float *)((const char *)workspace + 0);
#pragma omp parallel for schedule(static) num_threads(2)
  for (long a_ = 0; a_ < 18; a_++) {
    {
      P_[a_] = X_[a_];
    }
  }
  for (long o_ = 0; o_ < 2; o_++) {
#pragma omp parallel for schedule(static) collapse(2) num_threads(2)
    for (long b_ = 0; b_ < 3; b_++) {
      for (long c_ = 0; c_ < 3; c_++) {
        Y_[9*o_ + 3*b_ + c_] = P_[9*o_ + 3*b_ + c_];
      }
    }
  }
  {
    const float *t1 = X_ + 4;
#pragma omp parallel for schedule(static) num_threads(2)
    for (long d_ = 0; d_ < 18; d_++) {
      Y_[d_] += t1[0];
    }
  }
  (void)data; (void)outputs; (void)prepared; (void)workspace;
  return 0;
}
";

    #[test]
    fn loops_become_functions_where_they_can() {
        let text = shared(KERNEL, "k");
        assert!(!text.contains("#pragma"), "{text}");
        assert!(text.contains("share(data, 2, k_part_0, &all)"), "{text}");
        assert!(text.contains("const long c_ = iteration % 3;"), "{text}");
        assert!(text.contains("const long outer_1[] = {o_};"), "{text}");
        assert!(text.contains("const long b_ = iteration / 3;"), "{text}");
        // It needs `t1`, which is declared around it.
        assert!(!text.contains("k_part_2") && text.contains("for (long d_"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn a_kernel_of_one_thread_is_left_alone() {
        let plain =
            KERNEL.lines().filter(|l| !l.contains("#pragma")).collect::<Vec<_>>().join("\n");
        assert_eq!(shared(&plain, "k"), plain);
    }
}
