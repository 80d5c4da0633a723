//! The simulator: production machines, one thread, one seed.
