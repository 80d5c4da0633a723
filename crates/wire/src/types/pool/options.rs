//! Options that a pool may set for itself (`pool_opts_t`): scrub intervals, compression, autoscaler hints, ….

use ::codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// An option's number. One that shoal does not know survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PoolOption(pub i32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolOptionKind {
    Text,
    Integer,
    Real,
}

#[derive(Clone, PartialEq, Debug)]
pub enum PoolOptionValue {
    Text(String),
    Integer(i64),
    Real(f64),
}

macro_rules! options {
    ($($name:ident = $number:literal, $text:literal, $kind:ident;)*) => {
        impl PoolOption {
            $(pub const $name: PoolOption = PoolOption($number);)*
            /// Every option that `ceph osd pool set` takes: number, name and kind.
            pub const ALL: &[(PoolOption, &str, PoolOptionKind)] =
                &[$((PoolOption($number), $text, PoolOptionKind::$kind),)*];
        }
    };
}

options! {
    SCRUB_MIN_INTERVAL = 0, "scrub_min_interval", Real;
    SCRUB_MAX_INTERVAL = 1, "scrub_max_interval", Real;
    DEEP_SCRUB_INTERVAL = 2, "deep_scrub_interval", Real;
    RECOVERY_PRIORITY = 3, "recovery_priority", Integer;
    RECOVERY_OP_PRIORITY = 4, "recovery_op_priority", Integer;
    SCRUB_PRIORITY = 5, "scrub_priority", Integer;
    COMPRESSION_MODE = 6, "compression_mode", Text;
    COMPRESSION_ALGORITHM = 7, "compression_algorithm", Text;
    COMPRESSION_REQUIRED_RATIO = 8, "compression_required_ratio", Real;
    COMPRESSION_MAX_BLOB_SIZE = 9, "compression_max_blob_size", Integer;
    COMPRESSION_MIN_BLOB_SIZE = 10, "compression_min_blob_size", Integer;
    CSUM_TYPE = 11, "csum_type", Integer;
    CSUM_MAX_BLOCK = 12, "csum_max_block", Integer;
    CSUM_MIN_BLOCK = 13, "csum_min_block", Integer;
    FINGERPRINT_ALGORITHM = 14, "fingerprint_algorithm", Text;
    PG_NUM_MIN = 15, "pg_num_min", Integer;
    TARGET_SIZE_BYTES = 16, "target_size_bytes", Integer;
    TARGET_SIZE_RATIO = 17, "target_size_ratio", Real;
    PG_AUTOSCALE_BIAS = 18, "pg_autoscale_bias", Real;
    READ_LEASE_INTERVAL = 19, "read_lease_interval", Real;
    DEDUP_TIER = 20, "dedup_tier", Integer;
    DEDUP_CHUNK_ALGORITHM = 21, "dedup_chunk_algorithm", Text;
    DEDUP_CDC_CHUNK_SIZE = 22, "dedup_cdc_chunk_size", Integer;
    PG_NUM_MAX = 23, "pg_num_max", Integer;
    READ_RATIO = 24, "read_ratio", Integer;
    PCT_UPDATE_DELAY = 25, "pct_update_delay", Integer;
}

impl PoolOption {
    pub fn by_name(name: &str) -> Option<(PoolOption, PoolOptionKind)> {
        PoolOption::ALL.iter().find(|(_, text, _)| *text == name).map(|&(option, _, kind)| (option, kind))
    }

    pub fn name(self) -> Option<&'static str> {
        PoolOption::ALL.iter().find(|(option, ..)| *option == self).map(|&(_, text, _)| text)
    }
}

/// The options that are set.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PoolOptions(pub BTreeMap<PoolOption, PoolOptionValue>);

const KIND_TEXT: i32 = 0;
const KIND_INTEGER: i32 = 1;
const KIND_REAL: i32 = 2;

/// Version 2, with integers of 64 bits, is in every release since Nautilus.
impl Encode for PoolOptions {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.count(self.0.len());
            for (option, value) in &self.0 {
                w.i32(option.0);
                match value {
                    PoolOptionValue::Text(s) => {
                        w.i32(KIND_TEXT);
                        w.string(s);
                    }
                    PoolOptionValue::Integer(n) => {
                        w.i32(KIND_INTEGER);
                        w.i64(*n);
                    }
                    PoolOptionValue::Real(x) => {
                        w.i32(KIND_REAL);
                        w.f64(*x);
                    }
                }
            }
        });
    }
}

impl Decode for PoolOptions {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("pool_opts_t", 2, |r, version| {
            let mut options = BTreeMap::new();
            for _ in 0..r.count("pool options", 12)? {
                let option = PoolOption(r.i32()?);
                let value = match r.i32()? {
                    KIND_TEXT => PoolOptionValue::Text(r.string()?),
                    KIND_INTEGER if version >= 2 => PoolOptionValue::Integer(r.i64()?),
                    KIND_INTEGER => PoolOptionValue::Integer(r.i32()?.into()),
                    KIND_REAL => PoolOptionValue::Real(r.f64()?),
                    kind => return Err(r.invalid("pool option kind", kind)),
                };
                options.insert(option, value);
            }
            Ok(PoolOptions(options))
        })
    }
}
