//! Address ranges by prefix, for a lookup that costs one step for each length of prefix in use.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;

/// Values of ranges.
#[derive(Clone, Debug)]
pub(super) struct RangeMap<T> {
    values: HashMap<IpNet, Vec<T>>,
    /// Lengths of prefixes in use, the longest first.
    v4: Vec<u8>,
    v6: Vec<u8>,
}

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        Self { values: HashMap::new(), v4: Vec::new(), v6: Vec::new() }
    }
}

impl<T> RangeMap<T> {
    /// Adds a value to a range.
    pub(super) fn add(&mut self, range: IpNet, value: T) {
        let lengths = if matches!(range, IpNet::V4(_)) { &mut self.v4 } else { &mut self.v6 };
        if let Err(at) = lengths.binary_search_by(|length| range.prefix_len().cmp(length)) {
            lengths.insert(at, range.prefix_len());
        }
        self.values.entry(range.trunc()).or_default().push(value);
    }

    /// Values of the ranges that hold the address, the narrowest range first.
    pub(super) fn holding(&self, address: IpAddr) -> impl Iterator<Item = &T> {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths
            .iter()
            .filter_map(move |length| {
                let range = IpNet::new(address, *length).ok()?.trunc();
                self.values.get(&range)
            })
            .flatten()
    }
}
