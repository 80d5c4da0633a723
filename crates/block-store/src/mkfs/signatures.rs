//! Signatures of file systems, partition tables and volume managers, and where on a device each of them lies.
//!
//! The table holds what storage machines are likely to carry. A device that matches no row is still not blank when its
//! first or last MiB holds anything: the table gives that a name, and finds copies that lie further inside.
//!
//! The facts are those of util-linux's libblkid (`libblkid/src/superblocks`, `libblkid/src/partitions`), of the Linux
//! kernel's headers for each file system, of the UEFI specification (GPT), of the SNIA DDF specification, of OpenZFS
//! (`module/zfs/vdev_label.c`) and of Ceph (`src/os/bluestore/bluestore_types.h`).

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Place of a signature's bytes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Offset from the device's beginning.
    Start(u64),
    /// Distance of the signature's first byte from the device's end.
    End(u64),
    /// The device's size is rounded down to a multiple of `unit`; the signature lies `back` bytes before that, plus
    /// `within`.
    RoundedEnd { unit: u64, back: u64, within: u64 },
}

impl At {
    /// Offset on a device of `size` bytes; `None` where the device is too small.
    fn offset(self, size: u64) -> Option<u64> {
        match self {
            At::Start(offset) => Some(offset),
            At::End(back) => size.checked_sub(back),
            At::RoundedEnd { unit, back, within } => Some((size - size % unit).checked_sub(back)? + within),
        }
    }
}

struct Signature {
    name: &'static str,
    magic: &'static [u8],
    places: &'static [At],
}

const fn signature(name: &'static str, magic: &'static [u8], places: &'static [At]) -> Signature {
    Signature { name, magic, places }
}

/// ZFS keeps two labels at each end; the second half of each is a ring of uberblocks, one KiB apart or more.
const ZFS_LABEL: u64 = 256 * KIB;
const ZFS_LABELS: [At; 4] = [
    At::Start(0),
    At::Start(ZFS_LABEL),
    At::RoundedEnd { unit: ZFS_LABEL, back: 2 * ZFS_LABEL, within: 0 },
    At::RoundedEnd { unit: ZFS_LABEL, back: ZFS_LABEL, within: 0 },
];
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 128 * KIB..256 * KIB;
const ZFS_MAGIC: [u64; 2] = [0x00ba_b10c, 0x00ba_b10c_u64.swap_bytes()];

