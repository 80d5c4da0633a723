//! The file systems, to who subscribes to them (`MFSMap`, `MFSMapUser`).

use super::plain::plain_message;
use crate::types::{Epoch, FsMap, FsMapUser};

plain_message! {
    MFSMap = 45, version 1, compat 1 {
        epoch: Epoch,
        map: FsMap,
    }
}

plain_message! {
    MFSMapUser = 103, version 1, compat 1 {
        epoch: Epoch,
        map: FsMapUser,
    }
}
