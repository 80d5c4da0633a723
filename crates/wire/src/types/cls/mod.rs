//! Types that object classes store, take and return. One file per class, with the class's name.

pub mod lock;
pub mod refcount;
pub mod version;
