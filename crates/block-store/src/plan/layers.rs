//! Layers in a plan: clones join one, the first write after a clone begins a new one, and removals leave one.
//!
//! ```text
//! clone(a → b)      write to a              clone(a → c), write to a     remove b
//!
//! a ─▶ 1 ◀─ b       a ─▶ 2 ─▶ 1 ◀─ b        a ─▶ 3 ─▶ 2 ─▶ 1 ◀─ b        a ─▶ 3 ─▶ 2 ◀─ c   (2 inherits from 1)
//!                                                 c ─▶ 2
//! ```
//!
//! A clone is a record for the copy and one for the layer, whatever the size of the object. Layers change like this:
//!
//! - A layer with one object and no children is written in place. Every other is frozen: an object that writes gets a new
//!   layer, whose parent is the frozen one.
//! - A layer without objects and children goes, and its entries are cleaned away; so may its parent then.
//! - A layer without objects and with a single child gives its entries to the child, in steps ([`Plan::cleaning`]).
//!   The child sees the same before, between and after the steps.
//! - A layer whose chain is long gets a copy of what it lacks, in steps, and then has no parent. Blocks of pages are
//!   shared by the copy, and counted.

use super::damage::is_rot;
use super::objects::OpenObject;
use super::{Cleanup, Plan};
use crate::object::key;
use crate::object::layer::{self, Ancestors, CHAIN_LONG, CHAIN_MAX, Layer};
use crate::object::record::OmapState;
use crate::planted::{self, PlantedBug};
use crate::view::Wait;

