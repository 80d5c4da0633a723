//! A device of any size that fits into a small one.
//!
//! Blocks of object data ([`crate::pattern`]) are kept as marks of four bytes in memory. All other blocks (log, headers,
//! index tables) are kept in a sparse file. Requests take the time of a modelled drive, on the soak's clock: NVMe, or a
//! rotating disk without a write cache, whose one head carries out requests in the order of their arrival.

use crate::clock::Clock;
use crate::pattern;
use bytes::Bytes;
use device::{BLOCK, BlockDevice, DeviceError, Done, Request};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

/// Times of the modelled drive.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub read_ns: u64,
    pub write_ns: u64,
    pub flush_ns: u64,
    pub read_bytes_per_us: u64,
    pub write_bytes_per_us: u64,
    /// Times of a head that moves.
    pub head: Option<Head>,
}

/// Times of a rotating disk. A request that begins where the last one ended, and came before that end, needs neither; one that
/// came later waits until its place is under the head again.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// To a neighbouring track, and over the whole disk.
    pub seek_ns_min: u64,
    pub seek_ns_max: u64,
    /// A whole rotation: half of one is the mean wait.
    pub rotation_ns: u64,
}

impl Model {
    /// A nearline drive: 7,200 rotations a minute, 200 MB/s.
    pub fn rotating() -> Model {
        let head = Head { seek_ns_min: 1_000_000, seek_ns_max: 16_000_000, rotation_ns: 8_333_333 };
        Model {
            read_ns: 0,
            write_ns: 0,
            flush_ns: 100_000,
            read_bytes_per_us: 200,
            write_bytes_per_us: 200,
            head: Some(head),
        }
    }
}

impl Head {
    /// Time until the head is over `offset` of a disk of `size` bytes.
    fn moving_ns(&self, from: u64, offset: u64, size: u64, idle_ns: u64) -> u64 {
        if from == offset {
            return match idle_ns % self.rotation_ns {
                0 => 0,
                turned => self.rotation_ns - turned,
            };
        }
        // A seek grows with the root of its distance.
        let part = (from.abs_diff(offset) as f64 / size as f64).sqrt();
        let seek = self.seek_ns_min as f64 + (self.seek_ns_max - self.seek_ns_min) as f64 * part;
        seek as u64 + self.rotation_ns / 2
    }
}

impl Default for Model {
    /// A data-centre NVMe drive with power-loss protection.
    fn default() -> Model {
        let (read_ns, write_ns, flush_ns) = (80_000, 20_000, 10_000);
        Model { read_ns, write_ns, flush_ns, read_bytes_per_us: 3_000, write_bytes_per_us: 2_000, head: None }
    }
}

/// Requests and bytes since the device was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, o: Counts) -> Counts {
        Counts {
            reads: self.reads + o.reads,
            read_bytes: self.read_bytes + o.read_bytes,
            writes: self.writes + o.writes,
            write_bytes: self.write_bytes + o.write_bytes,
            flushes: self.flushes + o.flushes,
        }
    }
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, o: Counts) -> Counts {
        Counts {
            reads: self.reads - o.reads,
            read_bytes: self.read_bytes - o.read_bytes,
            writes: self.writes - o.writes,
            write_bytes: self.write_bytes - o.write_bytes,
            flushes: self.flushes - o.flushes,
        }
    }
}

/// A handle of the device with a queue of its own. All handles share the medium.
pub struct Handle {
    medium: Rc<RefCell<Medium>>,
    clock: Clock,
    queue: BinaryHeap<Reverse<Due>>,
    /// Written when the queue changes, for the driver's idle waits.
    next_due: NextDue,
    submitted: u64,
}

/// When the next request of a handle, or of two, completes.
#[derive(Clone, Default)]
pub struct NextDue {
    moments: Rc<[std::cell::Cell<Option<u64>>; 2]>,
    is_second: bool,
}

impl NextDue {
    pub fn get(&self) -> Option<u64> {
        self.moments.iter().filter_map(std::cell::Cell::get).min()
    }

    fn second(&self) -> NextDue {
        NextDue { is_second: true, ..self.clone() }
    }

