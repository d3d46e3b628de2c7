//! Prints a kernel's GPU launches as C tables, which exported launchers contain in place of a
//! plan's text. `host/launch.h` reads the tables and binds the launches, in the launcher as in the
//! runner.

use crate::plan::{Argument, Kernel, Launch, Role};
use squall_core::{LaunchPhase, Mapped, TensorMap};
use std::fmt::Write as _;

fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|n| n.to_string()).collect();
    // Neither C nor C++ has empty lists of values.
    if all.is_empty() { "0".into() } else { all.join(", ") }
}

fn argument(k: &Kernel, a: &Argument) -> String {
    let plain = |kind: char, index: u32| format!("{{'{kind}', {index}, 0, 0, {{0}}}}");
    match a {
        Argument::Data(n) => plain('d', *n),
        Argument::Weight(n) => plain('w', *n),
        Argument::Output(n) => plain('o', *n),
        Argument::Map(n) => plain('m', *n),
        Argument::Prepared => plain('p', 0),
        Argument::Workspace => plain('s', 0),
        Argument::Status => plain('e', 0),
        Argument::Restored { output, data } => {
            let bytes = k.bytes_of(Role::Output, *output).unwrap_or(0);
            format!("{{'r', {output}, {data}, {bytes}, {{0}}}}")
        }
        Argument::Number(bytes) => format!("{{'x', 0, 0, {}, {{{}}}}}", bytes.len(), list(bytes)),
    }
}

fn map(m: &TensorMap) -> String {
    let (memory, at) = match m.memory {
        Mapped::Data(n) => ('d', u64::from(n)),
        Mapped::Prepared(byte) => ('p', byte),
        Mapped::Workspace(byte) => ('s', byte),
    };
    format!(
        "{{'{memory}', {at}, {}, {{{}}}, {{{}}}, {{{}}}, {{{}}}}}",
        m.extents.len(),
        list(&m.extents),
        list(&m.strides),
        list(&m.spanned),
        list(&m.steps)
    )
}

fn launch(name: &str, n: usize, l: &Launch) -> String {
    let (arguments, maps) = (l.arguments.len(), l.maps.len());
    let of = |what: &str, count: usize| match count {
        0 => "0".to_string(),
        _ => format!("{name}_{what}{n}"),
    };
    format!(
        "    {{{}, \"\", {{{}}}, {{{}}}, {}, {arguments}, {maps}, {}, {}}},\n",
        i32::from(l.phase == LaunchPhase::Prepare),
        list(l.blocks),
        list(l.threads),
        l.shared,
        of("arguments", arguments),
        of("maps", maps),
    )
}

/// The launches of a kernel as static tables, `NAME_launches` and what it points to. Their entries
/// are left out: a launcher names functions by address.
pub fn launches(k: &Kernel, name: &str) -> String {
    let mut c = String::new();
    for (n, l) in k.launches.iter().enumerate() {
        if !l.arguments.is_empty() {
            let all: Vec<String> = l.arguments.iter().map(|a| argument(k, a)).collect();
            let all = all.join(", ");
            let _ = writeln!(c, "static const rt_argument {name}_arguments{n}[] = {{{all}}};");
        }
        if !l.maps.is_empty() {
            let all: Vec<String> = l.maps.iter().map(map).collect();
            let _ = writeln!(c, "static const rt_map {name}_maps{n}[] = {{{}}};", all.join(", "));
        }
    }
    let _ = writeln!(c, "static const rt_launch {name}_launches[] = {{");
    k.launches.iter().enumerate().for_each(|(n, l)| c += &launch(name, n, l));
    c + "};\n"
}
