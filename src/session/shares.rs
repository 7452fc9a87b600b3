//! Room that namespaces share: each may have half of what the others leave free. Nobody waits here: there is room, or there is not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// So much room.
#[derive(Debug)]
pub(super) struct Shares {
    most: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    /// Only of those who have some.
    by: HashMap<Arc<str>, u64>,
}

impl Shares {
    /// All of it free.
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Room of this size for somebody of this namespace, if there is any. However much others have, there is always some left for
    /// who has none; it may be too little.
    pub(super) fn enter(self: &Arc<Self>, namespace: &str, size: u64) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by.get(namespace).copied().unwrap_or_default();
        let left = self.most - (taken.all - own);
        let next = own.checked_add(size).filter(|next| *next <= left.div_ceil(2))?;
        let namespace: Arc<str> = namespace.into();
        taken.all += size;
        taken.by.insert(namespace.clone(), next);
        drop(taken);
        Some(Share { shares: self.clone(), namespace, size })
    }

    /// How much is taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

/// Room that is taken; dropping it leaves.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    namespace: Arc<str>,
    size: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= self.size;
        if let Some(own) = taken.by.get_mut(&self.namespace) {
            *own -= self.size;
            if *own == 0 {
                taken.by.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_leaves_room_for_others() {
        let shares = Shares::new(8);
        let fill = |namespace: &str| std::iter::from_fn(|| shares.enter(namespace, 1)).collect::<Vec<_>>();
        let first = fill("a");
        assert_eq!(first.len(), 4);
        let second = fill("b");
        assert_eq!(second.len(), 2);
        assert_eq!(fill("c").len(), 1);
        assert_eq!(shares.taken(), 6, "what is not held is given back");
        drop(first);
        assert_eq!(fill("b").len(), 2, "half of all");
        drop(second);
        assert!(shares.taken() == 0 && shares.taken.lock().unwrap().by.is_empty());
        assert!(shares.enter("a", u64::MAX).is_none());
    }

    proptest! {
        #[test]
        fn there_is_never_more_than_there_is(
            most in 1..200_u64, steps in prop::collection::vec((0..4_usize, 1..20_u64, any::<bool>()), 0..200)
        ) {
            let shares = Shares::new(most);
            let mut held: [Vec<Share>; 4] = Default::default();
            for (who, size, enter) in steps {
                if enter {
                    held[who].extend(shares.enter(&who.to_string(), size));
                } else {
                    held[who].pop();
                }
                let sum: u64 = held.iter().flatten().map(|share| share.size).sum();
                prop_assert_eq!(sum, shares.taken());
                prop_assert!(sum <= most);
                // Who has nothing gets something as long as anything is free.
                if sum < most {
                    for (who, own) in held.iter().enumerate() {
                        prop_assert!(!own.is_empty() || shares.enter(&who.to_string(), 1).is_some());
                    }
                }
            }
        }
    }
}
