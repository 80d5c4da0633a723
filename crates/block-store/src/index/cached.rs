//! Cached nodes of tables.

use super::Bad;
use super::node::Node;
use crate::cache;

/// Name of a node. Table numbers are never reused, so a name always has the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub table: u64,
    pub unit: u64,
}

impl cache::Name for Name {
    #[inline]
    fn hash(self) -> u64 {
        cache::mix(self.unit, self.table)
    }
}

#[derive(Clone, Debug)]
pub enum Entry {
    Node(Node),
    /// Unreadable or corrupt. Only its waiters see it; for others it is read again.
    Bad(Bad),
}

impl cache::Entry for Entry {
    fn bytes(&self) -> usize {
        match self {
            Entry::Node(node) => node.bytes(),
            Entry::Bad(_) => 0,
        }
    }

    fn is_passing(&self) -> bool {
        matches!(self, Entry::Bad(_))
    }
}

pub type Cache = cache::Cache<Name, Entry>;

/// Smallest budget: enough for a few hundred waiting look-ups.
pub const BUDGET_MIN: usize = if cfg!(test) { 96 << 10 } else { 1 << 20 };
