//! One self-contained HTML page about a run: charts, the state at the end, the timeline.

use std::fmt::Write;

use spokeshave_sim::world::{Inner, Sample};

use super::{
    Summary,
    efficiency::{Efficiency, Offer, least_at},
    summary::timeline,
};

/// One line of a chart.
struct Series<'a> {
    name: &'a str,
    colour: &'a str,
    values: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 190.0;
/// Room for the axis labels.
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 26.0;

/// The page.
///
/// `offers` are what the pools may buy.
pub fn page(world: &Inner, summary: &Summary, offers: &[Offer]) -> String {
    let end = world.samples.last().map_or(1.0, |it| world.seconds(it.at)).max(1.0) * 1.02;
    let series = |name, colour, value: fn(&Sample) -> f64| Series {
        name,
        colour,
        values: world.samples.iter().map(|it| (world.seconds(it.at), value(it))).collect(),
    };
    let marks: Vec<f64> = summary.interruptions.iter().map(|it| it.announced).collect();
    let nodes =
        chart("Nodes", "", &[series("nodes", "#2563eb", |it| it.nodes as f64)], end, &marks);
    let pods = chart(
        "Pods",
        "",
        &[
            series("running", "#16a34a", |it| it.running as f64),
            series("pending", "#d97706", |it| it.pending as f64),
        ],
        end,
        &marks,
    );
    let price = chart(
        "Price",
        "$/h",
        &[
            series("price", "#9333ea", |it| it.price),
            Series {
                name: "cheapest possible",
                colour: "#0891b2",
                values: world
                    .samples
                    .iter()
                    .map(|it| (world.seconds(it.at), least_at(it, offers)))
                    .collect(),
            },
        ],
        end,
        &marks,
    );
    let efficiency = Efficiency::of(world, offers);
    let mut rows = String::new();
    for line in &world.timeline {
        let line = timeline(world, line);
        let _ = writeln!(
            rows,
            "<tr><td class=n>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            clock(line.t),
            line.concern,
            escape(line.action),
            escape(&line.object),
            escape(&line.reason)
        );
    }
    let mut claims = String::new();
    for it in &summary.node_claims {
        let _ = writeln!(
            claims,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=n>{:.4}</td><td>{}</td></tr>",
            escape(&it.name),
            escape(&it.node_pool),
            escape(&it.instance_type),
            escape(&it.zone),
            escape(&it.capacity_type),
            it.price_per_hour,
            it.state
        );
    }
    let mut interruptions = String::new();
    for it in &summary.interruptions {
        let after =
            it.replaced_after.map_or_else(|| "not yet".to_owned(), |it| format!("{it:.1} s"));
        let _ = writeln!(
            interruptions,
            "<tr><td class=n>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=n>{after}</td></tr>",
            clock(it.announced),
            escape(&it.kind),
            escape(&it.instance_id),
            escape(&it.node)
        );
    }
    if interruptions.is_empty() {
        interruptions.push_str("<tr><td colspan=5>none</td></tr>");
    }
    let mut problems = String::new();
    for it in &summary.violations {
        let _ = writeln!(
            problems,
            "<li class=bad>{}: {}: {}</li>",
            escape(it.rule),
            escape(&it.object),
            escape(&it.detail)
        );
    }
    for it in &summary.pending {
        let _ = writeln!(problems, "<li>pending {}: {}</li>", escape(&it.pod), escape(&it.reason));
    }
    if problems.is_empty() {
        problems.push_str("<li>no violation, nothing pending</li>");
    }
    let settled = if summary.settled { "settled" } else { "not settled" };
    format!(
        "<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content=\"width=device-width, initial-scale=1\">
<title>Spokeshave: a local run</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: #1f2937; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
th, td {{ text-align: left; padding: 3px 8px; border-bottom: 1px solid #e5e7eb; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }}
.n {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 12px; }}
.tile {{ border: 1px solid #e5e7eb; border-radius: 8px; padding: 8px 14px; min-width: 110px; }}
.tile b {{ display: block; font-size: 1.3rem; }}
.bad {{ color: #b91c1c; }}
svg {{ width: 100%; height: auto; }}
svg text {{ font: 11px system-ui, sans-serif; fill: #4b5563; }}
</style>
</head>
<body>
<h1>A local run, {settled}</h1>
<div class=tiles>
<div class=tile><b>{running}</b>pods running</div>
<div class=tile><b>{pending}</b>pods pending</div>
<div class=tile><b>{nodes_now}</b>NodeClaims</div>
<div class=tile><b>${price_now:.4}</b>per hour</div>
<div class=tile><b>{interrupted}</b>interrupted</div>
<div class=tile><b>{violations}</b>violations</div>
<div class=tile><b>{seed}</b>seed</div>
<div class=tile><b>${dollars:.2}</b>paid</div>
<div class=tile><b>${least_dollars:.2}</b>cheapest possible</div>
<div class=tile><b>{pod_hours:.1}</b>pod-hours</div>
<div class=tile><b>{moved}</b>pods moved</div>
<div class=tile><b>{per_pod_hour:.4}</b>disruptions per pod-hour</div>
</div>
{nodes}
{pods}
{price}
<p>The cheapest possible is a bound and no fleet: what the pods of the moment ask for, in parts of instances, at the best price
that any pool may buy them for, without regard to zones. What is paid lies above it because nodes are whole and carry what runs
on every node, pods come and go faster than budgets let nodes go, and a spot node is replaced by a cheaper spot node only with the gate
SpotToSpotConsolidation, which moves more pods.</p>
<h2>What needs a look</h2>
<ul>
{problems}</ul>
<h2>Interruptions</h2>
<table><tr><th class=n>time</th><th>kind</th><th>instance</th><th>node</th><th class=n>replaced after</th></tr>
{interruptions}</table>
<h2>NodeClaims</h2>
<table><tr><th>name</th><th>pool</th><th>type</th><th>zone</th><th>capacity</th><th class=n>$/h</th><th>state</th></tr>
{claims}</table>
<h2>Timeline</h2>
<table><tr><th class=n>time</th><th>concern</th><th>action</th><th>object</th><th>reason</th></tr>
{rows}</table>
</body>
</html>
",
        running = summary.pods.running,
        pending = summary.pods.pending,
        nodes_now = summary.node_claims.len(),
        price_now = summary.price_per_hour,
        interrupted = summary.interruptions.len(),
        violations = summary.violations.len(),
        seed = summary.seed,
        dollars = efficiency.dollars,
        least_dollars = efficiency.least_dollars,
        pod_hours = efficiency.pod_hours,
        moved = efficiency.moved,
        per_pod_hour = efficiency.disruptions_per_pod_hour(),
    )
}

/// A step chart with time on the horizontal axis, as SVG.
fn chart(title: &str, unit: &str, series: &[Series<'_>], end: f64, marks: &[f64]) -> String {
    let highest = series.iter().flat_map(|it| &it.values).map(|it| it.1).fold(0.0_f64, f64::max);
    let step = nice(highest / 4.0);
    let top = (highest / step).ceil().max(1.0) * step;
    let x = |t: f64| LEFT + t / end * (WIDTH - LEFT - 10.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 12.0);
    let mut svg = format!(
        "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{title} over time\">\n"
    );
    let mut level = 0.0;
    while level <= top * 1.001 {
        let _ = writeln!(
            svg,
            "<line x1={LEFT} x2={:.0} y1={:.1} y2={:.1} stroke=\"#e5e7eb\"/><text x={:.0} y={:.1} \
             text-anchor=end>{}</text>",
            WIDTH - 10.0,
            y(level),
            y(level),
            LEFT - 6.0,
            y(level) + 4.0,
            number(level, step)
        );
        level += step;
    }
    let time_step =
        [10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 86_400.0]
            .into_iter()
            .find(|it| end / it <= 10.0)
            .unwrap_or(86_400.0 * 7.0);
    let mut t = 0.0;
    while t <= end {
        let _ = writeln!(
            svg,
            "<text x={:.1} y={:.0} text-anchor=middle>{}</text>",
            x(t),
            HEIGHT - 8.0,
            clock(t)
        );
        t += time_step;
    }
    for mark in marks {
        let _ = writeln!(
            svg,
            "<line x1={0:.1} x2={0:.1} y1=8 y2={1:.0} stroke=\"#dc2626\" stroke-dasharray=\"4 3\"><title>interruption</title></line>",
            x(*mark),
            HEIGHT - BOTTOM
        );
    }
    for (n, it) in series.iter().enumerate() {
        let mut path = String::new();
        let mut last = 0.0;
        for (n, (t, value)) in it.values.iter().enumerate() {
            if n == 0 {
                let _ = write!(path, "M{:.1} {:.1}", x(*t), y(*value));
            } else {
                let _ = write!(path, "L{:.1} {:.1}L{:.1} {:.1}", x(*t), y(last), x(*t), y(*value));
            }
            last = *value;
        }
        let _ = write!(path, "L{:.1} {:.1}", x(end), y(last));
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=none stroke=\"{}\" stroke-width=2 />",
            it.colour
        );
        let _ = writeln!(
            svg,
            "<text x={:.0} y=12 style=\"fill:{}\">{} {unit}</text>",
            LEFT + 8.0 + 90.0 * n as f64,
            it.colour,
            it.name
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A step of 1, 2 or 5 times a power of ten that is at least `least`.
fn nice(least: f64) -> f64 {
    if least <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= least).unwrap_or(least)
}

fn number(value: f64, step: f64) -> String {
    if step >= 1.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// `m:ss`, or `h:mm:ss`.
pub fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (hours, minutes, seconds) = (whole / 3_600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_times_are_readable() {
        assert_eq!(escape("<a&\"b\">"), "&lt;a&amp;&quot;b&quot;&gt;");
        assert_eq!(
            (clock(0.0), clock(75.9), clock(3_725.0)),
            ("0:00".into(), "1:15".into(), "1:02:05".into())
        );
        assert_eq!((nice(0.0), nice(0.3), nice(7.0), nice(20.0)), (1.0, 0.5, 10.0, 20.0));
    }
}
