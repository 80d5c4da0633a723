//! Image files of memory stores: the objects of a memory OSD while it does not run.
//!
//! A clean stop writes `store.K.image` in the OSD's directory, one file a core. A start reads the files and removes them
//! before the OSD serves. A killed daemon leaves no image, so it comes back empty and says so. It never comes back with an
//! old state that looks whole.

use anyhow::{Context, ensure};
use conf::private;
use osd::node::stale::Scan;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use store::memory::Config;
use store::moving::remove;
use store::{MemoryStore, ObjectStore};

fn image_path(dir: &Path, core: usize) -> PathBuf {
    dir.join(format!("store.{core}.image"))
}

/// Number of images in the directory.
pub fn image_count(dir: &Path) -> usize {
    (0..).take_while(|core| image_path(dir, *core).exists()).count()
}

/// One store a core: as a clean stop left them, or empty. `bytes_total` is the size of all together.
pub fn open(dir: &Path, cores: usize, bytes_total: u64) -> anyhow::Result<Vec<MemoryStore>> {
    let config = Config::with_total(bytes_total / cores as u64);
    let count = image_count(dir);
    if count == 0 {
        return Ok((0..cores).map(|_| MemoryStore::new(config)).collect());
    }
    ensure!(
        count == cores,
        "{} was saved with {count} cores and cannot be opened with {cores}: start it with --cores {count}",
        dir.display()
    );
    let stores = load(dir, cores, bytes_total)?;
    // Number 0 first. Without it there is no set, so a start that is killed here comes back empty, not with a part.
    for core in 0..cores {
        std::fs::remove_file(image_path(dir, core))?;
    }
    File::open(dir)?.sync_all()?;
    Ok(stores)
}

/// Reads the directory's images, and leaves them there. Stale copies of PGs are removed from the stores.
pub fn load(dir: &Path, cores: usize, bytes_total: u64) -> anyhow::Result<Vec<MemoryStore>> {
    let config = Config::with_total(bytes_total / cores as u64);
    let read = |core| {
        let path = image_path(dir, core);
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        MemoryStore::load(config, &mut BufReader::with_capacity(1 << 20, file))
            .with_context(|| path.display().to_string())
    };
    let mut stores = (0..cores).map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let mut scan = Scan::new(cores);
    for (core, store) in stores.iter().enumerate() {
        scan.add(store.placed().into_iter().map(|(collection, placed)| (core, collection, placed)));
    }
    for (core, collection) in scan.stale().expect("every core has added its collections") {
        remove(&mut stores[core], collection, &mut |_| ()).with_context(|| collection.to_string())?;
    }
    Ok(stores)
}

/// Writes every store, then makes them the directory's images.
pub fn save(dir: &Path, stores: &[MemoryStore]) -> anyhow::Result<()> {
    let temporary = |core: usize| image_path(dir, core).with_extension("new");
    for (core, store) in stores.iter().enumerate() {
        let path = temporary(core);
        // A leftover would keep its own mode.
        let _ = std::fs::remove_file(&path);
        let file = private::file_options().write(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        store.save(&mut out).with_context(|| path.display().to_string())?;
        out.flush()?;
        out.get_ref().sync_all()?;
    }
    // Number 0 last, for the same reason.
    for core in (0..stores.len()).rev() {
        std::fs::rename(temporary(core), image_path(dir, core))?;
    }
    File::open(dir)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_read_once() {
        let dir = std::env::temp_dir().join(format!("shoal-images-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fresh = open(&dir, 2, 1 << 30).unwrap();
        save(&dir, &fresh).unwrap();
        assert_eq!(image_count(&dir), 2);
        let problem = open(&dir, 1, 1 << 30).err().unwrap().to_string();
        assert!(problem.contains("--cores 2"), "{problem}");
        assert_eq!(open(&dir, 2, 1 << 30).unwrap().len(), 2);
        assert_eq!(image_count(&dir), 0, "a daemon that is killed now comes back empty");

        save(&dir, &fresh).unwrap();
        std::fs::write(image_path(&dir, 1), b"shoalmem").unwrap();
        assert!(open(&dir, 2, 1 << 30).is_err(), "a damaged image is refused");
        assert_eq!(image_count(&dir), 2, "and kept");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
