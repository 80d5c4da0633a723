//! The monitor: a replicated log of commands over a pure state machine.
