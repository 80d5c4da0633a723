//! What a power cut may leave of a disk: everything that was flushed, and of the rest any subset, torn or not.

use super::{BlockWrite, Disk, Simulated, blocks_of, discarded, never_written};
use crate::dice::Dice;
use crate::{BLOCK, Request};
use bytes::Bytes;

/// What a disk may write by halves even within a block.
const SECTOR: usize = 512;

/// Which of the writes that were not flushed a power cut leaves.
struct Survivors {
    kept: Vec<bool>,
    /// One write, and how many bytes of it were done.
    torn: Option<(usize, usize)>,
}

impl Simulated {
    /// How many blocks a power cut at this moment may take or leave.
    pub fn at_risk(&self) -> usize {
        self.0.borrow().at_risk().len()
    }

    /// One of the disks that a power cut at this moment may leave, at random. Nothing is under way on it.
    pub fn power_cut(&self, dice: &mut Dice) -> Simulated {
        let disk = self.0.borrow();
        let at_risk = disk.at_risk();
        let choice = Survivors::random(at_risk.len(), dice);
        disk.image(&at_risk, &choice, dice)
    }

    /// The disk as its user's sudden death leaves it: what was under way is done or not, and what was not flushed is still
    /// there, and still not flushed.
    pub fn killed(&self, dice: &mut Dice) -> Simulated {
        let disk = self.0.borrow();
        let out = Simulated::with_durable(disk.size, disk.pace, Dice::new(dice.roll()), disk.durable.clone());
        {
            let new = &mut *out.0.borrow_mut();
            new.cached = disk.cached.clone();
            new.unflushed = disk.unflushed.clone();
            new.moment = disk.moment;
            for queued in &disk.queue {
                if dice.chance(50) && !matches!(queued.request, Request::Read { .. }) {
                    // Whether it worked is nobody's any more.
                    let _ = new.execute(queued);
                }
            }
        }
        out
    }

    /// All that a power cut at this moment may leave, when these are at most `images_max`; otherwise none of the
    /// blocks at risk, all of them, all but each one, each one alone, and the rest at random. Then, of images where
    /// everything before one block is there, some with that block torn.
    pub fn power_cuts(&self, images_max: usize, dice: &mut Dice) -> impl Iterator<Item = Simulated> {
        let disk = self.0.borrow();
        let at_risk = disk.at_risk();
        let n = at_risk.len();
        let mut choices: Vec<Survivors> = Vec::new();
        if n < usize::BITS as usize - 1 && (1 << n) <= images_max {
            choices.extend((0..1usize << n).map(|bits| Survivors::of(n, |i| bits >> i & 1 == 1)));
        } else {
            choices.push(Survivors::of(n, |_| false));
            choices.push(Survivors::of(n, |_| true));
            choices.extend((0..n).map(|out| Survivors::of(n, |i| i != out)));
            choices.extend((0..n).map(|only| Survivors::of(n, |i| i == only)));
            choices.truncate(images_max);
            while choices.len() < images_max {
                choices.push(Survivors::random(n, dice));
            }
        }
        for _ in 0..n.min(images_max.div_ceil(4)) {
            let torn = dice.below(n as u64) as usize;
            let whole = Survivors::of(n, |i| i < torn);
            choices.push(Survivors { torn: Some((torn, whole.cut(dice))), ..whole });
        }
        let images: Vec<Simulated> = choices.iter().map(|c| disk.image(&at_risk, c, dice)).collect();
        images.into_iter()
    }
}

impl Survivors {
    fn of(n: usize, kept: impl Fn(usize) -> bool) -> Survivors {
        Survivors { kept: (0..n).map(kept).collect(), torn: None }
    }

    fn random(n: usize, dice: &mut Dice) -> Survivors {
        let percent = dice.below(101);
        let kept = (0..n).map(|_| dice.chance(percent)).collect();
        let mut out = Survivors { kept, torn: None };
        if n > 0 && dice.chance(30) {
            out.torn = Some((dice.below(n as u64) as usize, out.cut(dice)));
        }
        out
    }

    fn cut(&self, dice: &mut Dice) -> usize {
        SECTOR * (1 + dice.below((BLOCK / SECTOR) as u64 - 1) as usize)
    }
}

impl Disk {
    fn at_risk(&self) -> Vec<BlockWrite> {
        let mut out = self.unflushed.clone();
        for queued in &self.queue {
            match &queued.request {
                Request::Write { offset, data, .. } => {
                    out.extend(blocks_of(*offset, data).map(|(block, data)| BlockWrite {
                        block,
                        data,
                        done_at: 0,
                    }));
                }
                Request::Discard { offset, len } => {
                    let blocks = discarded(*offset, *len, queued.submitted_at);
                    out.extend(blocks.map(|(block, data)| BlockWrite { block, data, done_at: 0 }));
                }
                Request::Read { .. } | Request::Flush => {}
            }
        }
        out
    }

    fn image(&self, at_risk: &[BlockWrite], choice: &Survivors, dice: &mut Dice) -> Simulated {
        let mut durable = self.durable.clone();
        for (i, write) in at_risk.iter().enumerate() {
            if let Some((_, cut)) = choice.torn.filter(|(torn, _)| *torn == i) {
                let old = durable.get(&write.block).cloned().unwrap_or_else(never_written);
                let mixed = match dice.chance(50) {
                    true => [&write.data[..cut], &old[cut..]].concat(),
                    false => [&old[..cut], &write.data[cut..]].concat(),
                };
                durable.insert(write.block, Bytes::from(mixed));
            } else if choice.kept[i] {
                durable.insert(write.block, write.data.clone());
            }
        }
        Simulated::with_durable(self.size, self.pace, Dice::new(dice.roll()), durable)
    }
}
