//! Index keys and values of collections and objects.

pub mod collection;
pub mod key;
pub mod layer;
pub mod packed;
pub mod page;
pub mod record;
pub mod refcount;
