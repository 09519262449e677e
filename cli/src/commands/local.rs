//! `spokeshave local`: a cluster and an AWS account in one process, and every function run against them.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args as ClapArgs, ValueEnum};
use jiff::SignedDuration;
use serde_json::Value;
use spokeshave_admission::{Kinds, kinds::Match, metadata};
use spokeshave_model::{FieldPath, Kind, Settings, core, duration::parse_go};
use spokeshave_sim::{
    Faults,
    world::{Inner, Input},
};

use crate::{
    ExitStatus, Failure, Output,
    input::{self, Manifest},
    local::{Options, Scenario, Summary, day, example, report, scenario::ScenarioError, summary},
    output::Colour,
    settings::SettingsArgs,
};

/// How fast the simulated clock goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Speed {
    /// As fast as it can be computed.
    #[default]
    Fast,
    /// A simulated second takes a second.
    Real,
}

/// Runs every function against a simulated cluster and a simulated EC2.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  spokeshave local                                     # the bundled example
  spokeshave local --manifests manifests/ --events spot.json --report run.html
  spokeshave local --manifests manifests/ --at 90s=later.yaml --until 30m --output json
  spokeshave local --day --report day.html
  spokeshave local --manifests manifests/ --seed 7 --faults crash,duplicate

Exit status: 0 settled and no invariant broken, 1 not so, 2 an input is unusable.")]
pub struct Args {
    /// Objects to apply: files, directories or - for standard input. Without it: the bundled example
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub manifests: Vec<PathBuf>,

    /// A made-up day instead of manifests: web load that follows the sun, an hourly deployment, batch bursts, spot
    /// interruptions; ends after 24 hours unless --until says otherwise
    #[arg(long, conflicts_with_all = ["manifests", "events", "at"])]
    pub day: bool,

    /// Message bodies for the interruption queue, delivered once the workload has settled
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub events: Vec<PathBuf>,

    /// At a simulated time: an event document, or manifests to apply, for instance 90s=more.yaml
    #[arg(long, value_name = "DURATION=PATH")]
    pub at: Vec<String>,

    /// When to stop: settled, or a simulated duration such as 30m
    #[arg(long, default_value = "settled", value_name = "settled|DURATION")]
    pub until: String,

    /// How fast the simulated clock goes
    #[arg(long, value_enum, default_value_t = Speed::Fast)]
    pub speed: Speed,

    /// The same seed gives the same run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// What goes wrong: none, all, or names joined by commas (duplicate, late, reorder, crash, stale-read,
    /// throttle, ice, no-register, eviction-blocked)
    #[arg(long, default_value = "none", value_name = "none|all|NAME,...")]
    pub faults: String,

    /// What can be bought, in the catalog's plain form; used as it is
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,

    /// The region of the account; without --catalog its built-in facts are sold
    #[arg(long, default_value = "us-east-1", value_name = "REGION")]
    pub region: String,

    /// The cluster's name
    #[arg(long, default_value = "spokeshave", value_name = "NAME")]
    pub cluster_name: String,