static SIGNATURES: &[Signature] = &[
    signature("BlueStore", b"bluestore block device", &[At::Start(0)]),
    signature("GPT partition table", b"EFI PART", &[At::Start(512), At::Start(4096)]),
    signature("backup of a GPT partition table", b"EFI PART", &[At::End(512), At::End(4096)]),
    signature(
        "LVM physical volume",
        b"LABELONE",
        &[At::Start(0), At::Start(512), At::Start(1024), At::Start(1536)],
    ),
    signature("md RAID member (metadata 1.1)", &MD_MAGIC, &[At::Start(0)]),
    signature("md RAID member (metadata 1.2)", &MD_MAGIC, &[At::Start(4 * KIB)]),
    signature(
        "md RAID member (metadata 1.0)",
        &MD_MAGIC,
        &[At::RoundedEnd { unit: 4 * KIB, back: 8 * KIB, within: 0 }],
    ),
    signature("md RAID member (metadata 0.90)", &MD_MAGIC, MD_0_90_PLACES),
    signature("md RAID member (metadata 0.90)", &MD_MAGIC_BIG_ENDIAN, MD_0_90_PLACES),
    signature("LUKS encryption header", b"LUKS\xba\xbe", &[At::Start(0)]),
    signature(
        "second LUKS2 encryption header",
        b"SKUL\xba\xbe",
        &[
            At::Start(16 * KIB),
            At::Start(32 * KIB),
            At::Start(64 * KIB),
            At::Start(128 * KIB),
            At::Start(256 * KIB),
            At::Start(512 * KIB),
            At::Start(MIB),
            At::Start(2 * MIB),
            At::Start(4 * MIB),
        ],
    ),
    signature("ext2, ext3 or ext4 file system", b"\x53\xef", &[At::Start(KIB + 0x38)]),
    // In block group 1, for blocks of 1, 2 and 4 KiB.
    signature(
        "backup superblock of an ext2, ext3 or ext4 file system",
        b"\x53\xef",
        &[At::Start(8193 * KIB + 0x38), At::Start(32 * MIB + 0x38), At::Start(128 * MIB + 0x38)],
    ),
    signature("XFS file system", b"XFSB", &[At::Start(0)]),
    signature("Btrfs file system", b"_BHRfS_M", &[At::Start(64 * KIB + 0x40)]),
    signature(
        "second superblock of a Btrfs file system",
        b"_BHRfS_M",
        &[At::Start(64 * MIB + 0x40), At::Start(256 * GIB + 0x40)],
    ),
    signature("swap space", b"SWAPSPACE2", SWAP_PLACES),
    signature("swap space", b"SWAP-SPACE", SWAP_PLACES),
    signature("bcache or bcachefs", b"\xc6\x85\x73\xf6", &[At::Start(4 * KIB + 24)]),
    signature("DRBD metadata", b"\x83\x74\x02\x6b", DRBD_PLACES),
    signature("DRBD metadata", b"\x83\x74\x02\x6c", DRBD_PLACES),
    signature("DRBD metadata", b"\x83\x74\x02\x6d", DRBD_PLACES),
    signature("Stratis pool member", b"!Stra0tis", &[At::Start(512 + 4), At::Start(9 * 512 + 4)]),
    signature("VDO volume", b"dmvdo001", &[At::Start(0)]),
    signature("DDF RAID member", b"\xde\x11\xde\x11", &[At::End(512), At::End(257 * 512)]),
    signature("Intel RAID member", b"Intel Raid ISM Cfg Sig. ", &[At::End(1024)]),
    signature("VMFS volume", b"\x0d\xd0\x01\xc0", &[At::Start(MIB)]),
    signature("VMFS file system", b"\x5e\xf1\xab\x2f", &[At::Start(2 * MIB)]),
    signature("NTFS file system", b"NTFS    ", &[At::Start(3)]),
    signature("exFAT file system", b"EXFAT   ", &[At::Start(3)]),
    signature("BitLocker volume", b"-FVE-FS-", &[At::Start(3)]),
    signature("FAT file system", b"FAT12   ", &[At::Start(54)]),
    signature("FAT file system", b"FAT16   ", &[At::Start(54)]),
    signature("FAT file system", b"FAT32   ", &[At::Start(82)]),
    signature("Storage Spaces member", b"SPACEDB ", &[At::Start(4 * KIB)]),
    signature("F2FS file system", b"\x10\x20\xf5\xf2", &[At::Start(KIB)]),
    signature("EROFS file system", b"\xe2\xe1\xf5\xe0", &[At::Start(KIB)]),
    signature("HFS+ file system", b"H+", &[At::Start(KIB)]),
    signature("APFS container", b"NXSB", &[At::Start(32)]),
    signature("JFS file system", b"JFS1", &[At::Start(32 * KIB)]),
    signature("ReiserFS file system", b"ReIsEr", &[At::Start(64 * KIB), At::Start(64 * KIB + 52)]),
    signature("GFS2 file system", b"\x01\x16\x19\x70", &[At::Start(64 * KIB)]),
    signature(
        "OCFS2 file system",
        b"OCFSV2",
        &[At::Start(KIB), At::Start(2 * KIB), At::Start(4 * KIB), At::Start(8 * KIB)],
    ),
    signature("NILFS2 file system", b"\x34\x34", &[At::Start(KIB + 6)]),
    signature("UFS file system", b"\x54\x19\x01\x00", &[At::Start(8 * KIB + 1372)]),
    signature("UFS file system", b"\x19\x01\x54\x19", &[At::Start(64 * KIB + 1372)]),
    signature("ISO 9660 file system", b"CD001", &[At::Start(32 * KIB + 1)]),
    signature("SquashFS file system", b"hsqs", &[At::Start(0)]),
    // Last: boot sectors of file systems end so, too.
    signature("MBR partition table or boot sector", b"\x55\xaa", &[At::Start(510)]),
];

