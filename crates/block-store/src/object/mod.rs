//! How collections and objects are kept in the index: the keys and the values.

pub mod collection;
pub mod key;
pub mod packed;
pub mod page;
pub mod record;
pub mod refcount;
