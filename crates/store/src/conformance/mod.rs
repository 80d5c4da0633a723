//! The suite that any store must pass.
