//! What object classes store, take and return. One file a class, named as the class is.

pub mod lock;
pub mod refcount;
pub mod version;
