//! What the comparisons with Ceph's own tools share: random maps, and how to run a tool.
#![allow(dead_code)] // each comparison uses its part

pub mod random_map;

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder of this test's own, removed at its end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        Scratch::under("", name)
    }

    /// In the temporary folder of another root.
    pub fn under(root: &str, name: &str) -> Scratch {
        let path = format!("{root}{}/shoal-{name}-{}", std::env::temp_dir().display(), std::process::id());
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

/// Run one of Ceph's tools; `None`, with a word about it, where it is not installed.
///
/// `SHOAL_CEPH_ROOT` names a folder with another release to be run in by `chroot`.
pub fn tool(name: &str, args: &[&str]) -> Option<Output> {
    let run = match std::env::var("SHOAL_CEPH_ROOT") {
        Ok(root) => Command::new("chroot").arg(root).arg(name).args(args).output(),
        Err(_) => Command::new(name).args(args).output(),
    };
    match run {
        Ok(output) => Some(output),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {name} is not installed");
            None
        }
        Err(e) => panic!("{name}: {e}"),
    }
}

/// Standard output and standard error of a run that must have succeeded.
pub fn text(what: &str, output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what} failed: {text}");
    text
}
