//! Sets of small numbers, a word at a time.

use smallvec::SmallVec;

/// A set of positions. Positions beyond the words that exist are not in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits(SmallVec<[u64; 8]>);

impl Bits {
    /// No position below `len`.
    pub(crate) fn none(len: usize) -> Self {
        Self(SmallVec::from_elem(0, len.div_ceil(64)))
    }

    /// Every position below `len`.
    pub(crate) fn all(len: usize) -> Self {
        let mut bits = Self(SmallVec::from_elem(u64::MAX, len.div_ceil(64)));
        if !len.is_multiple_of(64)
            && let Some(last) = bits.0.last_mut()
        {
            *last = (1 << (len % 64)) - 1;
        }
        bits
    }

    pub(crate) fn get(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(crate) fn set(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(crate) fn clear(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn and(&mut self, other: &Self) {
        for (at, word) in self.0.iter_mut().enumerate() {
            *word &= other.0.get(at).copied().unwrap_or(0);
        }
    }

    pub(crate) fn or(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// Removes the positions of `other`.
    pub(crate) fn and_not(&mut self, other: &Self) {
        for (word, less) in self.0.iter_mut().zip(&other.0) {
            *word &= !less;
        }
    }

    /// Whether both have a position.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }

    /// The positions, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    at * 64 + bit
                })
            })
        })
    }
}

impl FromIterator<usize> for Bits {
    fn from_iter<I: IntoIterator<Item = usize>>(positions: I) -> Self {
        let mut bits = Self::default();
        for at in positions {
            bits.set(at);
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_positions() {
        let mut a: Bits = [0, 63, 64, 130].into_iter().collect();
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 63, 64, 130]);
        assert_eq!(Bits::all(65).count(), 65);
        a.and(&Bits::all(65));
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 63, 64]);
        a.and_not(&Bits::all(1));
        a.clear(64);
        assert!(a.get(63) && !a.get(0) && !a.get(1000) && a.meets(&Bits::all(64)));
    }
}