impl Plan<'_> {
    pub(super) fn layer(&mut self, number: u64) -> Result<Option<Layer>, Wait> {
        layer::find(number, &mut |key| self.get(key))
    }

    pub(super) fn ancestors(&mut self, number: u64) -> Result<Ancestors, Wait> {
        layer::ancestors(number, &mut |key| self.get(key))
    }

    pub(super) fn put_layer(&mut self, number: u64, layer: Layer) {
        match layer == Layer::PLAIN {
            true => self.delete(key::layer(number)),
            false => self.put(key::layer(number), layer.encode()),
        }
    }

    /// One more object reads a layer. False if the layer's record cannot be read.
    pub(super) fn join_layer(&mut self, number: u64) -> Result<bool, Wait> {
        let mut layer = match self.layer(number) {
            Err(wait) if is_rot(&wait) => return Ok(false),
            layer => layer?.unwrap_or(Layer::PLAIN),
        };
        layer.objects += 1;
        self.put_layer(number, layer);
        Ok(true)
    }

    /// An object reads a layer no more. True if nothing reads it, and its entries are to be released. `pool`: of the object,
    /// if the layer is one of pages.
    pub(super) fn leave_layer(&mut self, number: u64, pool: Option<i64>) -> Result<bool, Wait> {
        let mut layer = match self.layer(number) {
            // Others may read it.
            Err(wait) if is_rot(&wait) => return Ok(false),
            layer => layer?.unwrap_or(Layer::PLAIN),
        };
        layer.objects = layer.objects.saturating_sub(1);
        self.settle_layer(number, layer, pool)
    }

    /// Puts a layer that has lost an object or a child. True if nothing reads it.
    fn settle_layer(&mut self, number: u64, layer: Layer, pool: Option<i64>) -> Result<bool, Wait> {
        if layer.objects > 0 || layer.children > 0 {
            self.put_layer(number, layer);
            if layer.heir().is_some() {
                self.clean_layer_later(number, pool);
            }
            return Ok(false);
        }
        self.delete(key::layer(number));
        self.lose_child(layer.parent, number, pool)?;
        Ok(true)
    }

    fn clean_layer_later(&mut self, number: u64, pool: Option<i64>) {
        let pool = pool.map_or(Vec::new(), |pool| pool.to_le_bytes().to_vec());
        self.put(key::layer_cleaning(number), pool);
        self.effect.to_clean.push(Cleanup::Layer(number));
    }

    /// A layer is a parent of this child no more.
    pub(super) fn lose_child(&mut self, parent: u64, child: u64, pool: Option<i64>) -> Result<(), Wait> {
        let mut layer = match self.layer(parent) {
            Err(wait) if is_rot(&wait) => return Ok(()),
            layer => match layer? {
                Some(layer) => layer,
                None => return Ok(()),
            },
        };
        layer.remove_child(child);
        if self.settle_layer(parent, layer, pool)? {
            self.clean_later(parent, pool);
        }
        Ok(())
    }

    /// Like [`Plan::own_pages`]; where the record of a layer cannot be read, the object is lost.
    pub(super) fn own_or_lose_pages(&mut self, object: &mut OpenObject) -> Result<(), Wait> {
        match self.own_pages(object) {
            Err(wait) if is_rot(&wait) => {
                tracing::error!(object = ?object.id(), "the record of its layer is damaged: the object is lost");
                let number = self.new_number();
                self.forget_data_bytes(object);
                let record = object.record_mut();
                (record.number, record.is_layered, record.is_lost) = (number, false, true);
                Ok(())
            }
            owned => owned,
        }
    }

    fn forget_data_bytes(&mut self, object: &mut OpenObject) {
        let bytes = std::mem::take(&mut object.record_mut().data_bytes);
        self.effect.totals.data_bytes -= bytes;
    }

    /// Before an object's pages change: its layer is its own, and its ancestors are known.
    pub(super) fn own_pages(&mut self, object: &mut OpenObject) -> Result<(), Wait> {
        if object.owns_pages || !object.record.is_layered {
            return Ok(());
        }
        let (number, ancestors) = self.own_layer(object.record.number, Some(object.id().object.pool))?;
        if number != object.record.number {
            object.record_mut().number = number;
        }
        (object.owns_pages, object.page_ancestors) = (true, ancestors);
        Ok(())
    }

    /// The same for its omap.
    pub(super) fn own_omap(&mut self, object: &mut OpenObject) -> Result<(), Wait> {
        let Some(mut state) = object.record.omap.filter(|state| state.is_layered && !object.owns_omap) else {
            return Ok(());
        };
        let (number, ancestors) = match self.own_layer(state.number, None) {
            Err(wait) if is_rot(&wait) => {
                tracing::error!(object = ?object.id(), "the record of its omap's layer is damaged: it is lost");
                self.effect.totals.omap_bytes -= state.bytes;
                let empty = OmapState::empty(self.new_number());
                let record = object.record_mut();
                (record.is_lost, record.omap) = (true, Some(empty));
                return Ok(());
            }
            owned => owned?,
        };
        if number != state.number {
            state.number = number;
            object.record_mut().omap = Some(state);
        }
        (object.owns_omap, object.omap_ancestors) = (true, ancestors);
        Ok(())
    }

    /// The layer that an object of this one may write to, and its ancestors.
    fn own_layer(&mut self, number: u64, pool: Option<i64>) -> Result<(u64, Ancestors), Wait> {
        let Some(mut frozen) = self.layer(number)? else { return Ok((number, Ancestors::new())) };
        let mut ancestors = self.ancestors(number)?;
        if frozen.is_exclusive() || planted::has(PlantedBug::LayerWrittenWhileShared) {
            return Ok((number, ancestors));
        }
        if ancestors.len() >= CHAIN_MAX && self.known.cleaner_works {
            return Err(Wait::Cleaner);
        }
        let own = self.new_number();
        self.put_layer(own, Layer { parent: number, ..Layer::PLAIN });
        frozen.objects = frozen.objects.saturating_sub(1);
        frozen.add_child(own);
        // Chains that are being shortened count from there.
        if ancestors.len() + 1 >= CHAIN_LONG && !frozen.flattens && !self.is_shortened(&ancestors)? {
            frozen.flattens = true;
            self.clean_layer_later(number, pool);
        }
        self.put_layer(number, frozen);
        ancestors.insert(0, number);
        Ok((own, ancestors))
    }

    /// One of the nearest ancestors is being flattened.
    fn is_shortened(&mut self, ancestors: &Ancestors) -> Result<bool, Wait> {
        for &ancestor in ancestors.iter().take(CHAIN_LONG) {
            if self.layer(ancestor)?.is_some_and(|layer| layer.flattens) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
