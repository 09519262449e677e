//! docs/settings.md is made of what the code says about settings.

use std::{fmt::Write, fs, path::Path};

use spokeshave_model::{
    labels,
    settings::registry::{ALL, GATES},
};

const ANNOTATIONS: [(&str, &str, &str); 3] = [
    (
        labels::REBALANCE,
        "replace",
        "EC2's rebalance recommendations are acted on: a replacement first, then the node goes, within the pool's budgets",
    ),
    (
        labels::EXPIRATION,
        "replace",
        "nodes that reach `expireAfter` count as drifted (reason `Expired`): a replacement first, then the node goes, within the pool's budgets for `Drifted`; without it they are deleted at once, whatever budgets say",
    ),
    (
        labels::SCHEDULED_CHANGE_LEAD_TIME,
        "48h",
        "nodes leave so long before a reboot or retirement that EC2 has scheduled, not as soon as it is announced",
    ),
];

fn page() -> String {
    let mut text = String::from(
        "# Settings\n\n\
         Functions read settings from environment variables with Karpenter's names; `template.yaml` gives them by the parameters\n\
         named here. The command takes any of them as `--set NAME=VALUE`, and gates as `--feature-gates`. Durations are written as\n\
         in Go (`90s`, `1h30m`), booleans as `true` or `false`. A value that does not parse stops a function before its first event,\n\
         with one line in its log that names the setting.\n\n\
         | Variable | Default | Parameter | Meaning |\n| --- | --- | --- | --- |\n",
    );
    for it in ALL {
        let default =
            if it.default.is_empty() { String::new() } else { format!("`{}`", it.default) };
        let parameter =
            if it.parameter.is_empty() { String::new() } else { format!("`{}`", it.parameter) };
        let _ = writeln!(text, "| `{}` | {default} | {parameter} | {} |", it.name, it.meaning);
    }
    text.push_str(
        "\n## Feature gates\n\n| Gate | Default | When it is on |\n| --- | --- | --- |\n",
    );
    for (name, default, meaning) in GATES {
        let _ =
            writeln!(text, "| `{name}` | {} | {meaning} |", if *default { "on" } else { "off" });
    }
    text.push_str(
        "\n## Annotations on NodePools\n\n| Annotation | Default | Meaning |\n| --- | --- | --- |\n",
    );
    for (name, value, meaning) in ANNOTATIONS {
        let _ = writeln!(text, "| `{name}: {value}` | absent | {meaning} |");
    }
    text.push_str("\n## Parameters of the stack alone\n\n| Parameter | Default | Meaning |\n| --- | --- | --- |\n");
    let template = fs::read_to_string(root().join("template.yaml")).expect("template.yaml");
    let template: serde_json::Value = serde_saphyr::from_str(&template).expect("YAML");
    for (name, it) in template["Parameters"].as_object().expect("parameters") {
        if ALL.iter().any(|it| it.parameter == name) {
            continue;
        }
        let default = match &it["Default"] {
            serde_json::Value::String(text) if text.is_empty() => String::new(),
            serde_json::Value::String(text) => format!("`{text}`"),
            serde_json::Value::Null => "required".to_owned(),
            other => format!("`{other}`"),
        };
        let meaning = it["Description"].as_str().unwrap_or("As its name says");
        let _ = writeln!(text, "| `{name}` | {default} | {} |", meaning.trim_end_matches('.'));
    }
    text
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// To write it anew: `UPDATE_GENERATED=1 cargo test -p spokeshave --test settings_page`.
#[test]
fn the_committed_page_is_the_generated_one() {
    let path = root().join("docs/settings.md");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, page()).expect("writable");
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == page(),
        "docs/settings.md is out of date"
    );
}
