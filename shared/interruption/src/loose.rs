//! Fields of which it is judged later whether their type is right.
//!
//! Whether a field's type matters depends on the envelope, which may come after it. So the first pass takes any value
//! and keeps only what could be meant; unknown fields cost nothing but skipping, and of repeated ones the last counts.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A text, or something that is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Text<'a> {
    /// Absent or `null`.
    #[default]
    Missing,
    Is(Cow<'a, str>),
    Wrong,
}

/// A list of which each element is read as `T`, or something that is no list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum List<T> {
    #[default]
    Missing,
    Is(Vec<T>),
    Wrong,
}

/// An object that is read as `T`, or something that is no object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Object<T> {
    #[default]
    Missing,
    Is(T),
    Wrong,
}

/// Fields of an object, set one by one by name.
pub(crate) trait Fields<'de>: Default {
    /// Takes the value of `name`, and must consume it.
    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// A list of texts that may also be given as one text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Texts {
    #[default]
    Fine,
    Wrong,
}

// One helper per JSON type, since serde has one method per type.
macro_rules! wrong_scalars {
    ($wrong:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($wrong)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($wrong)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($wrong)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($wrong)
        }
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }
    };
}
macro_rules! missing_null {
    ($missing:expr) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($missing)
        }
        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok($missing)
        }
    };
}
macro_rules! wrong_text {
    ($wrong:expr) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($wrong)
        }
    };
}
macro_rules! wrong_list {
    ($de:lifetime, $wrong:expr) => {
        fn visit_seq<A: SeqAccess<$de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok($wrong)
        }
    };
}
macro_rules! wrong_object {
    ($de:lifetime, $wrong:expr) => {
        fn visit_map<A: MapAccess<$de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($wrong)
        }
    };
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text::Is(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text::Is(Cow::Owned(text.to_owned())))
            }
            missing_null!(Text::Missing);
            wrong_scalars!(Text::Wrong);
            wrong_list!('de, Text::Wrong);
            wrong_object!('de, Text::Wrong);
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Texts;
            fn visit_str<E>(self, _: &str) -> Result<Texts, E> {
                Ok(Texts::Fine)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
                let mut answer = Texts::Fine;
                while let Some(element) = seq.next_element::<Text<'de>>()? {
                    if element == Text::Wrong {
                        answer = Texts::Wrong;
                    }
                }
                Ok(answer)
            }
            missing_null!(Texts::Fine);
            wrong_scalars!(Texts::Wrong);
            wrong_object!('de, Texts::Wrong);
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = List<T>;
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = seq.next_element()? {
                    list.push(element);
                }
                Ok(List::Is(list))
            }
            missing_null!(List::Missing);
            wrong_scalars!(List::Wrong);
            wrong_text!(List::Wrong);
            wrong_object!('de, List::Wrong);
        }
        deserializer.deserialize_any(Reader(std::marker::PhantomData))
    }
}

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(std::marker::PhantomData<T>);
        impl<'de, T: Fields<'de>> Visitor<'de> for Reader<T> {
            type Value = Object<T>;
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = T::default();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    fields.set(&name, &mut map)?;
                }
                Ok(Object::Is(fields))
            }
            missing_null!(Object::Missing);
            wrong_scalars!(Object::Wrong);
            wrong_text!(Object::Wrong);
            wrong_list!('de, Object::Wrong);
        }
        deserializer.deserialize_any(Reader(std::marker::PhantomData))
    }
}

/// Passes over the value of a field that nobody reads.
pub(crate) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}
