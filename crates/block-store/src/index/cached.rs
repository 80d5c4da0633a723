//! What of tables is kept in memory, and under which name.

use super::Bad;
use super::node::Node;
use crate::cache;

/// A block of a table. Table numbers are never used again, so a name means the same bytes for ever.
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
    /// Could not be read, or not believed. Only those see it who waited for it; it is read again for others.
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

/// Whatever the budget: enough for what a few hundred look-ups wait for at the same time.
pub const BUDGET_MIN: usize = if cfg!(test) { 96 << 10 } else { 1 << 20 };
