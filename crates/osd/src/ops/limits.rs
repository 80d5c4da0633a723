//! The bounds that configuration sets on one operation. Names and defaults are Ceph's.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_object_size: u64,
    pub max_object_name_len: usize,
    pub max_object_namespace_len: usize,
    pub max_attr_name_len: usize,
    /// 0: no bound.
    pub max_attr_size: usize,
    pub max_omap_entries_per_request: usize,
    pub max_omap_bytes_per_request: usize,
    pub max_write_op_reply_len: usize,
    pub max_write_size: usize,
    /// Of keys and values in one request: what the store can take at once. Not Ceph's, whose store takes any.
    pub max_metadata_size: u64,
    pub max_pgls: usize,
    pub client_watch_timeout_s: u32,
    pub default_notify_timeout_s: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_object_size: 128 << 20,
            max_object_name_len: 2048,
            max_object_namespace_len: 256,
            max_attr_name_len: 100,
            max_attr_size: 0,
            max_omap_entries_per_request: 1024,
            max_omap_bytes_per_request: 1 << 30,
            max_write_op_reply_len: 64,
            max_write_size: 90 << 20,
            max_metadata_size: u64::MAX,
            max_pgls: 1024,
            client_watch_timeout_s: 30,
            default_notify_timeout_s: 30,
        }
    }
}

impl Limits {
    /// How many omap entries a request that asks for `wanted` gets at most.
    pub fn omap_entries(&self, wanted: u64) -> usize {
        usize::try_from(wanted).unwrap_or(usize::MAX).min(self.max_omap_entries_per_request)
    }
}
