//! Images of the disk after a power cut: all flushed writes, and any subset of the others, torn or not.

use super::{BlockWrite, Disk, Simulated, blocks_of, discarded, never_written};
use crate::dice::Dice;
use crate::{BLOCK, Request};
use bytes::Bytes;

/// Unit that a disk writes atomically. A block may be torn between two of them.
const SECTOR: usize = 512;

/// Unflushed writes that survive a power cut.
struct Survivors {
    kept: Vec<bool>,
    /// One torn write, and the length of its part that was done.
    torn: Option<(usize, usize)>,
}

impl Simulated {
    /// Number of blocks that a power cut at this moment may take or leave.
    pub fn at_risk(&self) -> usize {
        self.0.borrow().at_risk().len()
    }

    /// A random image of a power cut at this moment. No request is in flight on it.
    pub fn power_cut(&self, dice: &mut Dice) -> Simulated {
        let disk = self.0.borrow();
        let at_risk = disk.at_risk();
        let choice = Survivors::random(at_risk.len(), dice);
        disk.image(&at_risk, &choice, dice)
    }

    /// The disk after its owner was killed: each request in flight is done or not, and unflushed writes are there and stay
    /// unflushed.
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
                    // The killed owner does not see the result.
                    let _ = new.execute(queued);
                }
            }
        }
        out
    }

    /// All images of a power cut at this moment, if there are at most `images_max`. Otherwise: none of the blocks at risk,
    /// all of them, all but each one, each one alone, and random subsets. In addition some images that end with a torn
    /// block.
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