const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// Metadata 0.90 is in the byte order of the machine that wrote it.
const MD_MAGIC_BIG_ENDIAN: [u8; 4] = 0xa92b_4efc_u32.to_be_bytes();
const MD_0_90_PLACES: &[At] = &[At::RoundedEnd { unit: 64 * KIB, back: 64 * KIB, within: 0 }];
/// The last ten bytes of a page, for each size of page that Linux has.
const SWAP_PLACES: &[At] = &[
    At::Start(4 * KIB - 10),
    At::Start(8 * KIB - 10),
    At::Start(16 * KIB - 10),
    At::Start(32 * KIB - 10),
    At::Start(64 * KIB - 10),
];
const DRBD_PLACES: &[At] = &[At::RoundedEnd { unit: 4 * KIB, back: 4 * KIB, within: 60 }];

/// A signature that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub name: &'static str,
    /// Of its first byte, on the device.
    pub offset: u64,
}

/// All matches on a device of `size` bytes. `read` gives bytes of the device, or `None` where they cannot be read.
pub fn find(size: u64, read: &mut dyn FnMut(u64, usize) -> Option<Vec<u8>>) -> Vec<Match> {
    let mut found: Vec<Match> = Vec::new();
    for Signature { name, magic, places } in SIGNATURES {
        for offset in places.iter().filter_map(|place| place.offset(size)) {
            let fits = offset.checked_add(magic.len() as u64).is_some_and(|end| end <= size);
            if fits && read(offset, magic.len()).is_some_and(|bytes| bytes == *magic) {
                found.push(Match { name, offset });
            }
        }
    }
    found.extend(find_zfs(size, read));
    found.sort_by_key(|found| found.offset);
    found
}

fn find_zfs(size: u64, read: &mut dyn FnMut(u64, usize) -> Option<Vec<u8>>) -> Option<Match> {
    let labels = ZFS_LABELS.iter().filter_map(|label| label.offset(size));
    for label in labels.filter(|label| label + ZFS_LABEL <= size) {
        let ring = label + ZFS_UBERBLOCKS.start;
        let Some(bytes) = read(ring, (ZFS_UBERBLOCKS.end - ZFS_UBERBLOCKS.start) as usize) else { continue };
        let is_uberblock = |slot: &[u8]| {
            let magic = slot.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            magic.is_some_and(|magic| ZFS_MAGIC.contains(&magic))
        };
        if let Some(slot) = bytes.chunks(KIB as usize).position(is_uberblock) {
            return Some(Match { name: "ZFS pool member", offset: ring + slot as u64 * KIB });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(device: &[u8]) -> Vec<&'static str> {
        let mut read = |offset: u64, len: usize| Some(device[offset as usize..][..len].to_vec());
        find(device.len() as u64, &mut read).iter().map(|found| found.name).collect()
    }

    #[test]
    fn each_signature_is_found_at_each_place() {
        let size = (130 * MIB + 12 * KIB) as usize;
        let mut device = vec![0; size];
        assert_eq!(find_in(&device), Vec::<&str>::new());
        for Signature { name, magic, places } in SIGNATURES {
            for offset in places.iter().filter_map(|place| place.offset(size as u64)) {
                let Some(spot) = device.get_mut(offset as usize..offset as usize + magic.len()) else {
                    assert!(offset >= 256 * GIB, "{name} at {offset}");
                    continue;
                };
                spot.copy_from_slice(magic);
                let found = find_in(&device);
                assert!(found.contains(name), "{name} at {offset}: {found:?}");
                device[offset as usize..offset as usize + magic.len()].fill(0);
            }
        }
    }

    #[test]
    fn zfs_uberblock_is_found_in_each_label() {
        let size = (4 * MIB + 12 * KIB) as usize;
        for (label, slot) in [(0, 0), (256 * KIB, 127), (4 * MIB - 512 * KIB, 5), (4 * MIB - 256 * KIB, 64)] {
            let mut device = vec![0; size];
            let at = (label + 128 * KIB + slot * KIB) as usize;
            device[at..at + 8].copy_from_slice(&0x00ba_b10c_u64.to_le_bytes());
            assert_eq!(find_in(&device), ["ZFS pool member"]);
        }
    }

    #[test]
    fn small_device_has_no_places_beyond_its_end() {
        for size in [0, 1, 511, 4096, 1 << 20] {
            assert_eq!(find_in(&vec![0; size]), Vec::<&str>::new());
        }
    }
}
