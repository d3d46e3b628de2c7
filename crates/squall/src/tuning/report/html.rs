//! The report of a tuning session as one HTML page: tables, charts (`bars.rs`), plots (`svg.rs`)
//! and the picture of the network (`graph.rs`). Input: a [`Report`]; output: a text. The page has
//! no script, loads nothing from elsewhere, and suits light and dark screens. `squall tune
//! --report` writes it.

use super::bars;
use super::graph;
use super::svg;
use super::{PlainTime, Report, StopReason, TaskReport};
use crate::base::page::{escape, short};
use squall_core::Nanos;
use std::fmt::Write;

/// The page of a report, complete.
pub fn page(r: &Report) -> String {
    let mut p = String::with_capacity(64 << 10);
    let _ = write!(
        p,
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width, initial-scale=1'>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\
         <title>Squall: {0}</title>\n<style>{1}</style></head>\n<body><main>\n<h1>{0}</h1><p \
         class='sub'>{2}</p>\n",
        escape(&r.input),
        crate::base::page::STYLE,
        subtitle(r)
    );
    if let Some(note) = r.budget_note() {
        let _ = writeln!(p, "<p class='sub'>{}</p>", escape(&note));
    }
    for line in r.inference.iter().flatten().flat_map(|i| i.notes()) {
        let _ = writeln!(p, "<p class='sub'>{}</p>", escape(&line));
    }
    if let Some(Err(why)) = &r.inference {
        let _ = writeln!(p, "<p class='sub'>Not timed as a whole: {}</p>", escape(why));
    }
    tiles(&mut p, r);
    let allowed = r.roof.as_ref().map_or("", |_| {
        "<p class='sub'>Time of each task by count; what the machine would allow its algorithm \
         stands out.</p>"
    });
    section(&mut p, "Where the time goes", &(allowed.to_string() + &bars::times(r)));
    if r.has_alternative() {
        section(&mut p, &format!("Gain over {}", r.baseline()), &bars::gains(r));
    }
    table(&mut p, r);
    if let Some(roof) = &r.roof {
        let note = format!(
            "<p class='sub'>Each task rises from its {} (hollow) to its best kernel (solid). \
             Operations are those of the algorithm that runs, bytes count every input and output \
             once.</p>",
            escape(r.baseline())
        );
        section(&mut p, "Roofline", &(note + &svg::roofline(r, roof)));
    }
    if let Some(Ok(i)) = &r.inference
        && let Some(picture) = graph::picture(&i.graph)
    {
        section(&mut p, "The network as kernels", &picture);
    }
    plain_steps(&mut p, r);
    curves(&mut p, r);
    failures(&mut p, r);
    untuned(&mut p, r);
    machine(&mut p, r);
    let _ = write!(
        p,
        "<footer>Made by Squall {}. Times are medians of verified kernels.</footer>\n\
         </main></body></html>\n",
        env!("CARGO_PKG_VERSION")
    );
    p
}

fn subtitle(r: &Report) -> String {
    let (trials, _) = r.trials();
    let why = match r.stop {
        StopReason::Trials => "its trials were made",
        StopReason::Seconds => "its time was over",
        StopReason::Exhausted => "every configuration was known",
        StopReason::Interrupted => "it was interrupted",
        StopReason::Unmeasurable => "it could not be measured",
    };
    let tasks =
        if r.tasks.len() == 1 { "1 task".to_string() } else { format!("{} tasks", r.tasks.len()) };
    format!(
        "{tasks}, {trials} trials in {}, {} thread{}; ended because {why}.",
        duration(r.seconds),
        r.threads,
        if r.threads == 1 { "" } else { "s" }
    )
}

/// A duration in the unit that suits its length.
pub fn duration(s: f64) -> String {
    match s {
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{} min {:02} s", (s / 60.0) as u64, (s % 60.0) as u64),
        s => format!("{} h {:02} min", (s / 3600.0) as u64, (s % 3600.0 / 60.0) as u64),
    }
}

fn section(p: &mut String, title: &str, body: &str) {
    let _ = writeln!(p, "<section><h2>{}</h2>{body}</section>", escape(title));
}

