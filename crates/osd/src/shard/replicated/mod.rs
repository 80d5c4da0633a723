//! Replication: what the shards of several OSDs do together for one PG.
//!
//! ```text
//! interval ─▶ peering ─▶ activation ─▶ writes, recovery, backfill ─▶ clean
//! ```
//! A new interval of the map drops the PG's role and gives it another one (`interval`). The primary of an interval finds the
//! authoritative copy (`peering`, `choose`, `unacknowledged`), makes every member take over its log (`activation`), serves and
//! replicates writes (`writes`), and brings members the objects that they lack: those that the log names (`recovery`), or all of
//! them (`backfill`), each object in bounded steps (`transfer`). An object that its disk has damaged comes from another member
//! (`repair`). A member whose copy cannot be read gets a new one (`release`). The operator may give up objects that no reachable OSD
//! has (`lost`). Recovery and backfill begin with a place here
//! and on every target (`reservation`, `places`), in the order of priorities, and pace themselves (`pace`). A primary answers reads
//! while its members let it (`leases`), and so do replicas, where clients ask for that (`copy_reads`). The PG's backend tells what each member's store gets and which stores answer a read
//! (`reads`).
//!
//! The primary of a clean PG compares its copies from time to time, and replaces bad ones (`scrub`).
//!
//! Statements between OSDs carry the interval that they belong to; a receiver in another interval drops or keeps them
//! (`statements`). Links lose statements when they break. Whoever waits for an answer then asks again, and every statement
//! may come twice.

mod activation;
mod backfill;
pub mod choose;
mod copy_reads;
mod interval;
mod leases;
mod lost;
mod pace;
mod peering;
mod places;
mod push_queue;
mod reads;
mod recovery;
mod release;
mod repair;
mod reservation;
mod scan;
mod scrub;
mod space;
mod statements;
mod status;
mod transfer;
mod trimming;
mod unacknowledged;
mod writes;

pub use copy_reads::CopyReads;
pub(super) use leases::Leases;
pub use leases::{LEASE_KEPT, LeaseNews, READ_LEASE, READ_LEASE_MARGIN};
pub(super) use lost::UnfoundList;
pub use lost::{MarkAnswer, UnfoundObject, UnfoundPage};
pub use pace::Pauses;
pub use push_queue::PushCharge;
pub(super) use push_queue::{PushQueue, PushStep, WaitingPush};
#[cfg(feature = "erasure-trial")]
pub(super) use reads::{Gather, ShardReading};
pub(super) use repair::InfoRead;
pub use reservation::PlacesInUse;
pub(super) use reservation::Reservations;
pub use scan::BACKFILL_SCAN_MAX;
pub(super) use scan::ScanStep;
pub use scrub::{Scrub, ScrubRecords, ScrubTimes, ScrubWish, Survey};
pub(super) use scrub::{ScrubPlaces, SurveyStep};
pub(super) use statements::Early;
pub use status::{PeerStatus, PgStatus, ProgressStatus};
pub(super) use transfer::TransferStep;
pub use trimming::Trims;
pub(super) use trimming::{TrimPlaces, TrimStep};
