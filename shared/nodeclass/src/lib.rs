//! Everything that is decided about an EC2NodeClass (`spec` aws-nodeclass 1 to 18, 21, 28 and 29).
//!
//! Selector terms become EC2 queries ([`selectors`], [`images`]), answers become status lists ([`resources`],
//! [`images`]), and [`reconcile`] turns what one pass has found into conditions. What the class contributes to a
//! launch template is in [`template`], to tags in [`tags`], its instance profiles in [`profiles`], the checks before
//! a class is Ready in [`validation`], and what makes running instances differ from their class in [`drift`].
//! [`iam`] holds the permissions of every function.
//!
//! This crate asks nobody anything: the functions make the calls that it words.

pub mod drift;
pub mod facts;
pub mod iam;
pub mod images;
pub mod profiles;
pub mod reconcile;
pub mod reservations;
pub mod resources;
pub mod selectors;
pub mod tags;
pub mod template;
pub mod validation;
