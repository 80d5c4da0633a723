//! shoal's own client: maps, placement, operations.
