//! Numbers drawn for labels.

use jiff::Timestamp;

/// Numbers for labels that only have to exist: the same for the same nodes at the same time.
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self(now.as_second().unsigned_abs() ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn draw(&mut self, from: i64, to: i64) -> i64 {
        // SplitMix64: short, and good enough for labels.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^= it >> 31;
        let span = i128::from(to) - i128::from(from) + 1;
        let offset = i128::from(it).rem_euclid(span.max(1));
        i64::try_from(i128::from(from) + offset).unwrap_or(from)
    }
}
