//! Files and directories that only their owner can read, whatever the umask: keys, stores and logs.
//!
//! A file is created with its mode; it is never wider for a moment. [`narrow_tree`] narrows files that an
//! earlier version left wider.

use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use rustix::process::umask;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The bits of everybody but the owner.
const OTHERS: u32 = 0o077;
/// Bound of [`narrow_tree`]'s recursion. A daemon's directory is flat.
const DEPTH_MAX: usize = 16;

/// From now on nothing that this process creates can be read by others. A second safeguard behind explicit modes, and the
/// only one for what libraries create.
pub fn restrict_process() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Options to open a file that is created for its owner alone.
pub fn file_options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE_MODE);
    options
}

/// Makes a directory and those above it, each for its owner alone. Those that are there stay as they are.
pub fn create_dir_all(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Replaces a file in one step; it is on the disk when this returns.
pub fn replace(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    // A leftover would keep its own mode.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = file_options().write(true).create_new(true).open(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

/// Takes everybody else's permissions off a file or directory; true if there were any. Links and special files are left
/// alone. An error where it stays readable by others: it belongs to another user.
pub fn narrow(path: &Path) -> anyhow::Result<bool> {
    let Ok(there) = path.symlink_metadata() else { return Ok(false) };
    let is_ours_to_judge = there.is_file() || there.is_dir();
    if !is_ours_to_judge || there.mode() & OTHERS == 0 {
        return Ok(false);
    }
    let narrowed = (|| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(there.mode() & 0o777 & !OTHERS))
    })();
    narrowed.with_context(|| {
        format!(
            "{} can be read by other users (mode {:o}) and belongs to user {}: run `chmod go= {0}` as its owner",
            path.display(),
            there.mode() & 0o777,
            there.uid()
        )
    })?;
    Ok(true)
}

/// [`narrow`]s a directory and everything in it. Returns the paths that had been wider.
pub fn narrow_tree(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut narrowed = Vec::new();
    narrow_below(directory, DEPTH_MAX, &mut narrowed)?;
    Ok(narrowed)
}

fn narrow_below(path: &Path, depth: usize, narrowed: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if narrow(path)? {
        narrowed.push(path.to_owned());
    }
    if depth == 0 || !path.symlink_metadata().is_ok_and(|there| there.is_dir()) {
        return Ok(());
    }
    // A directory that we cannot read is root's own: `lost+found`.
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
    for entry in entries {
        narrow_below(&entry?.path(), depth - 1, narrowed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("shoal-private-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o777
    }

    fn widen(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn created_files_are_private_under_any_umask() {
        let scratch = Scratch::new("created");
        // Threads of other tests see this umask too: it is wider, and they set their modes themselves.
        let before = umask(Mode::empty());
        let directory = scratch.0.join("a/b");
        create_dir_all(&directory).unwrap();
        let file = directory.join("file");
        file_options().write(true).create(true).truncate(false).open(&file).unwrap();
        let replaced = directory.join("replaced");
        std::fs::write(directory.join("replaced.new"), "a leftover with a wide mode").unwrap();
        replace(&replaced, b"contents").unwrap();
        umask(before);
        assert_eq!((mode(&scratch.0.join("a")), mode(&directory)), (0o700, 0o700));
        assert_eq!((mode(&file), mode(&replaced)), (0o600, 0o600));
        assert_eq!(std::fs::read(&replaced).unwrap(), b"contents");
    }

    #[test]
    fn tree_is_narrowed_once_and_links_are_left_alone() {
        let scratch = Scratch::new("narrowed");
        let outside = Scratch::new("outside");
        let inside = scratch.0.join("store");
        std::fs::create_dir(&inside).unwrap();
        for (path, wide) in [(inside.join("log.redb"), 0o644), (inside.join("block"), 0o640)] {
            std::fs::write(&path, "keys").unwrap();
            widen(&path, wide);
        }
        let device = outside.0.join("device");
        std::fs::write(&device, "").unwrap();
        widen(&device, 0o666);
        std::os::unix::fs::symlink(&device, inside.join("link")).unwrap();
        widen(&inside, 0o755);
        widen(&scratch.0, 0o700);

        let narrowed = narrow_tree(&scratch.0).unwrap();
        assert_eq!(narrowed.len(), 3, "{narrowed:?}");
        assert_eq!((mode(&inside), mode(&inside.join("log.redb"))), (0o700, 0o600));
        assert_eq!(mode(&inside.join("block")), 0o600);
        assert_eq!(mode(&device), 0o666, "what a link leads to is not ours");
        assert!(narrow_tree(&scratch.0).unwrap().is_empty());
    }
}