    fn set(&self, at: Option<u64>) {
        self.moments[self.is_second as usize].set(at);
    }
}

/// A request and the moment of its completion. Ordered by that moment alone.
struct Due {
    at: u64,
    serial: u64,
    token: u64,
    request: Request,
}

impl PartialEq for Due {
    fn eq(&self, o: &Due) -> bool {
        (self.at, self.serial) == (o.at, o.serial)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, o: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Due {
    fn cmp(&self, o: &Due) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(o.at, o.serial))
    }
}

/// Blocks of a zone of the medium.
const ZONE: u64 = 16 << 10;

/// A file without a name in `directory`: it is gone when the process is.
pub fn unnamed_file(directory: &Path) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Stored blocks of a zone.
#[derive(Clone)]
struct Stored {
    bits: Box<[u64]>,
    count: u64,
}

impl Stored {
    fn none() -> Stored {
        Stored { bits: vec![0; ZONE as usize / 64].into(), count: 0 }
    }

    fn set(&mut self, block: usize, is_stored: bool) {
        let (word, bit) = (&mut self.bits[block / 64], 1 << (block % 64));
        match (*word & bit != 0, is_stored) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => return,
        }
        *word ^= bit;
    }
}

pub struct Medium {
    size: u64,
    file: File,
    model: Model,
    /// Marks by zone; 0: the block is in the file.
    marks: Vec<Option<Box<[u32]>>>,
    /// Blocks that were written to the file and not overwritten by data since.
    stored: Vec<Option<Stored>>,
    /// The moments at which the drive's two directions are free.
    reads_free_at: u64,
    writes_free_at: u64,
    /// The byte under the head of a rotating disk.
    head_at: u64,
    counts: Counts,
}

impl Medium {
    /// A blank device of `size` bytes whose stored blocks go to `file`.
    pub fn new(size: u64, file: File, model: Model) -> std::io::Result<Rc<RefCell<Medium>>> {
        file.set_len(size)?;
        let zones = (size / BLOCK as u64).div_ceil(ZONE) as usize;
        Ok(Rc::new(RefCell::new(Medium {
            size,
            file,
            model,
            marks: vec![None; zones],
            stored: vec![None; zones],
            reads_free_at: 0,
            writes_free_at: 0,
            head_at: 0,
            counts: Counts::default(),
        })))
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Memory of the marks of a full device.
    pub fn marks_bytes(size: u64) -> u64 {
        size / BLOCK as u64 * size_of::<u32>() as u64
    }

    /// Memory of the model, which is not the store's.
    pub fn memory_bytes(&self) -> u64 {
        let marks = self.marks.iter().flatten().count() as u64 * ZONE * 4;
        marks + self.stored.iter().flatten().count() as u64 * ZONE / 8
    }

    fn read(&self, offset: u64, len: usize) -> Bytes {
        let mut out = Vec::with_capacity(len);
        let first = offset / BLOCK as u64;
        for block in first..first + (len / BLOCK) as u64 {
            let (zone, at) = ((block / ZONE) as usize, (block % ZONE) as usize);
            match self.marks[zone].as_ref().map_or(0, |marks| marks[at]) {
                0 => {
                    let from = out.len();
                    out.resize(from + BLOCK, 0);
                    self.file
                        .read_exact_at(&mut out[from..], block * BLOCK as u64)
                        .expect("the file is readable");
                }
                mark => pattern::regenerate(mark, &mut out),
            }
        }
        out.into()
    }

    fn write(&mut self, offset: u64, data: &codec::Rope) {
        let first = offset / BLOCK as u64;
        let mut at = 0;
        let mut buffer = [0_u8; BLOCK];
        let (mut pieces, mut rest): (_, &[u8]) = (data.pieces().iter(), &[]);
        for block in first..first + (data.len() / BLOCK) as u64 {
            while at < BLOCK {
                while rest.is_empty() {
                    rest = pieces.next().expect("as many bytes as the rope's length");
                }
                let taken = rest.len().min(BLOCK - at);
                buffer[at..at + taken].copy_from_slice(&rest[..taken]);
                rest = &rest[taken..];
                at += taken;
            }
            at = 0;
            self.write_block(block, &buffer);
        }
    }

    fn write_block(&mut self, block: u64, bytes: &[u8; BLOCK]) {
        let (zone, at) = ((block / ZONE) as usize, (block % ZONE) as usize);
        let mark = pattern::mark_of(bytes).unwrap_or(0);
        if mark != 0 || self.marks[zone].is_some() {
            self.marks[zone].get_or_insert_with(|| vec![0; ZONE as usize].into())[at] = mark;
        }
        if mark == 0 {
            self.file.write_all_at(bytes, block * BLOCK as u64).expect("the file can be written");
            self.stored[zone].get_or_insert_with(Stored::none).set(at, true);
        } else if let Some(stored) = &mut self.stored[zone] {
            stored.set(at, false);
            if stored.count == 0 {
                self.give_back(zone);
            }
        }
    }

    /// Gives the space of a zone without stored blocks back to the file system. Not block by block: a log overwrites its data
    /// and its entries in turns, and a file system may discard what it frees.
    fn give_back(&mut self, zone: usize) {
        self.stored[zone] = None;
        let (start, len) = (zone as u64 * ZONE * BLOCK as u64, ZONE * BLOCK as u64);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, how, start, len).expect("the file has holes");
    }