fn tiles(p: &mut String, r: &Report) {
    let (_, untuned) = r.totals();
    let (trials, failed) = r.trials();
    let mut all = String::new();
    let mut tile = |big: String, small: String| {
        let _ = write!(
            all,
            "<div class='tile'><b>{}</b><span>{}</span></div>",
            escape(&big),
            escape(&small)
        );
    };
    if let Some(Ok(i)) = &r.inference {
        tile(i.best.to_string(), format!("one inference, median {}; {}", i.median, i.kernels));
        for peer in &i.beside {
            if let (Ok(t), Some(ratio)) = (&peer.times, i.ratio(peer)) {
                let (name, theirs) = (peer.library.name(), Nanos(t.best_ns as f64));
                let small = format!("as fast as {name} {}, which takes {theirs}", t.version);
                tile(format!("{ratio:.2}x"), small);
            }
        }
    }
    if let Some(gain) = r.gain().filter(|_| r.has_alternative()) {
        let small = format!("faster than {}, by count; {untuned} there", r.baseline());
        tile(format!("{}x", short(gain)), small);
    }
    let dash = || "\u{2013}".to_string();
    tile(r.pass().map_or_else(dash, |p| p.0.to_string()), "all tasks once through".into());
    if r.roof.is_some() {
        let share = r.pass().and_then(|p| p.1);
        let share = share.map_or_else(dash, |s| format!("{:.0} %", s * 100.0));
        tile(share, "of what the machine's roof allows, by time".into());
    }
    tile(trials.to_string(), format!("trials, {failed} of them failed"));
    let _ = writeln!(p, "<div class='tiles'>{all}</div>");
    let c = r.cost();
    if c.total() > 0.0 {
        let part = |x: f64| x / c.total() * 100.0;
        let body = format!(
            "<div class='split'><i class='b' style='width:{:.2}%'></i><i class='m' \
             style='width:{:.2}%'></i><i class='s' style='width:{:.2}%'></i></div>\
             <span><i class='key b' style='margin-left:0'></i>building {:.1} s<i class='key \
             m'></i>measuring {:.1} s<i class='key s'></i>searching {:.1} s</span>",
            part(c.build),
            part(c.measure),
            part(c.search),
            c.build,
            c.measure,
            c.search
        );
        let each = if trials > 0 {
            format!(": {} CPU-seconds a trial", short(c.total() / trials as f64))
        } else {
            String::new()
        };
        section(p, &format!("What it cost{each}"), &body);
    }
}

fn table(p: &mut String, r: &Report) {
    let all: f64 = r.tasks.iter().filter_map(|t| Some(t.count as f64 * t.best?.0)).sum();
    let gains = r.has_alternative();
    let gained = |untuned: String, gain: String| match gains {
        true => format!("<td>{untuned}</td><td>{gain}</td>"),
        false => String::new(),
    };
    let head = match gains {
        true => format!("<th>{}</th><th>gain</th>", escape(r.baseline())),
        false => String::new(),
    };
    let mut b = format!(
        "<table><thead><tr><th class='l'>task</th><th>count</th><th>best</th>{head}\
         <th>GFLOP/s</th><th class='l'>of its bound</th><th>of model \
         time</th><th>trials</th><th>failed</th></tr></thead><tbody>"
    );
    let dash = || "\u{2013}".to_string();
    for t in &r.tasks {
        let share = r.roof.as_ref().and_then(|roof| t.share(roof));
        let meter = share.map_or(dash(), |s| {
            format!(
                "<span class='meter'><i style='width:{:.0}%'></i></span>{:.0} %",
                (s * 100.0).clamp(0.0, 100.0),
                s * 100.0
            )
        });
        let part = t
            .best
            .filter(|_| all > 0.0)
            .map_or(dash(), |b| format!("{:.1} %", b.0 * t.count as f64 / all * 100.0));
        let _ = write!(
            b,
            "<tr><td class='l name' title='{}'>{}<br><small \
             class='mono'>{}</small></td><td>{}</td><td>{}</td>{}<td>{}</td>\
             <td class='l'>{meter}</td><td>{part}</td><td>{}</td><td>{}</td></tr>",
            escape(&winner(t)),
            escape(&t.name),
            t.id,
            t.count,
            t.best.map_or(dash(), |x| x.to_string()),
            gained(
                t.untuned.map_or(dash(), |x| x.to_string()),
                t.gain().map_or(dash(), |g| format!("{}x", short(g))),
            ),
            t.gflops().filter(|_| t.flop > 0).map_or(dash(), short),
            t.trials,
            t.failed
        );
    }
    let plain = r.totals().1;
    let best = r.pass().map_or(dash(), |p| p.0.to_string());
    let (trials, failed) = r.trials();
    let _ = write!(
        b,
        "</tbody><tfoot><tr><td class='l'>all, by \
         count</td><td>{}</td><td>{best}</td>{}<td></td><td></td>\
         <td></td><td>{trials}</td><td>{failed}</td></tr></tfoot></table>",
        r.tasks.iter().map(|t| t.count).sum::<u64>(),
        gained(plain.to_string(), r.gain().map_or(dash(), |g| format!("{}x", short(g)))),
    );
    b.push_str("<details><summary>Best configurations</summary><table><tbody>");
    for t in &r.tasks {
        let _ = write!(
            b,
            "<tr><td class='l'>{}</td><td class='l wrap mono'>{}</td></tr>",
            escape(&t.name),
            escape(&winner(t))
        );
    }
    b.push_str("</tbody></table></details>");
    section(p, "Tasks", &b);
}

fn winner(t: &TaskReport) -> String {
    match &t.winner {
        Some(w) if w.configuration.is_empty() => w.tunable.clone(),
        Some(w) => format!("{}: {}", w.tunable, w.configuration),
        None => "nothing ran".into(),
    }
}

