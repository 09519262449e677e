//! Names and numbers that have to be drawn, from a generator that is passed in a seed: the same run draws the same.

/// SplitMix64: small, and good enough for names.
#[derive(Clone, Debug)]
pub struct Draws(u64);

/// The characters of generated names: no vowels, nothing that looks like something else. Source: Kubernetes.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of the random part of a name. Source: Kubernetes.
const SUFFIX: usize = 5;

impl Draws {
    /// Seeded by whatever tells this run from all others.
    pub fn new(parts: &[&str]) -> Self {
        let mut seed: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in parts.iter().flat_map(|it| it.bytes().chain([0])) {
            seed = (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// A number from the inclusive range.
    pub fn number(&mut self, from: i64, to: i64) -> i64 {
        let width = i128::from(to) - i128::from(from) + 1;
        if width <= 0 {
            return from;
        }
        let drawn = i128::from(self.next()) % width;
        i64::try_from(i128::from(from) + drawn).unwrap_or(from)
    }

    /// The random part of an object's name.
    pub fn suffix(&mut self) -> String {
        (0..SUFFIX)
            .map(|_| {
                let at = (self.next() % ALPHABET.len() as u64) as usize;
                char::from(ALPHABET.get(at).copied().unwrap_or(b'b'))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_repeat_for_a_seed_and_stay_in_range() {
        let draw = |seed: &str| Draws::new(&[seed]).suffix();
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
        let mut draws = Draws::new(&["x"]);
        assert!((0..100).all(|_| (3..=5).contains(&draws.number(3, 5))));
        assert_eq!(draws.number(7, 7), 7);
    }
}