    /// The moment at which a request that arrives `now` completes.
    fn completion(&mut self, now: u64, request: &Request) -> u64 {
        if let Some(head) = self.model.head {
            let (offset, len) = match request {
                Request::Read { offset, len } => (*offset, *len as u64),
                Request::Write { offset, data, .. } => (*offset, data.len() as u64),
                Request::Flush | Request::Discard { .. } => {
                    return self.writes_free_at.max(now) + self.model.flush_ns;
                }
            };
            let idle = now.saturating_sub(self.writes_free_at);
            let moving = head.moving_ns(self.head_at, offset, self.size, idle);
            // One head for both directions.
            self.writes_free_at =
                self.writes_free_at.max(now) + moving + len * 1_000 / self.model.write_bytes_per_us;
            self.head_at = offset + len;
            return self.writes_free_at;
        }
        match request {
            Request::Read { len, .. } => {
                self.reads_free_at =
                    self.reads_free_at.max(now) + *len as u64 * 1_000 / self.model.read_bytes_per_us;
                self.reads_free_at + self.model.read_ns
            }
            Request::Write { data, .. } => {
                let transfer = data.len() as u64 * 1_000 / self.model.write_bytes_per_us;
                self.writes_free_at = self.writes_free_at.max(now) + transfer;
                self.writes_free_at + self.model.write_ns
            }
            Request::Flush => self.writes_free_at.max(now) + self.model.flush_ns,
            Request::Discard { .. } => now + self.model.flush_ns,
        }
    }

    fn execute(&mut self, request: &Request) -> Result<Bytes, DeviceError> {
        match request {
            Request::Read { offset, len } => {
                self.counts.reads += 1;
                self.counts.read_bytes += *len as u64;
                return Ok(self.read(*offset, *len));
            }
            Request::Write { offset, data, .. } => {
                self.counts.writes += 1;
                self.counts.write_bytes += data.len() as u64;
                self.write(*offset, data);
            }
            Request::Flush => self.counts.flushes += 1,
            Request::Discard { .. } => {}
        }
        Ok(Bytes::new())
    }
}

impl Handle {
    pub fn new(medium: &Rc<RefCell<Medium>>, clock: &Clock) -> (Handle, NextDue) {
        let next_due = NextDue::default();
        let (medium, clock) = (medium.clone(), clock.clone());
        let handle =
            Handle { medium, clock, queue: BinaryHeap::new(), next_due: next_due.clone(), submitted: 0 };
        (handle, next_due)
    }

    /// A handle that tells of its completions where another one does, too.
    pub fn beside(medium: &Rc<RefCell<Medium>>, clock: &Clock, next_due: &NextDue) -> Handle {
        let (mut handle, _) = Handle::new(medium, clock);
        handle.next_due = next_due.second();
        handle
    }

    fn note_next_due(&self) {
        self.next_due.set(self.queue.peek().map(|due| due.0.at));
    }
}

