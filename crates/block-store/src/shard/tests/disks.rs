//! Disks that a test store is on: one, or a main disk with further ones, which lose power together and keep or lose unflushed
//! writes each for itself.

use super::format_options;
use crate::format::{DeviceRole, FormatOptions, Identity};
use crate::mkfs::format;
use device::dice::Dice;
use device::joined::Joined;
use device::simulated::{Pace, Simulated};
use device::{BlockDevice, Done, Request};
use std::cell::RefCell;
use std::rc::Rc;

/// A simulated disk, or several. A clone is a second handle to it.
pub(crate) trait Disks: BlockDevice + Clone + Sized + 'static {
    fn set_pace(&self, pace: Pace);
    /// Every request fails.
    fn unplug(&self);
    /// Changes with every event that may change the outcome of a power cut.
    fn moment(&self) -> u64;
    /// A random image of a power cut at this moment.
    fn power_cut(&self, dice: &mut Dice) -> Self;
    /// The disks after their owner was killed.
    fn killed(&self, dice: &mut Dice) -> Self;
    /// About so many images of power cuts at this moment.
    fn power_cuts(&self, images_max: usize, dice: &mut Dice) -> Vec<Self>;
}

impl Disks for Simulated {
    fn set_pace(&self, pace: Pace) {
        Simulated::set_pace(self, pace);
    }

    fn unplug(&self) {
        Simulated::unplug(self);
    }

    fn moment(&self) -> u64 {
        Simulated::moment(self)
    }

    fn power_cut(&self, dice: &mut Dice) -> Simulated {
        Simulated::power_cut(self, dice)
    }

    fn killed(&self, dice: &mut Dice) -> Simulated {
        Simulated::killed(self, dice)
    }

    fn power_cuts(&self, images_max: usize, dice: &mut Dice) -> Vec<Simulated> {
        Simulated::power_cuts(self, images_max, dice).collect()
    }
}

/// A main disk and further ones, joined.
#[derive(Clone)]
pub(crate) struct Several {
    pub(crate) disks: Vec<(usize, Simulated)>,
    joined: Rc<RefCell<Joined<Simulated>>>,
}

impl Several {
    pub(crate) fn new(disks: Vec<(usize, Simulated)>) -> Several {
        let joined = Joined::new(disks.iter().map(|(number, disk)| (*number, disk.clone())));
        Several { disks, joined: Rc::new(RefCell::new(joined)) }
    }

    pub(crate) fn disk(&self, number: usize) -> &Simulated {
        &self.disks.iter().find(|(own, _)| *own == number).expect("a disk with this number").1
    }

    fn each(&self, mut change: impl FnMut(&Simulated) -> Simulated) -> Several {
        Several::new(self.disks.iter().map(|(number, disk)| (*number, change(disk))).collect())
    }
}

impl BlockDevice for Several {
    fn size(&self) -> u64 {
        self.joined.borrow().size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        self.joined.borrow().size_of(number)
    }

    fn submit(&mut self, token: u64, request: Request) {
        self.joined.borrow_mut().submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        self.joined.borrow_mut().poll(out)
    }
}

/// Images of one disk, of which the images of several are made.
const IMAGES_OF_DISK: usize = 5;

impl Disks for Several {
    fn set_pace(&self, pace: Pace) {
        self.disks.iter().for_each(|(_, disk)| disk.set_pace(pace));
    }

    fn unplug(&self) {
        self.disks.iter().for_each(|(_, disk)| disk.unplug());
    }

    fn moment(&self) -> u64 {
        self.disks.iter().map(|(_, disk)| disk.moment()).sum()
    }

    fn power_cut(&self, dice: &mut Dice) -> Several {
        self.each(|disk| disk.power_cut(dice))
    }

    fn killed(&self, dice: &mut Dice) -> Several {
        self.each(|disk| disk.killed(dice))
    }

    fn power_cuts(&self, images_max: usize, dice: &mut Dice) -> Vec<Several> {
        let mut images: Vec<Vec<(usize, Simulated)>> = vec![Vec::new()];
        for (number, disk) in &self.disks {
            let of_disk: Vec<Simulated> = disk.power_cuts(IMAGES_OF_DISK, dice).collect();
            let with = |image: &Vec<(usize, Simulated)>, one: &Simulated| {
                // Each image has a disk of its own: what is written to one must not be in another.
                let own = one.killed(&mut Dice::new(1));
                image
                    .iter()
                    .map(|(n, disk)| (*n, disk.killed(&mut Dice::new(1))))
                    .chain([(*number, own)])
                    .collect()
            };
            images =
                images.iter().flat_map(|image| of_disk.iter().map(move |one| with(image, one))).collect();
        }
        while images.len() > images_max {
            images.swap_remove(dice.below(images.len() as u64) as usize);
        }
        images.into_iter().map(Several::new).collect()
    }
}

/// A store on a main disk and on disks for these roles.
pub(crate) fn formatted_on(
    main_bytes: u64,
    further: &[(DeviceRole, u64)],
    log_bytes: u64,
    pace: Pace,
    seed: u64,
    is_encrypted: bool,
) -> Several {
    let sizes = further.iter().map(|(role, bytes)| (role.number(), *bytes));
    let disks = std::iter::once((0, main_bytes)).chain(sizes);
    let disks =
        disks.map(|(number, bytes)| (number, Simulated::new(bytes, Pace::AtOnce, seed + number as u64)));
    let several = Several::new(disks.collect());
    let options = FormatOptions {
        devices: further.iter().map(|(role, _)| (*role, Identity([seed as u8 ^ 0x55; 16]))).collect(),
        ..format_options(log_bytes, seed, is_encrypted)
    };
    format(&mut several.clone(), &options, &mut || ()).expect("a store fits on these disks");
    several.set_pace(pace);
    several
}
