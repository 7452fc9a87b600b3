//! Which sandboxes claim which address. An address that two claim at once is nobody's.
//!
//! A node gives the address of a pod that ended to the next one before everybody knows of the end, and watches of several kinds
//! keep no order between them. Which of two claims is the older one can't be told, so neither is believed until one ends.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use super::index::Key;

/// Claims by address.
#[derive(Debug, Default)]
pub(super) struct Claims(HashMap<IpAddr, BTreeSet<Key>>);

impl Claims {
    /// Sets what one sandbox claims, which was `before` until now. Whose addresses may be other ones now.
    pub(super) fn set(&mut self, key: &Key, before: &[IpAddr], after: &[IpAddr]) -> BTreeSet<Key> {
        let mut touched = BTreeSet::from([key.clone()]);
        for address in before.iter().filter(|address| !after.contains(address)) {
            if let Some(claimants) = self.0.get_mut(address) {
                claimants.remove(key);
                touched.extend(claimants.iter().cloned());
                if claimants.is_empty() {
                    self.0.remove(address);
                }
            }
        }
        for address in after.iter().filter(|address| !before.contains(address)) {
            let claimants = self.0.entry(*address).or_default();
            touched.extend(claimants.iter().cloned());
            claimants.insert(key.clone());
            if claimants.len() > 1 {
                tracing::warn!(%address, ?claimants, "claimed by several sandboxes: nobody's until one ends");
            }
        }
        touched
    }

    /// Whether this sandbox claims the address, and no other does.
    pub(super) fn is_sole(&self, key: &Key, address: IpAddr) -> bool {
        self.0.get(&address).is_some_and(|claimants| claimants.len() == 1 && claimants.contains(key))
    }
}
