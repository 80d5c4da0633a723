//! Where things live that are named by a small number for a while: requests in flight, PGs, sessions.

/// A place in a [`Slab`], with the generation that tells its present tenant from former ones: a completion that
/// comes after its request was dropped finds nothing, instead of somebody else's request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// As a number, for a store's tag.
    pub fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub fn from_u64(n: u64) -> Key {
        Key { index: n as u32, generation: (n >> 32) as u32 }
    }
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn insert(&mut self, value: T) -> Key {
        match self.free.pop() {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                entry.value = Some(value);
                Key { index, generation: entry.generation }
            }
            None => {
                let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 things at a time");
                self.entries.push(Entry { generation: 0, value: Some(value) });
                Key { index, generation: 0 }
            }
        }
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(i, e)| {
            let key = Key { index: i as u32, generation: e.generation };
            e.value.as_ref().map(|v| (key, v))
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(i, e)| {
            let key = Key { index: i as u32, generation: e.generation };
            e.value.as_mut().map(|v| (key, v))
        })
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

/// # Panics
/// When nothing is there: for keys that the owner knows to be live.
impl<T> std::ops::Index<Key> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, key: Key) -> &T {
        self.get(key).expect("a live key")
    }
}

impl<T> std::ops::IndexMut<Key> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("a live key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_though_its_place_is_taken_again() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(first.index, second.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab[Key::from_u64(second.to_u64())], "second");
        assert_eq!(slab.len(), 1);
    }
}
