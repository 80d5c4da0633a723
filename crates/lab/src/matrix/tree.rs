//! YAML as a tree whose errors name line and column. The place of a key is looked up only for an error.

use serde_json::Value;
use std::fmt;

/// An error in a file, with its place. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    pub column: usize,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for Problem {}

pub(super) struct Tree {
    pub(super) root: Value,
    text: String,
}

impl Tree {
    pub(super) fn parse(text: &str) -> Result<Tree, Problem> {
        let root: Value = serde_saphyr::from_str(text).map_err(|error| {
            let at = error.location();
            // The parser also draws the place; its first line is the error.
            let what = error.to_string().lines().next().unwrap_or("no YAML").to_owned();
            Problem {
                line: at.map_or(1, |at| at.line() as usize),
                column: at.map_or(1, |at| at.column() as usize),
                what,
            }
        })?;
        let tree = Tree { root, text: text.to_owned() };
        if !tree.root.is_object() {
            return Err(Problem { line: 1, column: 1, what: "expected keys and values at the top".into() });
        }
        Ok(tree)
    }

    /// A problem at a key, named by the keys that lead to it; numbers step into lists.
    pub(super) fn problem(&self, path: &[&str], what: impl Into<String>) -> Problem {
        let (line, column) = self.locate(path);
        Problem { line, column, what: what.into() }
    }

    /// The deepest key of the path that can be found: block style is followed by its indentation.
    fn locate(&self, path: &[&str]) -> (usize, usize) {
        let lines: Vec<&str> = self.text.lines().collect();
        let (mut at, mut indent, mut found) = (0, None::<usize>, (1, 1));
        for key in path {
            let item = key.parse::<usize>().ok();
            let mut seen = 0;
            let hit = lines.iter().enumerate().skip(at).find_map(|(n, line)| {
                let content = line.trim_start();
                let here = line.len() - content.len();
                if indent.is_some_and(|indent| here < indent) || content.starts_with('#') {
                    return None;
                }
                if let Some(item) = item {
                    if content.starts_with("- ") && seen == item {
                        return Some((n, here));
                    }
                    seen += usize::from(content.starts_with("- "));
                    return None;
                }
                let (content, here) = match content.strip_prefix("- ") {
                    Some(rest) => (rest.trim_start(), line.len() - rest.trim_start().len()),
                    None => (content, here),
                };
                let bare = content.trim_start_matches(['"', '\'']);
                let rest = bare.strip_prefix(key)?.trim_start_matches(['"', '\'']);
                rest.trim_start().starts_with(':').then_some((n, here))
            });
            let Some((line, here)) = hit else { break };
            found = (line + 1, here + 1);
            at = if item.is_some() { line } else { line + 1 };
            indent = Some(if item.is_some() { here } else { here.min(indent.unwrap_or(0)) });
        }
        found
    }
}

/// A value, or each of a list of them: any key may be an axis.
pub(super) fn axis(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    }
}

pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