    /// Writes one self-contained HTML page with charts and the timeline
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// Carries the command out.
///
/// # Errors
/// An input that is unusable: nothing is started then.
pub fn run(args: &Args, out: &Output) -> Result<ExitStatus, Failure> {
    let scenario = scenario(args)?;
    let kinds = Faults::parse(&args.faults).map_err(|name| {
        Failure::new(format!("--faults: unknown fault {name:?}")).fix(
            "use none, all, or names of: duplicate, late, reorder, crash, stale-read, throttle, ice, no-register, \
             eviction-blocked",
        )
    })?;
    let until = match args.until.as_str() {
        "settled" => args.day.then_some(day::LENGTH),
        text => Some(duration("--until", text)?),
    };
    let options = Options { seed: args.seed, faults: kinds, until, cold: false };
    let mut live = Live::new(out, args.speed);
    let result = scenario.run(&options, &mut |world| live.watch(world));
    live.finish();
    let (result, world) = result.map_err(|error| match error {
        ScenarioError::UnknownRegion(..) => Failure::new(format!("--region: {error}")),
        ScenarioError::Manifest(problem) => Failure::new(problem),
        ScenarioError::Event(problem) => Failure::new(format!("--events: {problem}"))
            .fix("number the running instances from 0, by the names of their NodeClaims"),
        ScenarioError::Script(problem) => Failure::new(format!("--at: {problem}"))
            .fix("number the running instances from 0, by the names of their NodeClaims"),
    })?;
    if let Some(path) = &args.report {
        let offers = scenario.offers();
        let page = world.read(|inner| report::page(inner, &result, &offers));
        std::fs::write(path, page).map_err(|error| {
            Failure::new(format!("--report: cannot write: {error}"))
                .file(path.display().to_string())
        })?;
    }
    if out.is_json() {
        out.json(&result)?;
    } else {
        closing(out, &result)?;
    }
    Ok(ExitStatus::no_if(!result.settled || !result.violations.is_empty()))
}

fn duration(flag: &str, text: &str) -> Result<SignedDuration, Failure> {
    parse_go(text).filter(|it| !it.is_negative()).ok_or_else(|| {
        Failure::new(format!("{flag}: {text:?} is not a duration"))
            .fix("write it like 90s, 30m or 1h30m")
    })
}

fn scenario(args: &Args) -> Result<Scenario, Failure> {
    let mut settings = Settings {
        cluster_name: args.cluster_name.clone(),
        region: args.region.clone(),
        interruption_queue: args.cluster_name.clone(),
        ..Settings::default()
    };
    args.settings.apply(&mut settings)?;
    let mut manifests = Vec::new();
    let mut events = Vec::new();
    let mut script = Vec::new();
    if args.day {
        let (name, text) = day::MANIFESTS;
        manifests = input::load_text(name, text)?;
        let values: Vec<Value> = manifests.iter().map(|it| it.value.clone()).collect();
        for (after, step) in day::steps(&values) {
            let input = match step {
                day::Step::Apply(objects) => Input::Apply(objects),
                day::Step::Event(body) => Input::Events(vec![body]),
            };
            script.push((after, input));
        }
    } else if args.manifests.is_empty() && args.at.is_empty() {
        for (name, text) in example::MANIFESTS {
            manifests.extend(input::load_text(name, text)?);
        }
        if args.events.is_empty() {
            events.push(example::EVENT.to_owned());
        }
    } else {
        manifests = input::load(&args.manifests)?;
    }
    for source in input::sources(&args.events)? {
        events.push(input::read(&source)?);
    }
    for entry in &args.at {
        let (after, path) = entry.split_once('=').ok_or_else(|| {
            Failure::new(format!("--at {entry}: no path"))
                .fix("write DURATION=PATH, for instance --at 90s=later.yaml")
        })?;
        let after = duration("--at", after)?;
        for input in scripted(path)? {
            script.push((after, input));
        }
    }
    let types = args.catalog.as_deref().map(input::load_catalog).transpose()?;
    Ok(Scenario { manifests: checked(manifests)?, settings, types, events, script })
}

/// A file of `--at`: manifests if it holds any, else one message body as it is.
fn scripted(path: &str) -> Result<Vec<Input>, Failure> {
    let mut inputs = Vec::new();
    for source in input::sources(&[PathBuf::from(path)])? {
        let text = input::read(&source)?;
        match input::load_text(&source, &text) {
            Ok(manifests) if !manifests.is_empty() => {
                inputs.push(Input::Apply(checked(manifests)?));
            }
            Ok(_) => inputs.push(Input::Events(vec![text])),
            // YAML that names a kind was meant as a manifest.
            Err(failure) if text.contains("apiVersion") => return Err(failure),
            Err(_) => inputs.push(Input::Events(vec![text])),
        }
    }
    Ok(inputs)
}

/// Objects as the API server would admit them: ours against their schemas and rules, defaults filled in; Kubernetes'
/// own by the types of the fields that are read. Other kinds are passed over.
fn checked(manifests: Vec<Manifest>) -> Result<Vec<Value>, Failure> {
    let kinds = Kinds::new();
    let mut objects = Vec::new();
    for manifest in manifests {
        let root = FieldPath::root();
        if manifest.name.is_empty() {
            let field = root.field("metadata").field("name");
            return Err(manifest.failure(&field, "no name").fix("give the object a name"));
        }
        let mut object = manifest.value.clone();
        // Something to be deleted needs only its name.
        if object["metadata"]["annotations"]["spokeshave.dev/delete"] == "true" {
            objects.push(object);
            continue;
        }
        match kinds.find(&manifest.api_version, &manifest.kind) {
            Match::Served(served) => {
                let mut findings = metadata::check(&object);
                findings.extend(served.schema.admit(&mut object, None));
                if let Some(first) = findings.into_iter().next() {
                    return Err(manifest.failure(&first.field, first.message).fix(
                        "the API server would refuse it; `spokeshave lint` lists all findings",
                    ));
                }
                objects.push(object);
            }
            Match::NotServed(message) => {
                return Err(manifest
                    .failure(&root.field("apiVersion"), message)
                    .fix("`spokeshave convert` turns v1beta1 into v1"));
            }
            Match::Foreign => {
                if known(&manifest)? {
                    objects.push(object);
                }
            }
        }
    }
    remade(&mut objects);
    Ok(objects)
}

/// Leaves out what a workload among `objects` makes anew: lists of a living cluster hold both.
fn remade(objects: &mut Vec<Value>) {
    let key = |kind: &Value, namespace: &Value, name: &Value| {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let namespace = Some(text(namespace)).filter(|it| !it.is_empty());
        (text(kind), namespace.unwrap_or_else(|| "default".to_owned()), text(name))
    };
    let deleted = |it: &Value| it["metadata"]["annotations"]["spokeshave.dev/delete"] == "true";
    let makers: BTreeSet<_> = objects
        .iter()
        .filter(|it| MAKERS.contains(&it["kind"].as_str().unwrap_or_default()) && !deleted(it))
        .map(|it| key(&it["kind"], &it["metadata"]["namespace"], &it["metadata"]["name"]))
        .collect();
    objects.retain(|it| {
        let made = matches!(it["kind"].as_str(), Some("Pod" | "ReplicaSet")) && !deleted(it);
        let meta = &it["metadata"];
        let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let made_by = |owner: &Value| {
            let (kind, namespace, name) = key(&owner["kind"], &meta["namespace"], &owner["name"]);
            // A ReplicaSet is named after its Deployment: `NAME-HASH`.
            let deployment =
                name.rsplit_once('-').filter(|_| kind == "ReplicaSet").is_some_and(|(name, _)| {
                    makers.contains(&("Deployment".into(), namespace.clone(), name.to_owned()))
                });
            owner["controller"] == true && (deployment || makers.contains(&(kind, namespace, name)))
        };
        !(made && owners.any(made_by))
    });
}

/// Kinds whose controllers are simulated.
const MAKERS: [&str; 6] =
    ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"];

/// Whether a kind of Kubernetes is one that the simulated cluster has; its fields are checked then.
fn known(manifest: &Manifest) -> Result<bool, Failure> {
    macro_rules! check {
        ($($kind:ident),* $(,)?) => {
            match manifest.kind.as_str() {
                $(stringify!($kind) if manifest.group() == core::$kind::GROUP => {
                    manifest.typed::<core::$kind>().map(|_| true)
                })*
                _ => Ok(false),
            }
        };
    }
    let patch = manifest.kind == "Node" && manifest.value.get("spec").is_none();
    if patch {
        return Ok(true);
    }
    spokeshave_sim::with_kubernetes_kinds!(check)
}

/// Prints decisions as they are made, and keeps the clock's pace.
struct Live<'a> {
    out: &'a Output,
    speed: Speed,
    started: Instant,
    printed: usize,
    progress: Instant,
    shown: bool,
    /// The last line's concern and action, how often it came at this moment, and how many were left out.
    repeat: Option<(String, usize)>,
}

