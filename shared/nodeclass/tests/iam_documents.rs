//! `infra/iam` holds the documents for people to read and for the template to be compared with. With
//! `UPDATE_GENERATED=1` in the environment this test writes them.

use std::{fs, path::PathBuf};

use spokeshave_nodeclass::iam::{Scope, policies};

#[test]
fn the_documents_in_infra_are_those_of_the_code() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../infra/iam");
    let update = std::env::var_os("UPDATE_GENERATED").is_some();
    for (function, document) in policies(&Scope::default()) {
        let file = folder.join(format!("{function}.json"));
        let text = serde_json::to_string_pretty(&document).expect("writes") + "\n";
        if update {
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(&file, &text).expect("writes");
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(written, text, "{function}: run again with UPDATE_GENERATED=1");
    }
}