/// The nodes of the network that run as plain C, with their bounds where the roof is known.
fn plain_steps(p: &mut String, r: &Report) {
    let Some(Ok(i)) = &r.inference else { return };
    if i.plain.is_empty() {
        return;
    }
    let whole = i.plain.whole();
    let mut b = format!(
        "<p class='sub'>No tuned kernel makes these {} nodes: {} of the time of all steps. The \
         bound is the least time by the machine's roof.</p><table><thead><tr><th \
         class='l'>operator</th><th class='l'>first node</th><th>nodes</th><th>time</th><th>of \
         the time</th><th>bound</th><th>times its bound</th></tr></thead><tbody>",
        whole.nodes,
        of_time(whole.share)
    );
    for row in &i.plain.rows {
        let _ = write!(
            b,
            "<tr><td class='l name'>{} <small>{}</small></td><td class='l wrap \
             mono'>{}</td>{}</tr>",
            escape(&row.op),
            row.by,
            escape(&row.node),
            plain_cells(&row.time, r)
        );
    }
    if let Some(rest) = &i.plain.rest {
        let cells = plain_cells(rest, r);
        let _ = write!(b, "<tr><td class='l'>others</td><td class='l'></td>{cells}</tr>");
    }
    b.push_str("</tbody></table>");
    section(p, "What runs as plain C", &b);
}

fn plain_cells(time: &PlainTime, r: &Report) -> String {
    let dash = || "\u{2013}".to_string();
    let bound = r.roof.as_ref().and_then(|roof| time.bound(roof));
    let ratio = r.roof.as_ref().and_then(|roof| time.times_bound(roof));
    format!(
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
        time.nodes,
        Nanos(time.best_ns as f64),
        of_time(time.share),
        bound.map_or_else(dash, |b| b.to_string()),
        ratio.map_or_else(dash, |x| format!("{}x", short(x)))
    )
}

/// A share of the time in percent.
fn of_time(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn curves(p: &mut String, r: &Report) {
    let mut b = String::from("<div class='curves'>");
    for t in &r.tasks {
        let unit = if t.flop > 0 { "GFLOP/s" } else { "GB/s" };
        let _ = write!(
            b,
            "<figure><figcaption>{} <small>{unit}</small></figcaption>{}</figure>",
            escape(&t.name),
            svg::curve(t)
        );
    }
    b.push_str("</div>");
    section(p, "Best rate over trials", &b);
}

fn failures(p: &mut String, r: &Report) {
    if r.tasks.iter().all(|t| t.failures.is_empty()) {
        return;
    }
    let mut b = String::from(
        "<table><thead><tr><th class='l'>task</th><th class='l'>stage</th><th>times</th><th \
         class='l'>what was said</th></tr></thead><tbody>",
    );
    for t in &r.tasks {
        for f in &t.failures {
            let _ = write!(
                b,
                "<tr><td class='l'>{}</td><td class='l bad'>{}</td><td>{}</td><td class='l wrap \
                 mono'>{}</td></tr>",
                escape(&t.name),
                escape(&f.stage),
                f.count,
                escape(&f.detail)
            );
        }
    }
    b.push_str("</tbody></table>");
    section(p, "Failures", &b);
}

fn untuned(p: &mut String, r: &Report) {
    if r.untuned.is_empty() {
        return;
    }
    let mut b = format!(
        "<details><summary>{} operators of the model</summary><table><tbody>",
        r.untuned.len()
    );
    for u in &r.untuned {
        let _ = write!(
            b,
            "<tr><td class='l'>{}</td><td class='l'>{}</td><td class='l wrap'>{}</td></tr>",
            escape(&u.node),
            escape(&u.op),
            escape(&u.reason)
        );
    }
    b.push_str("</tbody></table></details>");
    section(p, "Not tuned", &b);
}

fn machine(p: &mut String, r: &Report) {
    let mut b = String::from("<dl>");
    let mut row = |k: &str, v: String| {
        let _ = write!(b, "<dt>{k}</dt><dd>{}</dd>", escape(&v));
    };
    row("device", r.device.clone());
    row("toolchain", r.toolchain.clone());
    if let Some(roof) = &r.roof {
        let levels: Vec<String> =
            roof.levels.iter().map(|l| format!("{} {} GB/s", l.name, short(l.gbs))).collect();
        row(
            "roof, measured",
            format!(
                "{} GFLOP/s; memory {} GB/s {}",
                short(roof.peak_gflops),
                short(roof.memory_gbs),
                levels.join(", ")
            ),
        );
    }
    row("strategy", format!("{}, seed {}", r.strategy, r.seed));
    row("records", r.store.display().to_string());
    row("began", utc(r.started));
    b.push_str("</dl>");
    section(p, "Machine and run", &b);
}

/// Seconds since 1970 as a date and time, by the civil calendar.
pub fn utc(seconds: f64) -> String {
    let s = seconds.max(0.0) as i64;
    let (days, rest) = (s.div_euclid(86_400), s.rem_euclid(86_400));
    // Years that begin in March put the leap day at the end (H. Hinnant, days_from_civil).
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let m = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * m + 2) / 5 + 1, if m < 10 { m + 3 } else { m - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}