impl BlockDevice for Handle {
    fn size(&self) -> u64 {
        self.medium.borrow().size
    }

    fn submit(&mut self, token: u64, request: Request) {
        self.clock.clone().model(|| {
            let medium = &mut *self.medium.borrow_mut();
            request.check(medium.size);
            self.submitted += 1;
            let at = medium.completion(self.clock.now(), &request);
            self.queue.push(Reverse(Due { at, serial: self.submitted, token, request }));
        });
        self.note_next_due();
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        self.clock.clone().model(|| {
            while self.queue.peek().is_some_and(|due| due.0.at <= self.clock.now()) {
                let Reverse(due) = self.queue.pop().expect("just seen");
                let result = self.medium.borrow_mut().execute(&due.request);
                out.push(Done { token: due.token, result });
            }
        });
        self.note_next_due();
        !self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Durability;

    fn done(handle: &mut Handle, clock: &Clock, due: &NextDue, request: Request) -> Bytes {
        handle.submit(1, request);
        clock.wait_until(due.get().expect("a request is in flight"));
        let mut out = Vec::new();
        assert!(!handle.poll(&mut out));
        out.pop().expect("it is due").result.expect("the model has no faults")
    }

    #[test]
    fn blocks_of_both_kinds_read_back_as_written() {
        let medium =
            Medium::new(1 << 30, unnamed_file(&std::env::temp_dir()).unwrap(), Model::default()).unwrap();
        let clock = Clock::default();
        let (mut handle, due) = Handle::new(&medium, &clock);
        let mut other = vec![7; BLOCK];
        other[0] = 1;
        let mut data = pattern::block(5);
        data.push(other.clone().into());
        data.append(pattern::block(9));
        for offset in [0, 64 << 20] {
            let write = Request::Write { offset, data: data.clone(), durability: Durability::Flushed };
            done(&mut handle, &clock, &due, write);
            let read = done(&mut handle, &clock, &due, Request::Read { offset, len: 3 * BLOCK });
            assert_eq!(read, data.to_bytes());
        }
        // Each kind replaces the other.
        let swapped = Request::Write { offset: 0, data: other.clone().into(), durability: Durability::Later };
        done(&mut handle, &clock, &due, swapped);
        let swapped = Request::Write { offset: 4096, data: pattern::block(3), durability: Durability::Later };
        done(&mut handle, &clock, &due, swapped);
        let read = done(&mut handle, &clock, &due, Request::Read { offset: 0, len: 2 * BLOCK });
        assert_eq!(&read[..BLOCK], &other[..]);
        assert_eq!(pattern::mark_of(&read[BLOCK..]), Some(3));
    }

    #[test]
    fn rotating_disk_streams_and_seeks() {
        let file = unnamed_file(&std::env::temp_dir()).unwrap();
        let medium = Medium::new(1 << 30, file, Model::rotating()).unwrap();
        let write =
            |offset| Request::Write { offset, data: vec![0; 1 << 20].into(), durability: Durability::Later };
        let at = |offset| medium.borrow_mut().completion(0, &write(offset));
        let (first, second, far) = (at(0), at(1 << 20), at(900 << 20));
        assert_eq!(second - first, first, "one behind the other: at the speed of the stream");
        assert!((15_000_000..30_000_000).contains(&(far - second)), "{} ns", far - second);
    }

    #[test]
    fn completion_of_a_write_waits_for_the_drive() {
        let medium =
            Medium::new(1 << 30, unnamed_file(&std::env::temp_dir()).unwrap(), Model::default()).unwrap();
        let clock = Clock::default();
        let (mut handle, due) = Handle::new(&medium, &clock);
        let write =
            |offset| Request::Write { offset, data: vec![0; 1 << 20].into(), durability: Durability::Later };
        handle.submit(1, write(0));
        assert!(handle.poll(&mut Vec::new()));
        let first = due.get().unwrap();
        handle.submit(2, write(1 << 20));
        clock.wait_until(first);
        let mut out = Vec::new();
        assert!(handle.poll(&mut out));
        assert_eq!(out.iter().map(|done| done.token).collect::<Vec<_>>(), [1]);
        assert!(due.get().unwrap() > first);
    }
}
