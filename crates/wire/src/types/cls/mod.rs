//! Types that object classes store, take and return. One file or folder per class, with the class's name.

pub mod cas;
pub mod cephfs;
pub mod cmpomap;
pub mod fifo;
pub mod journal;
pub mod lock;
pub mod log;
pub mod otp;
pub mod queue;
pub mod rbd;
pub mod refcount;
pub mod rgw;
pub mod rgw_gc;
pub mod sem_set;
pub mod timeindex;
pub mod user;
pub mod version;
