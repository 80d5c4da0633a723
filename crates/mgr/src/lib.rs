//! The manager: PG statistics, command target, progress.