/// Lines of one kind at one moment that are printed before the rest is only counted.
const SHOWN: usize = 8;

impl<'a> Live<'a> {
    fn new(out: &'a Output, speed: Speed) -> Self {
        let now = Instant::now();
        Self { out, speed, started: now, printed: 0, progress: now, shown: false, repeat: None }
    }

    fn watch(&mut self, world: &Inner) {
        if !self.out.is_json() {
            while let Some(line) = world.timeline.get(self.printed) {
                self.printed += 1;
                self.print(world, line);
            }
        }
        if self.speed == Speed::Real {
            let simulated = Duration::from_secs_f64(world.seconds(world.now).max(0.0));
            if let Some(ahead) = simulated.checked_sub(self.started.elapsed()) {
                self.flush_repeat();
                std::thread::sleep(ahead);
            }
        }
        let person = std::io::IsTerminal::is_terminal(&std::io::stderr());
        if person && self.progress.elapsed() > Duration::from_millis(200) {
            self.progress = Instant::now();
            self.shown = true;
            let last = world.samples.last();
            eprint!(
                "\r\x1b[K{}  {} nodes, {} pods running, {} pending",
                report::clock(world.seconds(world.now)),
                last.map_or(0, |it| it.nodes),
                last.map_or(0, |it| it.running),
                last.map_or(0, |it| it.pending),
            );
        }
    }

