//! Helpers for the comparisons with Ceph's own tools: random maps, and a runner for a tool.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the maps go to stock's tools as files"
)]
#![allow(dead_code)] // each comparison uses its part

pub mod random_map;

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder of this test's own, removed at its end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        Scratch::of(Stock::Path, name)
    }

    /// In a release's temporary folder.
    pub fn of(stock: Stock, name: &str) -> Scratch {
        let path =
            format!("{}{}/shoal-{name}-{}", stock.root(), std::env::temp_dir().display(), std::process::id());
        let path = PathBuf::from(path);
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        Scratch(path)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("the temporary folder can be written");
        path.to_str().expect("a UTF-8 path").to_owned()
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a UTF-8 path").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The origin of Ceph's tools.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stock {
    /// The release on the `PATH`.
    Path,
    /// Release 20.2 in the folder that `SHOAL_CEPH20` names, entered with `chroot`.
    Tentacle,
}

impl Stock {
    /// The folder of the release; empty for the release on the `PATH`.
    pub fn root(self) -> String {
        match self {
            Stock::Path => String::new(),
            Stock::Tentacle => {
                std::env::var("SHOAL_CEPH20").expect("the test is skipped without SHOAL_CEPH20")
            }
        }
    }

    /// Runs one of Ceph's tools. A test calls [`needs!`] first.
    pub fn tool(self, name: &str, args: &[&str]) -> Output {
        let mut command = match self {
            Stock::Path => Command::new(name),
            Stock::Tentacle => Command::new("chroot"),
        };
        if self == Stock::Tentacle {
            command.arg(self.root()).arg(name);
        }
        command.args(args).output().unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Skips the test if a release's tool is not here: `needs!(Stock::Path, "crushtool")`.
#[macro_export]
macro_rules! needs {
    (Stock::Path, $tool:expr) => {
        skip::need_program!($tool)
    };
    (Stock::Tentacle, $tool:expr) => {
        match std::env::var_os("SHOAL_CEPH20") {
            None => skip::skip!("SHOAL_CEPH20 names no folder with Ceph 20.2"),
            Some(root) => {
                let program = std::path::Path::new(&root).join("usr/bin").join($tool);
                assert!(program.exists(), "SHOAL_CEPH20 has no {}", program.display());
            }
        }
    };
}

/// Standard output and standard error of a run that must have succeeded.
pub fn text(what: &str, output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what} failed: {text}");
    text
}
