//! How each pool's objects are to be compressed: its own options, and the OSD's where it has none.

use super::{Control, Effect, Fx, Level};
use crate::options::ControlOptions;
use std::collections::{BTreeMap, BTreeSet};
use store::{Compression, CompressionAlgorithm, CompressionMode};
use wire::types::{Epoch, PoolOption, PoolOptionValue, PoolOptions};

/// What `compression_min_blob_size` and `compression_max_blob_size` are where nobody says it.
const TOGETHER_BYTES: u64 = 64 << 10;

/// `None`: not at all. `Err`: with an algorithm that we have not got.
fn of_pool(pool: &PoolOptions, own: &ControlOptions) -> Result<Option<Compression>, String> {
    let text = |option: PoolOption, own: &str| match pool.0.get(&option) {
        Some(PoolOptionValue::Text(text)) => text.clone(),
        _ => own.to_owned(),
    };
    let bytes = |option: PoolOption, own: u64| match pool.0.get(&option) {
        Some(PoolOptionValue::Integer(bytes)) if *bytes > 0 => *bytes as u64,
        _ if own == 0 => TOGETHER_BYTES,
        _ => own,
    };
    let mode = match &text(PoolOption::COMPRESSION_MODE, &own.compression_mode)[..] {
        "passive" => CompressionMode::Passive,
        "aggressive" => CompressionMode::Aggressive,
        "force" => CompressionMode::Force,
        _ => return Ok(None),
    };
    let algorithm = match &text(PoolOption::COMPRESSION_ALGORITHM, &own.compression_algorithm)[..] {
        "none" => return Ok(None),
        name => CompressionAlgorithm::of_name(name).ok_or_else(|| name.to_owned())?,
    };
    let required_ratio = match pool.0.get(&PoolOption::COMPRESSION_REQUIRED_RATIO) {
        Some(PoolOptionValue::Real(ratio)) => *ratio,
        _ => own.compression_required_ratio,
    };
    Ok(Some(Compression {
        mode,
        algorithm,
        required_ratio,
        bytes_min: bytes(PoolOption::COMPRESSION_MIN_BLOB_SIZE, own.compression_bytes_min),
        bytes_max: bytes(PoolOption::COMPRESSION_MAX_BLOB_SIZE, own.compression_bytes_max),
    }))
}

/// What the stores were told.
#[derive(Default)]
pub(super) struct Told {
    /// Of the map and of the options, when it was worked out.
    seen: (Epoch, u64),
    pools: BTreeMap<i64, Compression>,
    /// Algorithms that a pool wants and that there are not: said once.
    missed: BTreeSet<(i64, String)>,
}

impl Control {
    /// Tell the stores what has become different, when the map or an option has.
    pub(super) fn tell_compression(&mut self, fx: &mut Fx) {
        let now = (self.epoch(), self.options_seen);
        let Some(map) = self.history.map.clone().filter(|_| now != self.compression.seen) else { return };
        self.compression.seen = now;
        let mut wished: BTreeMap<i64, Compression> = BTreeMap::new();
        for (id, pool) in &map.pools {
            match of_pool(&pool.options, &self.options) {
                Ok(how) => wished.extend(how.map(|how| (*id, how))),
                Err(algorithm) if self.compression.missed.insert((*id, algorithm.clone())) => {
                    let known = CompressionAlgorithm::ALL.map(CompressionAlgorithm::name).join(", ");
                    let text = format!(
                        "pool {id} is not compressed: there is no {algorithm}, but there are {known}"
                    );
                    self.log(Level::Warn, text, fx);
                }
                Err(_) => {}
            }
        }
        if wished != self.compression.pools {
            self.compression.pools = wished.clone();
            fx.push(Effect::Compression { pools: wished });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::options::{Identity, Layers, Source};

    #[test]
    fn pool_options_come_before_those_of_the_osd() {
        let mut layers = Layers::new(Identity::named("osd.0"));
        let local =
            [("bluestore_compression_mode", "aggressive"), ("bluestore_compression_min_blob_size", "16384")];
        layers.fill(Source::File, local);
        let own = ControlOptions::read(&layers);
        let mut pool = PoolOptions::default();
        let expected = Compression {
            mode: CompressionMode::Aggressive,
            algorithm: CompressionAlgorithm::Snappy,
            required_ratio: 0.875,
            bytes_min: 16384,
            bytes_max: 65536,
        };
        assert_eq!(of_pool(&pool, &own), Ok(Some(expected)));
        let text = |text: &str| PoolOptionValue::Text(text.into());
        pool.0.insert(PoolOption::COMPRESSION_MODE, text("force"));
        pool.0.insert(PoolOption::COMPRESSION_ALGORITHM, text("zstd"));
        pool.0.insert(PoolOption::COMPRESSION_REQUIRED_RATIO, PoolOptionValue::Real(0.5));
        pool.0.insert(PoolOption::COMPRESSION_MIN_BLOB_SIZE, PoolOptionValue::Integer(8192));
        let expected = Compression {
            mode: CompressionMode::Force,
            algorithm: CompressionAlgorithm::Zstd,
            required_ratio: 0.5,
            bytes_min: 8192,
            ..expected
        };
        assert_eq!(of_pool(&pool, &own), Ok(Some(expected)));
        pool.0.insert(PoolOption::COMPRESSION_MODE, text("none"));
        assert_eq!(of_pool(&pool, &own), Ok(None));
        pool.0.insert(PoolOption::COMPRESSION_MODE, text("force"));
        for algorithm in CompressionAlgorithm::ALL {
            pool.0.insert(PoolOption::COMPRESSION_ALGORITHM, text(algorithm.name()));
            assert_eq!(of_pool(&pool, &own).map(|how| how.map(|how| how.algorithm)), Ok(Some(algorithm)));
        }
        pool.0.insert(PoolOption::COMPRESSION_ALGORITHM, text("brotli"));
        assert_eq!(of_pool(&pool, &own), Err("brotli".into()));
    }
}
