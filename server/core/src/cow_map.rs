//! A sorted map whose copies share what neither side has changed.
//!
//! Two levels: an ordered directory of chunks, each chunk a short sorted vector behind an `Arc`.
//! Copying the map copies the directory alone; the first write to a chunk that a copy still
//! shares clones that chunk. So a snapshot of a million entries is taken in well under a
//! millisecond, and no single write after it pays for more than one chunk.
//!
//! How entries are spread over chunks depends on the history of the map; the order of iteration
//! does not, and nothing else can be seen from outside.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Long enough that the directory stays small at millions of entries, short enough that moving
/// half of a chunk on insertion costs less than the look-up before it.
const CHUNK_MAX: usize = 128;

type Chunk<K, V> = Vec<(K, V)>;

#[derive(Debug, Clone)]
pub(crate) struct CowMap<K, V> {
    /// Keyed by a lower bound of what is in the chunk. No chunk is empty.
    chunks: BTreeMap<K, Arc<Chunk<K, V>>>,
    len: usize,
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> CowMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (_, chunk) = self.chunks.range((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = find(chunk, key).ok()?;
        Some(&chunk[at].1)
    }

    pub(crate) fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get(key).is_some()
    }

    /// The key as it is stored, for callers that share its allocation.
    pub(crate) fn get_key<Q>(&self, key: &Q) -> Option<&K>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (_, chunk) = self.chunks.range((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = find(chunk, key).ok()?;
        Some(&chunk[at].0)
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (_, chunk) =
            self.chunks.range_mut((Bound::Unbounded, Bound::Included(key))).next_back()?;
        // Looked up before `make_mut`, so that a miss never clones a shared chunk.
        let at = find(chunk, key).ok()?;
        Some(&mut Arc::make_mut(chunk)[at].1)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let below = (Bound::Unbounded, Bound::Included(&key));
        let Some((bound, chunk)) = self.chunks.range_mut(below).next_back() else {
            return self.insert_before_all(key, value);
        };
        match find(chunk, &key) {
            Ok(at) => return Some(std::mem::replace(&mut Arc::make_mut(chunk)[at].1, value)),
            Err(at) if chunk.len() < CHUNK_MAX => Arc::make_mut(chunk).insert(at, (key, value)),
            Err(at) => {
                let bound = bound.clone();
                self.insert_into_full(&bound, at, key, value);
            }
        }
        self.len += 1;
        None
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (bound, chunk) =
            self.chunks.range_mut((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = find(chunk, key).ok()?;
        let (_, value) = Arc::make_mut(chunk).remove(at);
        self.len -= 1;
        if chunk.len() < CHUNK_MAX / 4 {
            let bound = bound.clone();
            self.merge(&bound);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.values().flat_map(|chunk| chunk.iter().map(|(k, v)| (k, v)))
    }

    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        self.chunks.values().next().and_then(|chunk| chunk.first()).map(|(k, v)| (k, v))
    }

    /// Entries in key order from `from` on.
    pub(crate) fn range_from<'a, Q>(
        &'a self,
        from: Bound<&Q>,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let first_chunk = match from {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => {
                self.chunks.range((Bound::Unbounded, Bound::Included(key))).next_back()
            }
        };
        let head: &[(K, V)] = match (first_chunk, from) {
            (Some((_, chunk)), Bound::Included(key)) => {
                &chunk[chunk.partition_point(|(k, _)| k.borrow() < key)..]
            }
            (Some((_, chunk)), Bound::Excluded(key)) => {
                &chunk[chunk.partition_point(|(k, _)| k.borrow() <= key)..]
            }
            _ => &[],
        };
        let rest = match first_chunk {
            Some((bound, _)) => {
                self.chunks.range((Bound::Excluded(bound.borrow()), Bound::Unbounded))
            }
            None => self.chunks.range((Bound::<&Q>::Unbounded, Bound::Unbounded)),
        };
        head.iter().chain(rest.flat_map(|(_, chunk)| chunk.iter())).map(|(k, v)| (k, v))
    }

    /// Entries whose keys are below `before`, the highest first; `None`: all of them.
    pub(crate) fn downwards_from(&self, before: Option<K>) -> impl Iterator<Item = (&K, &V)> {
        let end = before.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let chunks = self.chunks.range((Bound::Unbounded, end)).rev();
        // Only the highest of these chunks can hold keys that are not below.
        let entries = chunks.flat_map(|(_, chunk)| chunk.iter().rev()).map(|(k, v)| (k, v));
        entries.skip_while(move |(k, _)| before.as_ref().is_some_and(|before| *k >= before))
    }

    /// Entries whose keys are in `range`, in order.
    pub(crate) fn range<R: RangeBounds<K>>(&self, range: R) -> impl Iterator<Item = (&K, &V)> {
        let start = range.start_bound().cloned();
        self.range_from(start.as_ref()).take_while(move |(k, _)| range.contains(*k))
    }

    fn insert_before_all(&mut self, key: K, value: V) -> Option<V> {
        match self.chunks.pop_first() {
            Some((_, mut chunk)) if chunk.len() < CHUNK_MAX => {
                Arc::make_mut(&mut chunk).insert(0, (key.clone(), value));
                self.chunks.insert(key, chunk);
            }
            full => {
                self.chunks.extend(full.map(|(_, chunk)| (chunk[0].0.clone(), chunk)));
                self.chunks.insert(key.clone(), Arc::new(vec![(key, value)]));
            }
        }
        self.len += 1;
        None
    }

    fn insert_into_full(&mut self, bound: &K, at: usize, key: K, value: V) {
        // Keys that only grow (tokens, tickets, and those of each client in an index) would leave
        // every chunk half empty for ever if a full one were split in the middle.
        if at == CHUNK_MAX {
            self.chunks.insert(key.clone(), Arc::new(vec![(key, value)]));
        } else {
            self.split_and_insert(bound, at, key, value);
        }
    }

    fn split_and_insert(&mut self, bound: &K, at: usize, key: K, value: V) {
        let chunk = self.chunks.get_mut(bound).expect("the caller found this bound");
        let lower = Arc::make_mut(chunk);
        let mut upper = Vec::with_capacity(CHUNK_MAX);
        upper.extend(lower.drain(CHUNK_MAX / 2..));
        if at <= lower.len() {
            lower.insert(at, (key, value));
        } else {
            upper.insert(at - lower.len(), (key, value));
        }
        self.chunks.insert(upper[0].0.clone(), Arc::new(upper));
    }

    /// Keeps the directory in proportion to the entries after many removals.
    ///
    /// Looks at both neighbours: a chunk that was thinned out beside a full one would otherwise
    /// stay for ever once the full one is thinned out too.
    fn merge(&mut self, bound: &K) {
        if self.chunks[bound].is_empty() {
            self.chunks.remove(bound);
            return;
        }
        let next = self.chunks.range((Bound::Excluded(bound), Bound::Unbounded)).next();
        if let Some(next) = next.map(|(next, _)| next.clone()) {
            self.append(bound, &next);
        }
        let before = self.chunks.range((Bound::Unbounded, Bound::Excluded(bound))).next_back();
        if let Some(before) = before.map(|(before, _)| before.clone()) {
            self.append(&before, bound);
        }
    }

    /// Moves the chunk at `from` to the end of the one before it, if both together are short.
    fn append(&mut self, to: &K, from: &K) {
        if self.chunks[to].len() + self.chunks[from].len() > CHUNK_MAX / 2 {
            return;
        }
        let Some(moved) = self.chunks.remove(from) else { return };
        let chunk = self.chunks.get_mut(to).expect("looked at above");
        Arc::make_mut(chunk).extend(moved.iter().cloned());
    }
}

fn find<K: Borrow<Q>, V, Q: Ord + ?Sized>(chunk: &[(K, V)], key: &Q) -> Result<usize, usize> {
    chunk.binary_search_by(|(k, _)| k.borrow().cmp(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Op {
        Insert(u16, u32),
        Remove(u16),
        Change(u16, u32),
        Copy,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0u16..2_000, any::<u32>()).prop_map(|(k, v)| Op::Insert(k, v)),
            4 => (0u16..2_000).prop_map(Op::Remove),
            2 => (0u16..2_000, any::<u32>()).prop_map(|(k, v)| Op::Change(k, v)),
            1 => Just(Op::Copy),
        ]
    }

    fn same(map: &CowMap<u16, u32>, model: &BTreeMap<u16, u32>) {
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter()));
        assert!(map.chunks.values().all(|c| !c.is_empty() && c.len() <= CHUNK_MAX));
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_map_and_copies_stay_as_they_were(
            ops in prop::collection::vec(op(), 1..3_000),
        ) {
            let mut map = CowMap::default();
            let mut model = BTreeMap::new();
            let mut copies = Vec::new();
            for op in ops {
                match op {
                    Op::Insert(k, v) => prop_assert_eq!(map.insert(k, v), model.insert(k, v)),
                    Op::Remove(k) => prop_assert_eq!(map.remove(&k), model.remove(&k)),
                    Op::Change(k, v) => {
                        if let Some(slot) = map.get_mut(&k) { *slot = v; }
                        if let Some(slot) = model.get_mut(&k) { *slot = v; }
                        prop_assert_eq!(map.get(&k), model.get(&k));
                    }
                    Op::Copy if copies.len() < 4 => copies.push((map.clone(), model.clone())),
                    Op::Copy => {}
                }
            }
            same(&map, &model);
            for (map, model) in &copies { same(map, model); }
            prop_assert!(map.downwards_from(None).eq(model.iter().rev()));
            for from in [0u16, 1, 77, 500, 1_999] {
                prop_assert!(map.range_from(Bound::Included(&from)).eq(model.range(from..)));
                prop_assert!(map.range_from(Bound::Excluded(&from))
                    .eq(model.range((Bound::Excluded(from), Bound::Unbounded))));
                prop_assert!(map.range(from..from + 300).eq(model.range(from..from + 300)));
                prop_assert!(map.downwards_from(Some(from)).eq(model.range(..from).rev()));
            }
        }
    }

    #[test]
    fn growing_keys_fill_their_chunks() {
        let mut map = CowMap::default();
        for k in 0..10_000u32 {
            map.insert(k, ());
        }
        assert_eq!(map.chunks.len(), 10_000usize.div_ceil(CHUNK_MAX));
    }

    #[test]
    fn removals_shrink_the_directory() {
        let mut map = CowMap::default();
        for k in 0..10_000u32 {
            map.insert(k, ());
        }
        for k in (0..10_000u32).filter(|k| k % 100 != 0) {
            map.remove(&k);
        }
        assert!(map.chunks.len() < 10, "{} chunks for 100 entries", map.chunks.len());
    }
}
