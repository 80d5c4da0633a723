//! Text as the field's tools print it: people parse it, so its shapes are part of the protocol.
//!
//! [`Table`] aligns columns, [`Bytes`] and [`Si`] shorten numbers, [`Age`] a duration, [`Weight`] a CRUSH weight;
//! [`stamp`] and [`parse_stamp`] a point in time, [`Request`] a client's request to an OSD; [`ObjectShare`], [`ClientIo`] and
//! [`RecoveryIo`] tell sums over placement groups.

mod number;
mod pg_sum;
mod request;
mod table;
mod time;

pub use number::{Bytes, LowPrecision, Si, Weight};
pub use pg_sum::{ClientIo, ObjectShare, RecoveryIo};
pub use request::{Operation, Request};
pub use table::{Align, Table};
pub use time::{Age, asctime, parse_stamp, stamp};

/// `[1,2,3]`: a list of OSDs.
pub fn osd_list(osds: &[i32]) -> String {
    let items: Vec<String> = osds.iter().map(i32::to_string).collect();
    format!("[{}]", items.join(","))
}
