//! Collections that remember whether they were written at all: `{}` is not the same as nothing in a hash.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list or map that may be absent, empty, or filled. Reads like the collection itself.
///
/// `null` counts as absent. Anything put into an absent one makes it present.
#[derive(Clone, Debug, Default)]
pub struct Present<T> {
    value: T,
    written: bool,
}

/// What [`Present`] has to know of a collection.
pub trait Collection: Default {
    fn is_empty(&self) -> bool;
}

impl<T> Collection for Vec<T> {
    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl<K, V> Collection for std::collections::BTreeMap<K, V> {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Collection> Present<T> {
    /// Whether the field was written, if only as `[]` or `{}`.
    pub fn is_present(&self) -> bool {
        self.written || !self.value.is_empty()
    }

    /// Whether the field was left out: for `skip_serializing_if`.
    pub fn is_absent(&self) -> bool {
        !self.is_present()
    }

    /// The collection, if the field was written.
    pub fn as_option(&self) -> Option<&T> {
        self.is_present().then_some(&self.value)
    }

    /// The collection alone.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> From<T> for Present<T> {
    fn from(value: T) -> Self {
        Self { value, written: true }
    }
}

impl<T: Collection + PartialEq> PartialEq for Present<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_option() == other.as_option()
    }
}

impl<T: Collection + Eq> Eq for Present<T> {}

impl<T> Deref for Present<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Present<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<'a, T> IntoIterator for &'a Present<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;
    fn into_iter(self) -> Self::IntoIter {
        (&self.value).into_iter()
    }
}

impl<T: IntoIterator> IntoIterator for Present<T> {
    type Item = T::Item;
    type IntoIter = T::IntoIter;
    fn into_iter(self) -> Self::IntoIter {
        self.value.into_iter()
    }
}

impl<A, T: FromIterator<A>> FromIterator<A> for Present<T> {
    fn from_iter<I: IntoIterator<Item = A>>(items: I) -> Self {
        items.into_iter().collect::<T>().into()
    }
}

impl<T: Serialize> Serialize for Present<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for Present<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map_or_else(Self::default, Self::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_empty_and_filled_are_told_apart() {
        let read = |text: &str| serde_json::from_str::<Present<Vec<i32>>>(text).expect("valid");
        assert!(read("null").is_absent() && read("[]").is_present() && read("[1]").is_present());
        assert_ne!(read("null"), read("[]"));
        let mut filled = Present::<Vec<i32>>::default();
        filled.push(1);
        assert_eq!(filled, vec![1].into());
        assert_eq!(filled.iter().sum::<i32>(), 1);
    }
}
