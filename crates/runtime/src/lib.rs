//! Reactors, sockets, timers: the only crate that touches the operating system on the data path.
