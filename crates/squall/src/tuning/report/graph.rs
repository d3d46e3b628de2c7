//! Draws a model as a picture for the report: each kernel is a coloured region with the operators
//! that it computes, in layers from input to output (Sugiyama, Tagawa and Toda 1981), with edges
//! for the tensors that go from kernel to kernel. Input: a [`KernelGraph`] (kernels, their
//! operators, producers and times); output: SVG text for `html.rs`.

use crate::base::page::escape;
use crate::inference::kernel_graph::{GraphKernel, KernelGraph};
use rust_sugiyama::configure::Config;
use rust_sugiyama::from_vertices_and_edges;
use squall_core::Nanos;
use std::fmt::Write;

/// The most kernels of a network that is drawn.
const MOST: usize = 1000;
/// The most places at which edges pass by kernels in a network that is drawn. An edge from kernel 2
/// to kernel 9 passes by six; the layout takes time for each of them.
const MOST_PASSED: usize = 20_000;
/// The most operators of a kernel that are named; the others are counted.
const MOST_SHOWN: usize = 6;
/// In pixels: the width of a region, the height of an operator's line in it, and the height of the
/// line with its time.
const WIDTH: f64 = 132.0;
const OPERATOR: f64 = 20.0;
const TIME: f64 = 17.0;
/// In pixels: the space between regions, and the border around the picture.
const SPACE: f64 = 26.0;
const BORDER: f64 = 12.0;

impl GraphKernel {
    fn shown(&self) -> usize {
        self.nodes.len().min(MOST_SHOWN)
    }

    fn height(&self) -> f64 {
        let more = if self.nodes.len() > MOST_SHOWN { OPERATOR } else { 0.0 };
        self.shown() as f64 * OPERATOR + more + TIME + 8.0
    }
}

/// The picture as SVG with a line of explanation; none of a network that is too large or empty.
pub(super) fn picture(graph: &KernelGraph) -> Option<String> {
    let kernels = &graph.kernels;
    let passed = |(i, k): (usize, &GraphKernel)| -> usize {
        k.from.iter().map(|f| i.saturating_sub(*f)).sum()
    };
    let passed: usize = kernels.iter().enumerate().map(passed).sum();
    if !(2..=MOST).contains(&kernels.len()) || passed > MOST_PASSED {
        return None;
    }
    let places = places(kernels)?;
    let all: f64 = kernels.iter().map(|k| k.nanos).sum();
    let (width, height) = places.iter().zip(kernels).fold((0.0f64, 0.0f64), |(w, h), (p, k)| {
        (w.max(p.0 + WIDTH + BORDER), h.max(p.1 + k.height() + BORDER))
    });
    let mut s = format!(
        "<p class='sub'>{} steps; a region is one kernel with the operators that it computes, \
         darker the more of the time it takes. Dashed: a move of data.</p><div class='flow'><svg \
         width='{width:.0}' height='{height:.0}' viewBox='0 0 {width:.0} {height:.0}' role='img' \
         aria-label='the network as kernels'>",
        kernels.len()
    );
    for (i, k) in kernels.iter().enumerate() {
        k.from.iter().for_each(|&f| edge(&mut s, places[f], kernels[f].height(), places[i]));
    }
    for (k, &(x, y)) in kernels.iter().zip(&places) {
        region(&mut s, k, x, y, if all > 0.0 { k.nanos / all } else { 0.0 });
    }
    Some(s + "</svg></div>")
}

/// The upper left corner of each region. Networks that have several parts stand beside each other.
fn places(kernels: &[GraphKernel]) -> Option<Vec<(f64, f64)>> {
    let sizes: Vec<(u32, (f64, f64))> =
        kernels.iter().enumerate().map(|(i, k)| (i as u32, (WIDTH, k.height()))).collect();
    let edges: Vec<(u32, u32)> = kernels
        .iter()
        .enumerate()
        .flat_map(|(i, k)| k.from.iter().map(move |&f| (f as u32, i as u32)))
        .collect();
    let config = Config { vertex_spacing: SPACE, transpose: false, ..Config::default() };
    let mut places: Vec<Option<(f64, f64)>> = vec![None; kernels.len()];
    let mut left = BORDER;
    for (part, _, _) in from_vertices_and_edges(&sizes, &edges, &config) {
        // The library places the middles of regions; upwards or downwards is its own matter.
        let mut part: Vec<(usize, f64, f64)> =
            part.into_iter().map(|(i, (x, y))| (i, x, y)).collect();
        let is_upward = part.iter().any(|&(i, _, y)| {
            kernels[i].from.iter().any(|f| part.iter().any(|&(j, _, above)| j == *f && above > y))
        });
        if is_upward {
            part.iter_mut().for_each(|p| p.2 = -p.2);
        }
        let least = |f: &dyn Fn(&(usize, f64, f64)) -> f64| {
            part.iter().map(f).fold(f64::INFINITY, f64::min)
        };
        let x0 = least(&|p| p.1 - WIDTH / 2.0);
        let y0 = least(&|p| p.2 - kernels[p.0].height() / 2.0);
        let mut right = left;
        for &(i, x, y) in &part {
            let corner = (left + x - WIDTH / 2.0 - x0, BORDER + y - kernels[i].height() / 2.0 - y0);
            right = right.max(corner.0 + WIDTH);
            *places.get_mut(i)? = Some(corner);
        }
        left = right + SPACE;
    }
    places.into_iter().collect()
}

fn edge(s: &mut String, from: (f64, f64), height: f64, to: (f64, f64)) {
    let (x1, y1) = (from.0 + WIDTH / 2.0, from.1 + height);
    let (x2, y2) = (to.0 + WIDTH / 2.0, to.1);
    let bend = ((y2 - y1) / 2.0).abs().max(8.0);
    let _ = write!(
        s,
        "<path class='edge' d='M{x1:.0} {y1:.0} C{x1:.0} {:.0} {x2:.0} {:.0} {x2:.0} {y2:.0}'/>",
        y1 + bend,
        y2 - bend
    );
}