    fn print(&mut self, world: &Inner, line: &spokeshave_sim::world::Line) {
        let it = summary::timeline(world, line);
        let key = format!("{} {} {}", it.t, it.concern, it.action);
        let count = match &mut self.repeat {
            Some((last, count)) if *last == key => {
                *count += 1;
                *count
            }
            _ => {
                self.flush_repeat();
                self.repeat = Some((key, 1));
                1
            }
        };
        if count > SHOWN {
            return;
        }
        self.clear();
        let price = line
            .decision
            .fields
            .get("price_per_hour")
            .and_then(Value::as_f64)
            .map(|it| format!("  ${it:.4}/h"))
            .unwrap_or_default();
        let colour = if line.decision.error { Colour::Red } else { Colour::Dim };
        let head = self
            .out
            .paint(colour, &format!("{:>8}  {:<19}", report::clock(it.t), it.concern.as_str()));
        let text = format!("{head} {} {}{price}  {}", it.action, it.object, it.reason);
        // A closed pipe ends the printing, not the run.
        let _ = self.out.line(text.trim_end());
    }

    fn flush_repeat(&mut self) {
        if let Some((_, count)) = self.repeat.take()
            && count > SHOWN
        {
            self.clear();
            let _ = self.out.line(&format!("{:>30} and {} more like it", "", count - SHOWN));
        }
    }

    fn clear(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
            self.shown = false;
        }
    }

    fn finish(&mut self) {
        self.flush_repeat();
        self.clear();
    }
}

/// What a person wants to know at the end.
fn closing(out: &Output, it: &Summary) -> Result<(), Failure> {
    out.line("")?;
    let rows: Vec<Vec<String>> = it
        .node_claims
        .iter()
        .map(|it| {
            vec![
                it.name.clone(),
                it.node_pool.clone(),
                it.instance_type.clone(),
                it.zone.clone(),
                it.capacity_type.clone(),
                format!("{:.4}", it.price_per_hour),
                it.state.to_owned(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        if rows.len() <= 60 {
            out.table(&["NODECLAIM", "POOL", "TYPE", "ZONE", "CAPACITY", "$/H", "STATE"], &rows)?;
        } else {
            grouped(out, it)?;
        }
        out.line("")?;
    }
    for it in it.pending.iter().take(20) {
        out.line(&format!("pending  {}: {}", it.pod, it.reason))?;
    }
    if it.pending.len() > 20 {
        out.line(&format!("pending  and {} more", it.pending.len() - 20))?;
    }
    for it in &it.interruptions {
        let after = it.replaced_after.map_or_else(
            || "not replaced yet".to_owned(),
            |it| format!("its pods ran elsewhere after {it:.1} s"),
        );
        out.line(&format!("interrupted  {} ({}): {}; {after}", it.instance_id, it.node, it.kind))?;
    }
    for (concern, count) in &it.dead_letters {
        out.line(&format!("dead letters  {concern}: {count}"))?;
    }
    for it in &it.violations {
        out.line(
            &out.paint(
                Colour::Red,
                &format!("VIOLATION  {}: {}: {}", it.rule, it.object, it.detail),
            ),
        )?;
    }
    let word = if it.settled {
        out.paint(Colour::Green, "settled")
    } else {
        out.paint(Colour::Red, "not settled")
    };
    out.line(&format!(
        "{word}: {} pods running, {} pending, {} nodes at ${:.4} per hour, {} violations (seed {})",
        it.pods.running,
        it.pods.pending,
        it.node_claims.len(),
        it.price_per_hour,
        it.violations.len(),
        it.seed
    ))
}

/// Many claims: one row per pool, type, zone and capacity type.
fn grouped(out: &Output, it: &Summary) -> Result<(), Failure> {
    let mut groups: std::collections::BTreeMap<[&str; 4], (usize, f64)> =
        std::collections::BTreeMap::new();
    for it in &it.node_claims {
        let group = groups
            .entry([&it.node_pool, &it.instance_type, &it.zone, &it.capacity_type])
            .or_default();
        group.0 += 1;
        group.1 += it.price_per_hour;
    }
    let rows: Vec<Vec<String>> = groups
        .into_iter()
        .map(|(key, (count, price))| {
            let mut row: Vec<String> = key.iter().map(|it| (*it).to_owned()).collect();
            row.extend([count.to_string(), format!("{price:.4}")]);
            row
        })
        .collect();
    out.table(&["POOL", "TYPE", "ZONE", "CAPACITY", "NODES", "$/H"], &rows)
}
