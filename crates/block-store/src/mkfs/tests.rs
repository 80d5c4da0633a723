use super::*;
use crate::format::{DeviceRole, Identity, SuperblockError};
use crate::read_superblock;
use crate::shard::tests::disks::{Disks, Several};
use crate::shard::tests::new_keys;
use device::simulated::{Pace, Simulated};
use device::{Durability, Request};

const SIZE: u64 = 16 << 20;

fn options(label: &str) -> FormatOptions {
    FormatOptions {
        identity: Identity([3; 16]),
        label: label.into(),
        shards: 2,
        log_bytes: Some(1 << 20),
        zone_bytes: Some(256 << 10),
        discard: false,
        encryption: None,
        devices: Vec::new(),
    }
}

fn write(device: &mut Simulated, offset: u64, data: Vec<u8>) {
    device.submit(0, Request::Write { offset, data: data.into(), durability: Durability::Flushed });
    while device.poll(&mut Vec::new()) {}
}

/// Writes all copies of the superblock.
fn write_copies(device: &mut Simulated, block: &[u8]) {
    for copy in [0, 1, SIZE / BLOCK as u64 - 1] {
        write(device, copy * BLOCK as u64, block.to_vec());
    }
}

/// Zeroes at both ends. In between, a simulated device holds what no test wrote: not zeroes.
fn blank(size: u64) -> Simulated {
    let mut device = Simulated::new(size, Pace::AtOnce, 1);
    write(&mut device, 0, vec![0; END_BYTES as usize]);
    write(&mut device, size - END_BYTES, vec![0; END_BYTES as usize]);
    device
}

fn put(device: &Simulated, offset: u64, bytes: &[u8]) {
    let within = (offset % BLOCK as u64) as usize;
    device.poke(offset, |block| block[within..within + bytes.len()].copy_from_slice(bytes));
}

fn contents(device: &Simulated) -> Contents {
    probe(&mut device.clone(), &[], &mut || ())
}

fn findings(device: &Simulated) -> Vec<Finding> {
    match contents(device) {
        Contents::Foreign(findings) => findings,
        other => panic!("{other:?}"),
    }
}

fn formatted(device: &Simulated) -> Superblock {
    format(&mut device.clone(), &options("osd.1"), &mut || ()).unwrap()
}

#[test]
fn zeroed_ends_without_signature_are_blank() {
    assert_eq!(contents(&blank(SIZE)), Contents::Blank);
    assert_eq!(contents(&blank(END_BYTES)), Contents::Blank);
}

#[test]
fn formatted_device_holds_its_store() {
    let device = Simulated::new(SIZE, Pace::AtOnce, 1);
    let superblock = formatted(&device);
    assert_eq!(contents(&device), Contents::Store(superblock));
}

#[test]
fn one_damaged_superblock_copy_is_still_a_store() {
    for copy in [0, 1, SIZE / BLOCK as u64 - 1] {
        let mut device = blank(SIZE);
        let superblock = formatted(&device);
        write(&mut device, copy * BLOCK as u64, vec![7; BLOCK]);
        assert_eq!(contents(&device), Contents::Store(superblock.clone()));
        device.fail_reads(copy * BLOCK as u64..copy * BLOCK as u64 + 1);
        assert_eq!(contents(&device), Contents::Store(superblock));
    }
}

#[test]
fn damaged_superblock_is_named() {
    let mut device = blank(SIZE);
    let mut damaged = formatted(&device).encode().unwrap();
    damaged[20] ^= 1;
    write_copies(&mut device, &damaged);
    assert_eq!(findings(&device), [Finding::Superblock(SuperblockError::Checksum(2))]);
}

