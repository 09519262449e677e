//! Manifests with something broken in them, by the thousand: nothing panics, and what is read is written and read back the same.
//!
//! `SPOKESHAVE_MUTATIONS` says how many are tried; the long checks try more than the 100 of an ordinary run. A seed that fails is
//! printed, and becomes a test of its own beside the fix.

use spokeshave::{commands::lint, input, yaml_out};
use spokeshave_model::FeatureGates;

const SEEDS: &[&str] = &[
    include_str!("worked-set.yaml"),
    include_str!("../../infra/crds/nodepools.karpenter.sh.yaml"),
];

/// What takes the place of something, or is put between: edges of numbers, formats and YAML.
const WORDS: &[&str] = &[
    "null",
    "~",
    "{}",
    "[]",
    "-1",
    "0",
    "1e309",
    "9223372036854775808",
    "-9223372036854775809",
    "1.5",
    "\"\"",
    "é",
    "'",
    "\"",
    ":",
    "- ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "!!int ",
    "|",
    ">-\n",
    "---\n",
    "...\n",
    "#",
    "\t",
    "\n",
    "  ",
    "true",
    "Never",
    "1h1h",
    "-0s",
    "10%",
    "101%",
    "@yearly",
    "0 0 31 2 *",
    "*/0 * * * *",
    "60 * * * *",
    "1e1.5",
    "1Ki",
    "18Ti",
    "Ti",
    "karpenter.sh/x",
    "kubernetes.io/hostname",
    "In",
    "Gt",
    "al2023@a@b",
    "@",
    "max(vcpus, 1.0 / 0.0)",
    "%",
    "٣",
    "0x10",
    "replicas: 99999999999",
    "kubelet: {maxPods: vcpus * 1000000000000}",
    "tags: {}",
    "[[[[[[",
    "{{{{{{",
];

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(n.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

/// A seed with one or two things done to it: words replaced, lines doubled, lost or moved, texts put in.
fn mutated(random: &mut Random) -> String {
    let text = SEEDS[usize::from(random.below(4) == 0)];
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=random.below(2) {
        let at = random.below(lines.len());
        let word = WORDS[random.below(WORDS.len())];
        match random.below(6) {
            0 => {
                let line = lines[at].clone();
                let to = random.below(lines.len());
                lines.insert(to, line);
            }
            1 => drop(lines.remove(at)),
            2 => {
                let line = &lines[at];
                lines[at] = match line.split_once(": ") {
                    Some((key, _)) => format!("{key}: {word}"),
                    None => word.to_owned(),
                };
            }
            3 => {
                let line = &mut lines[at];
                let places: Vec<usize> = line.char_indices().map(|it| it.0).collect();
                let place = places.get(random.below(places.len())).copied().unwrap_or(0);
                line.insert_str(place, word);
            }
            4 => {
                let words: Vec<&str> = lines[at].split([' ', ',', '[', ']', '{', '}']).collect();
                let chosen = words[random.below(words.len())].to_owned();
                if !chosen.is_empty() {
                    lines[at] = lines[at].replacen(&chosen, word, 1);
                }
            }
            _ => {
                let other = lines[random.below(lines.len())].clone();
                lines[at].push_str(other.trim_start());
            }
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n")
}

#[test]
fn nothing_panics_and_nothing_is_lost() {
    let n: u64 =
        std::env::var("SPOKESHAVE_MUTATIONS").ok().and_then(|it| it.parse().ok()).unwrap_or(100);
    let at = "2026-01-01T00:00:00Z".parse().expect("a time");
    let gates = FeatureGates { node_class_cel: true, ..FeatureGates::default() };
    let mut n_read = 0;
    for seed in 0..n {
        let text = mutated(&mut Random(seed));
        let judged = std::panic::catch_unwind(|| {
            let Ok(manifests) = input::load_text("input.yaml", &text) else { return 0 };
            let _ = lint::lint(&manifests, &manifests, &gates, at);
            for manifest in &manifests {
                let written = yaml_out::documents([&manifest.value]);
                let back =
                    input::load_text("written.yaml", &written).expect("what we write can be read");
                assert_eq!(back[0].value, manifest.value);
            }
            1
        });
        n_read += judged.unwrap_or_else(|_| panic!("seed {seed}:\n{text}"));
    }
    // Enough of them must be more than broken YAML, or nothing is tried.
    assert!(n_read * 6 > n, "{n_read} of {n} could be read");
}
