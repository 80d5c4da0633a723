//! Features that a store or file system needs of its opener (`CompatSet`).

use codec::{Decode, Encode};
use std::collections::BTreeMap;

/// Features by number: bit `n` of the mask and the name at `n` go together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct FeatureSet {
    pub mask: u64,
    pub names: BTreeMap<u64, String>,
}

impl FeatureSet {
    pub fn of(features: &[(u64, &str)]) -> FeatureSet {
        FeatureSet {
            mask: features.iter().fold(0, |mask, (n, _)| mask | 1 << n),
            names: features.iter().map(|&(n, name)| (n, name.to_owned())).collect(),
        }
    }
}

/// An opener without an `incompat` feature must not open it; without an `ro_compat` one it must not write.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}
