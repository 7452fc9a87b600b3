//! Which host gets which port of ours. A function of what is needed and what stands, so that nothing has to be remembered.
//!
//! Never moves a port that stands: a sandbox may hold the address that leads to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{Make, Standing, pick};
use crate::{policy::Host, sandbox::names::ports::NAMED};

/// Most ports that the sandboxes of one namespace need together: a quarter, so that nobody takes them all.
pub const NAMESPACE_SHARE: usize = 250;

/// What the sandboxes of each namespace need of a host: different sets of ports.
pub type Needs = BTreeMap<(String, Host), BTreeSet<BTreeSet<u16>>>;

/// Why a host gets no port of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The namespace's share is used up.
    Namespace,
    /// All ports are.
    Range,
    /// The API server will not have the Service, in its words.
    Refused(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => {
                write!(
                    f,
                    "this namespace's sandboxes use {NAMESPACE_SHARE} ports, which is the most that they may"
                )
            }
            Self::Range => write!(f, "all ports {}-{} are in use", NAMED.start(), NAMED.end()),
            Self::Refused(words) => write!(f, "the API server refuses its Service: {words}"),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allotment {
    /// Services to make.
    pub make: Vec<Make>,
    /// Names of Services that somebody needs.
    pub used: BTreeSet<String>,
    /// Who gets none, and why.
    pub lacks: BTreeMap<(String, Host), Lack>,
}

/// Decides. `settled` is what [`super::settle`] gave; `foreign` are ports whose Service's name somebody else has.
#[must_use]
pub fn allot(needs: &Needs, settled: &[Standing], foreign: &BTreeSet<u16>) -> Allotment {
    let mut done = Allotment::default();
    let mut shares = BTreeMap::<&str, usize>::new();
    let mut unmet = Vec::new();
    for (key @ (namespace, host), sets) in needs {
        let picked: Vec<_> = sets.iter().map(|ports| pick(settled, host, ports)).collect();
        done.used.extend(picked.iter().flatten().map(|one| one.name.clone()));
        // What somebody has counts before what anybody wants.
        if picked.iter().any(Option::is_some) {
            let met = sets.iter().zip(&picked).filter(|(_, one)| one.is_some()).map(|(ports, _)| ports);
            *shares.entry(namespace).or_default() += union(met).len();
        }
        if picked.iter().any(Option::is_none) {
            let met = sets.iter().zip(&picked).filter(|(_, one)| one.is_some()).map(|(ports, _)| ports);
            unmet.push((key, union(sets), union(met).len()));
        }
    }
    let mut wanted = BTreeMap::<&Host, (BTreeSet<u16>, Vec<&(String, Host)>)>::new();
    for (key @ (namespace, host), ports, counted) in unmet {
        let share = shares.entry(namespace).or_default();
        let more = ports.len().saturating_sub(counted);
        if *share + more > NAMESPACE_SHARE {
            done.lacks.insert(key.clone(), Lack::Namespace);
            continue;
        }
        *share += more;
        let (all, by) = wanted.entry(host).or_default();
        all.extend(ports);
        by.push(key);
    }
    let mut taken: BTreeSet<u16> = settled.iter().flat_map(Standing::claimed).collect();
    taken.extend(foreign);
    for (host, (mut ports, by)) in wanted {
        // Those who are served already come along, so that in the end one Service is enough.
        let served = needs.iter().filter(|((_, other), _)| other == host).flat_map(|(_, sets)| sets);
        let all: BTreeSet<u16> =
            served.filter(|set| pick(settled, host, set).is_some()).flatten().copied().collect();
        let ours = ports_for(host, &all.union(&ports).copied().collect(), &taken);
        let ours = ours.or_else(|| ports_for(host, &std::mem::take(&mut ports), &taken));
        match ours {
            Some(ports) => {
                taken.extend(ports.values());
                done.make.push(Make { host: host.clone(), ports });
            }
            None => done.lacks.extend(by.into_iter().map(|key| (key.clone(), Lack::Range))),
        }
    }
    done
}

fn union<'a>(sets: impl IntoIterator<Item = &'a BTreeSet<u16>>) -> BTreeSet<u16> {
    sets.into_iter().flatten().copied().collect()
}

/// One of ours for each, or none. The search begins where the host's name says: a host that comes back gets its former ports
/// if it can, and a port that was given up is seldom the next one's.
fn ports_for(host: &Host, ports: &BTreeSet<u16>, taken: &BTreeSet<u16>) -> Option<BTreeMap<u16, u16>> {
    let size = NAMED.end() - NAMED.start() + 1;
    let start = u16::try_from(hash(host.as_str()) % u64::from(size)).unwrap_or_default();
    let all = (0..size).map(|step| NAMED.start() + (start + step) % size);
    let mut free = all.filter(|port| !taken.contains(port));
    ports.iter().map(|port| Some((*port, free.next()?))).collect()
}

/// FNV-1a: the same in every version and process, which the standard library's hashes don't promise. Nothing relies on it to
/// keep hosts apart.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
