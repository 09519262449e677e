//! Catalogs in the plain form, as JSON or YAML.

use std::path::Path;

use spokeshave_catalog::plain;
use spokeshave_model::InstanceType;

use super::{Document, FieldPath, documents, looks_like_json, read};
use crate::Failure;

const FIX: &str = "give the plain form that `spokeshave catalog export` writes";

/// Reads a file, or standard input for `-`, as a catalog in the plain form.
///
/// # Errors
/// When it cannot be read, is neither JSON nor YAML, or is not in the plain form; with line and field.
pub fn load_catalog(path: &Path) -> Result<Vec<InstanceType>, Failure> {
    let file = path.display().to_string();
    let text = read(&file)?;
    // Exports are long: lines are looked for only when something is wrong.
    if looks_like_json(&text)
        && let Ok(document) = serde_json::from_str(&text)
        && let Ok(types) = plain::read(&document)
    {
        return Ok(types);
    }
    let mut found = documents(&file, &text)?;
    let document = match found.len() {
        0 => return Err(Failure::new("there is no catalog in it").file(&file).fix(FIX)),
        1 => found.remove(0),
        _ => {
            let second = found.remove(1).lines.line;
            return Err(Failure::new("a catalog is one document, not several")
                .file(&file)
                .line(second)
                .fix(FIX));
        }
    };
    let Document { value, lines } = document;
    plain::read(&value).map_err(|error| {
        let line = lines.of(&FieldPath::parse(&error.path));
        Failure::new(error.problem).file(&file).line(line).field(error.path).fix(FIX)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn load(name: &str, text: &str) -> Result<Vec<String>, String> {
        let folder = std::env::temp_dir().join(format!("spokeshave-catalog-{name}"));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(name);
        fs::write(&path, text).expect("written");
        let names = |types: Vec<InstanceType>| types.into_iter().map(|it| it.name).collect();
        load_catalog(&path)
            .map(names)
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
    }

    #[test] // contract: files are YAML or JSON
    fn a_catalog_may_be_yaml() {
        let text = "instanceTypes:\n- name: m5.large\n  capacity: {cpu: 2, memory: 8Gi}\n  offerings:\n  \
                    - {capacityType: spot, zone: a, price: 0.1}\n";
        assert_eq!(load("a.yaml", text), Ok(vec!["m5.large".to_owned()]));
        let text = r#"{"instanceTypes":[{"name":"m5.large"}]}"#;
        assert_eq!(load("a.json", text), Ok(vec!["m5.large".to_owned()]));
    }

    #[test] // contract: messages name file, line and field
    fn what_is_wrong_is_told_with_its_line() {
        let text = "instanceTypes:\n- name: m5.large\n  offerings:\n  - capacityType: spot\n    zone: a\n    price: x\n";
        let told = load("b.yaml", text).expect_err("a price that is no number");
        assert!(told.starts_with("b.yaml:6: instanceTypes[0].offerings[0].price: "), "{told}");
        let told = load("c.json", "{\n\"instanceTypes\": 3}").expect_err("no list");
        assert!(told.starts_with("c.json:2: instanceTypes: must be a list"), "{told}");
        let told = load("d.yaml", "").expect_err("nothing");
        assert!(told.starts_with("d.yaml: there is no catalog in it"), "{told}");
        let told = load("e.yaml", "instanceTypes: []\n---\ninstanceTypes: []\n").expect_err("two");
        assert!(told.starts_with("e.yaml:3: a catalog is one document"), "{told}");
    }
}
