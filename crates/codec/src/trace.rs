//! A record of which bytes became what, for `shoal dencode`.

use std::cell::RefCell;

/// One primitive or envelope that a traced [`crate::Reader`] consumed. Offsets are from the outermost start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub offset: usize,
    pub len: usize,
    /// Nesting depth of this span in envelopes and labelled fields.
    pub depth: usize,
    pub text: String,
}

/// Collects spans while a value decodes. Decoding without a trace pays one untaken branch per primitive.
#[derive(Default)]
pub struct Trace {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    spans: Vec<Span>,
    depth: usize,
    label: Option<&'static str>,
}

impl Trace {
    pub fn into_spans(self) -> Vec<Span> {
        self.state.into_inner().spans
    }

    pub(crate) fn label(&self, label: &'static str) {
        self.state.borrow_mut().label = Some(label);
    }

    pub(crate) fn enter(&self) {
        self.state.borrow_mut().depth += 1;
    }

    pub(crate) fn leave(&self) {
        let mut s = self.state.borrow_mut();
        s.depth = s.depth.saturating_sub(1);
    }

    pub(crate) fn record(&self, offset: usize, len: usize, text: String) {
        let mut s = self.state.borrow_mut();
        let text = match s.label.take() {
            Some(label) => format!("{label} = {text}"),
            None => text,
        };
        let depth = s.depth;
        s.spans.push(Span { offset, len, depth, text });
    }
}