#[test]
fn newer_superblock_is_named_with_its_version() {
    let mut device = blank(SIZE);
    let mut newer = formatted(&device).encode().unwrap();
    newer[8] = 4;
    let sum = crate::checksum::crc32c(&newer[..BLOCK - 4]);
    newer[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    write_copies(&mut device, &newer);
    assert_eq!(findings(&device), [Finding::Superblock(SuperblockError::Version(4))]);
    // Of a format that keeps its checksum elsewhere.
    newer[BLOCK - 1] ^= 1;
    write_copies(&mut device, &newer);
    assert_eq!(findings(&device), [Finding::Superblock(SuperblockError::Checksum(4))]);
}

#[test]
fn store_on_a_shrunk_device_is_named() {
    let large = blank(SIZE);
    let superblock = formatted(&large);
    let mut device = blank(SIZE / 2);
    write(&mut device, 0, superblock.encode().unwrap());
    let shrunk = SuperblockError::Shrunk { stored: SIZE, device: SIZE / 2 };
    assert_eq!(findings(&device), [Finding::Superblock(shrunk)]);
}

#[test]
fn zeroed_superblock_leaves_the_shard_header_as_finding() {
    let mut device = blank(SIZE);
    formatted(&device);
    write_copies(&mut device, &[0; BLOCK]);
    assert_eq!(findings(&device), [Finding::ShardHeader]);
}

#[test]
fn foreign_signatures_are_named_with_their_places() {
    let device = blank(SIZE);
    put(&device, 512, b"EFI PART");
    put(&device, SIZE - 512, b"EFI PART");
    put(&device, 64 * 1024 + 0x40, b"_BHRfS_M");
    let names = [
        ("GPT partition table", 512),
        ("Btrfs file system", 64 * 1024 + 0x40),
        ("backup of a GPT partition table", SIZE - 512),
    ];
    assert_eq!(findings(&device), names.map(|(name, offset)| Finding::Signature { name, offset }));
}

#[test]
fn second_luks_header_behind_a_zeroed_first_mib_is_named() {
    let device = blank(SIZE);
    put(&device, 2 << 20, b"SKUL\xba\xbe");
    let name = "second LUKS2 encryption header";
    assert_eq!(findings(&device), [Finding::Signature { name, offset: 2 << 20 }]);
}

/// A device of an odd number of sectors has its last signatures behind the last whole block.
#[test]
fn signatures_behind_the_last_block_are_named() {
    let of_tail = |tail: &[u8]| probe(&mut blank(SIZE), tail, &mut || ());
    for sectors in 1..8 {
        let mut tail = vec![0; sectors * 512];
        assert_eq!(of_tail(&tail), Contents::Blank);
        let offset = SIZE + tail.len() as u64 - 512;
        tail[sectors * 512 - 512..][..8].copy_from_slice(b"EFI PART");
        let name = "backup of a GPT partition table";
        assert_eq!(of_tail(&tail), Contents::Foreign(vec![Finding::Signature { name, offset }]));
        tail[sectors * 512 - 512] = b'x';
        assert_eq!(of_tail(&tail), Contents::Foreign(vec![Finding::Data { offset }]));
    }
}

#[test]
fn data_without_signature_is_not_blank() {
    for offset in [0, 100_000, END_BYTES - 1, SIZE - END_BYTES, SIZE - 1] {
        let device = blank(SIZE);
        put(&device, offset, &[1]);
        assert_eq!(findings(&device), [Finding::Data { offset }]);
    }
}

#[test]
fn unreadable_block_at_either_end_is_not_blank() {
    for (offset, range) in [(8192, 9000..9001), (SIZE - 8192, SIZE - 8192..SIZE)] {
        let device = blank(SIZE);
        device.fail_reads(range.clone());
        let blocks = range.end.div_ceil(BLOCK as u64) - range.start / BLOCK as u64;
        assert_eq!(findings(&device), [Finding::Unreadable { offset, blocks }]);
    }
}

#[test]
fn unreadable_block_hides_no_other_finding() {
    let device = blank(SIZE);
    put(&device, 1024 + 0x38, b"\x53\xef");
    device.fail_reads(SIZE - 1..SIZE);
    let name = "ext2, ext3 or ext4 file system";
    let expected = [
        Finding::Signature { name, offset: 1024 + 0x38 },
        Finding::Unreadable { offset: SIZE - BLOCK as u64, blocks: 1 },
    ];
    assert_eq!(findings(&device), expected);
}

#[test]
fn format_leaves_no_signature_but_its_own() {
    let mut device = Simulated::new(SIZE, Pace::AtOnce, 1);
    put(&device, SIZE - 512, b"EFI PART");
    put(&device, 64 * 1024 + 0x40, b"_BHRfS_M");
    formatted(&device);
    // With the store's own blocks gone, nothing else is found.
    let shards = read_superblock(&mut device.clone(), &mut || ()).unwrap().shards;
    write_copies(&mut device, &[0; BLOCK]);
    for place in &shards {
        for block in place.headers.into_iter().chain([place.log.start]) {
            write(&mut device, block * BLOCK as u64, vec![0; BLOCK]);
        }
    }
    assert_eq!(contents(&device), Contents::Blank);
}

#[test]
fn interrupted_format_names_its_label() {
    let mut dice = device::dice::Dice::new(5);
    let mut unfinished = 0;
    for (requests, encryption) in (0..40).flat_map(|n| [(n, None), (n, Some(new_keys()))]) {
        let device = blank(SIZE);
        let mut left = requests;
        let mut interrupted = Interrupted { device: device.clone(), left: &mut left };
        let options = FormatOptions { encryption, ..options("osd.1") };
        let done = format(&mut interrupted, &options, &mut || ()).is_ok();
        match contents(&device.power_cut(&mut dice)) {
            Contents::Blank => assert!(requests <= 2, "after {requests} requests"),
            Contents::Unfinished { label, .. } => unfinished += usize::from(label == "osd.1"),
            Contents::Store(_) => assert!(done || requests > 8),
            Contents::Further(label) => panic!("{label:?}"),
            // The note itself was torn.
            Contents::Foreign(findings) => assert!(requests <= 2, "after {requests} requests: {findings:?}"),
        }
    }
    assert!(unfinished > 10, "{unfinished}");
}

/// The main device is a store only with a db device that has its label, and nothing is written to a further device before the
/// main one has its note.
#[test]
fn interrupted_format_of_two_devices_is_told_on_both() {
    let mut dice = device::dice::Dice::new(6);
    let mut seen = [0; 3];
    for requests in (0..60).chain([10_000]) {
        let devices = Several::new(vec![(0, blank(SIZE)), (1, blank(SIZE / 2))]);
        let mut left = requests;
        let mut interrupted = Interrupted { device: devices.clone(), left: &mut left };
        let options =
            FormatOptions { devices: vec![(DeviceRole::Db, Identity([8; 16]))], ..options("osd.1") };
        let done = format(&mut interrupted, &options, &mut || ()).is_ok();
        let cut = devices.power_cut(&mut dice);
        let of_format = |contents: &Contents| match contents {
            Contents::Unfinished { identity, .. } => *identity == options.identity,
            Contents::Further(label) => label.store == options.identity,
            _ => false,
        };
        match (contents(cut.disk(0)), contents(cut.disk(1))) {
            (Contents::Store(superblock), Contents::Further(label)) => {
                assert_eq!(label, superblock.label_of(&superblock.devices[0]));
                seen[2] += 1;
            }
            // The note of one device may be torn.
            (main, Contents::Foreign(_)) => assert!(of_format(&main) && requests < 8, "{requests}: {main:?}"),
            (main, Contents::Blank) => {
                assert!(matches!(main, Contents::Blank | Contents::Foreign(_)) || of_format(&main));
                assert!(requests < 8, "{requests}");
                seen[0] += 1;
            }
            (main, further) => {
                assert!(
                    of_format(&main) && of_format(&further) && !done,
                    "{requests}: {main:?}, {further:?}"
                );
                seen[1] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// The state that an interrupted format leaves on a blank device.
fn unfinished() -> Simulated {
    let device = blank(SIZE);
    let mut left = 4;
    let mut interrupted = Interrupted { device: device.clone(), left: &mut left };
    format(&mut interrupted, &options("osd.1"), &mut || ()).unwrap_err();
    let device = device.power_cut(&mut device::dice::Dice::new(5));
    assert_eq!(
        contents(&device),
        Contents::Unfinished { label: "osd.1".into(), identity: Identity([3; 16]) }
    );
    device
}

#[test]
fn signature_after_an_interrupted_format_is_named() {
    let places = [
        ("ext2, ext3 or ext4 file system", 1024 + 0x38, &b"\x53\xef"[..]),
        ("Btrfs file system", 64 * 1024 + 0x40, b"_BHRfS_M"),
        ("second LUKS2 encryption header", 2 << 20, b"SKUL\xba\xbe"),
        ("backup of a GPT partition table", SIZE - 512, b"EFI PART"),
    ];
    for (name, offset, magic) in places {
        let device = unfinished();
        put(&device, offset, magic);
        assert_eq!(findings(&device), [Finding::Signature { name, offset }]);
    }
}

#[test]
fn data_after_an_interrupted_format_is_not_blank() {
    for offset in [0, BLOCK as u64, 100_000, END_BYTES - 1, SIZE - END_BYTES, SIZE - 1] {
        let device = unfinished();
        put(&device, offset, &[1]);
        assert_eq!(findings(&device), [Finding::Data { offset }]);
    }
    let device = unfinished();
    device.fail_reads(SIZE - 1..SIZE);
    assert_eq!(findings(&device), [Finding::Unreadable { offset: SIZE - BLOCK as u64, blocks: 1 }]);
}

/// A device that takes so many requests, and is gone after them.
struct Interrupted<'a, D = Simulated> {
    device: D,
    left: &'a mut usize,
}

impl<D: Disks> BlockDevice for Interrupted<'_, D> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        self.device.size_of(number)
    }

    fn submit(&mut self, token: u64, request: Request) {
        match self.left.checked_sub(1) {
            Some(left) => *self.left = left,
            None => self.device.unplug(),
        }
        self.device.submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<device::Done>) -> bool {
        self.device.poll(out)
    }
}
