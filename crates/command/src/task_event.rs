//! News of a task that an operator sees in the list of what is under way.

use std::collections::BTreeMap;

/// A task of a part of the manager, as that part last told it.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskEvent {
    pub id: String,
    pub message: String,
    /// The task's subject by stock's keys: image and action.
    pub refs: BTreeMap<String, String>,
    pub state: TaskState,
}

#[derive(Clone, PartialEq, Debug)]
pub enum TaskState {
    /// The share that is done, from 0 to 1.
    UnderWay(f64),
    Done,
    /// The reason of the failure.
    Failed(String),
}