fn region(s: &mut String, k: &GraphKernel, x: f64, y: f64, share: f64) {
    let (height, middle) = (k.height(), x + WIDTH / 2.0);
    let nodes: Vec<&str> = k.nodes.iter().map(|(name, _)| name.as_str()).collect();
    // The strongest colour stands for a fifth of the time and more.
    let strength = 0.06 + 0.6 * (share * 5.0).min(1.0);
    let _ = write!(
        s,
        "<g><title>{}: {}</title><rect class='ground' x='{x:.0}' y='{y:.0}' width='{WIDTH}' \
         height='{height:.0}' rx='7'/><rect class='region {}' x='{x:.0}' y='{y:.0}' \
         width='{WIDTH}' height='{height:.0}' rx='7' fill-opacity='{strength:.2}'/>",
        escape(&k.name),
        escape(&nodes.join(", ")),
        k.kind
    );
    let mut row = y + 4.0;
    for (_, operator) in &k.nodes[..k.shown()] {
        let _ = write!(
            s,
            "<rect class='op' x='{:.0}' y='{:.0}' width='{:.0}' height='{:.0}' rx='4'/><text \
             class='op-name' x='{middle:.0}' y='{:.0}'>{}</text>",
            x + 6.0,
            row + 1.0,
            WIDTH - 12.0,
            OPERATOR - 3.0,
            row + 13.5,
            escape(&cut(operator, 20))
        );
        row += OPERATOR;
    }
    if k.nodes.len() > MOST_SHOWN {
        let more = k.nodes.len() - MOST_SHOWN;
        let _ = write!(
            s,
            "<text class='op-name' x='{middle:.0}' y='{:.0}'>and {more} more</text>",
            row + 13.5
        );
        row += OPERATOR;
    }
    let time = match k.nanos {
        0.0 => "\u{2013}".to_string(),
        n => format!("{}, {:.1} %", Nanos(n), share * 100.0),
    };
    let _ = write!(
        s,
        "<text class='op-time' x='{middle:.0}' y='{:.0}'>{}</text></g>",
        row + 12.5,
        escape(&time)
    );
}

/// So many characters of a text at most.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some(_) => text.chars().take(most - 1).chain(['\u{2026}']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(ops: &[&str], from: &[usize]) -> GraphKernel {
        GraphKernel {
            name: ops.join("_"),
            kind: "kernel",
            nodes: ops.iter().map(|o| (format!("node <{o}>"), o.to_string())).collect(),
            nanos: 1000.0,
            from: from.to_vec(),
        }
    }

    #[test]
    fn regions_do_not_overlap_and_values_go_down() {
        // A stem, two branches of which one is longer, and where they meet; and a part of its own.
        let long = ["Conv", "Relu", "Add", "Mul", "Sub", "Div", "Exp", "Log"];
        let kernels = vec![
            kernel(&["Conv", "Relu"], &[]),
            kernel(&long, &[0]),
            kernel(&["Conv"], &[0]),
            kernel(&["MaxPool"], &[2]),
            kernel(&["Add"], &[1, 3]),
            kernel(&["Softmax"], &[]),
        ];
        let at = places(&kernels).unwrap();
        for (i, k) in kernels.iter().enumerate() {
            for &f in &k.from {
                assert!(at[f].1 + kernels[f].height() <= at[i].1, "{f} -> {i}: {at:?}");
            }
            for j in 0..i {
                let apart = |a: f64, b: f64, size: f64, other: f64| a + size <= b || b + other <= a;
                assert!(
                    apart(at[i].0, at[j].0, WIDTH, WIDTH)
                        || apart(at[i].1, at[j].1, k.height(), kernels[j].height()),
                    "{i} and {j}: {at:?}"
                );
            }
        }
        let text = picture(&KernelGraph { kernels }).unwrap();
        assert!(text.contains("and 2 more") && text.contains("node &lt;Conv&gt;"), "{text}");
        assert!(!text.contains("node <"), "names are escaped");
    }

    #[test]
    fn long_chains_and_wide_networks_are_drawn_in_moments() {
        let chain = |n: usize| -> Vec<GraphKernel> {
            (0..n)
                .map(|i| kernel(&["Conv"], &i.checked_sub(1).map_or(vec![], |p| vec![p])))
                .collect()
        };
        let wide = |n: usize| -> Vec<GraphKernel> {
            let mut all = vec![kernel(&["Conv"], &[])];
            all.extend((0..n).map(|_| kernel(&["Conv"], &[0])));
            all.push(kernel(&["Concat"], &(1..=n).collect::<Vec<_>>()));
            all
        };
        // A dense block: each reads all before it.
        let dense: Vec<GraphKernel> =
            (0..40).map(|i| kernel(&["Conv"], &(0..i).collect::<Vec<_>>())).collect();
        let start = std::time::Instant::now();
        // All read what the first makes.
        let mut fan = chain(190);
        fan.iter_mut().skip(2).for_each(|k| k.from.insert(0, 0));
        for kernels in [chain(MOST), wide(64), dense, fan] {
            assert!(picture(&KernelGraph { kernels }).is_some());
        }
        let mut fan = chain(MOST);
        fan.iter_mut().skip(2).for_each(|k| k.from.insert(0, 0));
        assert_eq!(picture(&KernelGraph { kernels: fan }), None);
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
        assert_eq!(picture(&KernelGraph { kernels: chain(MOST + 1) }), None);
        assert_eq!(picture(&KernelGraph::default()), None);
    }
}
