//! Addresses that are given again, and changes in any order: an address is one sandbox's alone, or nobody's.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::gateway::flow::{Cause, Open};

const ADDRESSES: [&str; 2] = ["10.244.0.7", "10.244.0.8"];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// What a sandbox or its pod is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Absent,
    /// Of this uid, with addresses by bits; alive.
    Alive(u8, u8),
    /// The same, ended.
    Ended(u8, u8),
    /// The same, to be deleted.
    Going(u8, u8),
}

/// A change that a watch tells.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pod(usize, Now),
    Sandbox(usize, Now),
    /// Every list is read anew.
    Relist,
}

fn uid(at: usize, life: u8) -> String {
    format!("{}-{life}", NAMES[at])
}

fn held(bits: u8) -> Vec<&'static str> {
    ADDRESSES.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, address)| *address).collect()
}

fn pod_of(at: usize, now: Now) -> Option<Value> {
    let (life, bits) = match now {
        Now::Absent => return None,
        Now::Alive(life, bits) | Now::Ended(life, bits) | Now::Going(life, bits) => (life, bits),
    };
    let mut pod = pod(&uid(at, life));
    pod["metadata"]["name"] = json!(NAMES[at]);
    pod["status"]["podIPs"] = held(bits).iter().map(|ip| json!({"ip": ip})).collect();
    pod["status"]["podIP"] = json!(held(bits).first());
    match now {
        Now::Ended(..) => pod["status"]["phase"] = json!("Succeeded"),
        Now::Going(..) => pod["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z"),
        Now::Absent | Now::Alive(..) => {}
    }
    Some(pod)
}

fn sandbox_of(at: usize, now: Now) -> Option<Value> {
    let life = match now {
        Now::Absent => return None,
        Now::Alive(life, _) | Now::Ended(life, _) | Now::Going(life, _) => life,
    };
    let mut sandbox = sandbox(&uid(at, life), &[]);
    sandbox["metadata"]["name"] = json!(NAMES[at]);
    sandbox["spec"]["egress"]["allow"][0]["hosts"] = json!([format!("{}.example", uid(at, life))]);
    match now {
        Now::Ended(..) => {
            sandbox["status"] = json!({"conditions": [{"type": "Finished", "status": "True", "reason": "Completed",
                "message": "", "lastTransitionTime": "2027-01-01T00:00:00Z"}]});
        }
        Now::Going(..) => sandbox["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z"),
        Now::Absent | Now::Alive(..) => {}
    }
    Some(sandbox)
}

/// A pod and its address.
type Claim = (&'static str, String);

/// The cluster as the watches told it so far, and the index that was told.
struct Told {
    watched: Watched,
    pods: [Now; 3],
    sandboxes: [Now; 3],
    /// A tunnel of each tenant that was ever found at an address.
    open: BTreeMap<Claim, Vec<(Arc<Tenant>, Open)>>,
}

impl Told {
    fn new() -> Self {
        let mut watched = Watched::new();
        fill(&mut watched.pods, &[]);
        fill(&mut watched.sandboxes, &[]);
        watched.take(&Change::Everything);
        Self { watched, pods: [Now::Absent; 3], sandboxes: [Now::Absent; 3], open: BTreeMap::new() }
    }

    fn step(&mut self, step: Step) {
        let change = match step {
            Step::Pod(at, now) => {
                self.pods[at] = now;
                Change::Sandbox(("team-a".into(), NAMES[at].into()))
            }
            Step::Sandbox(at, now) => {
                self.sandboxes[at] = now;
                Change::Sandbox(("team-a".into(), NAMES[at].into()))
            }
            Step::Relist => Change::Everything,
        };
        let all = |of: fn(usize, Now) -> Option<Value>, now: &[Now; 3]| -> Vec<Value> {
            now.iter().enumerate().filter_map(|(at, now)| of(at, *now)).collect()
        };
        fill(&mut self.watched.pods, &all(pod_of, &self.pods));
        fill(&mut self.watched.sandboxes, &all(sandbox_of, &self.sandboxes));
        self.watched.take(&change);
    }

    /// The specification: who claims an address, as far as was told.
    fn claimants(&self, address: &str) -> Vec<String> {
        let claims = |at: &usize| match (self.pods[*at], self.sandboxes[*at]) {
            (Now::Alive(life, bits), Now::Alive(other, _)) => life == other && held(bits).contains(&address),
            _ => false,
        };
        let life = |at: usize| match self.pods[at] {
            Now::Alive(life, _) => uid(at, life),
            _ => unreachable!("only who is alive claims"),
        };
        (0..3).filter(claims).map(life).collect()
    }

    fn check(&mut self) {
        for address in ADDRESSES {
            let claimants = self.claimants(address);
            let found = self.watched.directory.find(address.parse().unwrap());
            let who = found.as_ref().map(|tenant| tenant.identity.uid.to_string());
            let [sole] = claimants.as_slice() else {
                assert_eq!(who, None, "{address} of {claimants:?}");
                continue;
            };
            assert_eq!(who.as_ref(), Some(sole), "{address}");
            let tenant = found.unwrap();
            self.judged_by_its_own_policy(&tenant, sole);
            // Whoever is found can open something: none is left behind as one that has ended.
            let open = tenant.open(&asked(sole), tenant.terms().generation, now()).unwrap();
            self.open.entry((address, sole.clone())).or_default().push((tenant, open));
        }
        for ((address, uid), tunnels) in &self.open {
            let current = self.watched.directory.find(address.parse().unwrap());
            for (tenant, open) in tunnels {
                let still = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, tenant));
                let cause = open.closed().now_or_never();
                assert_eq!(cause, (!still).then_some(Cause::Gone), "a tunnel of {uid} from {address}");
            }
        }
    }

    fn judged_by_its_own_policy(&self, tenant: &Tenant, sole: &str) {
        let policy = &tenant.terms().policy;
        for other in (0..3).flat_map(|at| [uid(at, 0), uid(at, 1)]) {
            let allowed = asked(&other).judge(policy, now()).denied().is_none();
            assert_eq!(allowed, other == sole, "{sole} to the host of {other}");
        }
    }
}

fn asked(uid: &str) -> Asked {
    let destination = Destination::parse(format!("{uid}.example").as_bytes()).unwrap();
    Asked { destination, port: 443, wire: Wire::Tls, request: None }
}

fn moments() -> impl Strategy<Value = Now> {
    let bits = (0_u8..2, select(vec![0b00, 0b01, 0b01, 0b10, 0b11]));
    (select(vec![0, 1, 1, 1, 2, 3]), bits).prop_map(|(kind, (life, bits))| match kind {
        0 => Now::Absent,
        1 => Now::Alive(life, bits),
        2 => Now::Ended(life, bits),
        _ => Now::Going(life, bits),
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, moments()).prop_map(|(at, now)| Step::Pod(at, now)),
        3 => (0..3_usize, moments()).prop_map(|(at, now)| Step::Sandbox(at, now)),
        1 => Just(Step::Relist),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: an address is its only claimant's, judged by that one's own policy; what was open
    /// before is closed as soon as it may be another's; and who has it in the end can use it.
    #[test]
    fn an_address_is_one_sandboxs_or_nobodys(steps in vec(steps(), 1..24)) {
        let mut told = Told::new();
        for step in steps {
            told.step(step);
            told.check();
        }
    }
}

/// Every order in which the end of one sandbox and the beginning of the next can be told, each kind of change in its own order.
#[test]
fn an_address_given_again_within_a_second() {
    for end in [Now::Ended(0, 1), Now::Going(0, 1), Now::Absent] {
        let old = [Step::Pod(0, end), Step::Sandbox(0, Now::Ended(0, 0))];
        let new = [
            Step::Sandbox(1, Now::Alive(0, 0)),
            Step::Pod(1, Now::Alive(0, 0)),
            Step::Pod(1, Now::Alive(0, 1)),
        ];
        // Which of five changes are the old one's: every way to lay the two sequences into one another.
        for mask in (0_u8..32).filter(|mask| mask.count_ones() == 2) {
            let mut told = Told::new();
            told.step(Step::Sandbox(0, Now::Alive(0, 0)));
            told.step(Step::Pod(0, Now::Alive(0, 1)));
            told.check();
            let (mut old, mut new) = (old.iter(), new.iter());
            for at in 0..5 {
                let next = if mask >> at & 1 == 1 { old.next() } else { new.next() };
                told.step(*next.unwrap());
                told.check();
            }
            assert_eq!(told.claimants(ADDRESSES[0]), ["b-0"], "{mask:05b}");
        }
    }
}

/// A replica that starts while both are in the lists must not pick one of them.
#[test]
fn a_list_with_two_claims_gives_the_address_to_nobody_until_one_ends() {
    let mut told = Told::new();
    (told.pods[0], told.sandboxes[0]) = (Now::Alive(0, 1), Now::Alive(0, 0));
    (told.pods[1], told.sandboxes[1]) = (Now::Alive(0, 1), Now::Alive(0, 0));
    told.step(Step::Relist);
    told.check();
    told.step(Step::Pod(0, Now::Ended(0, 1)));
    told.check();
    assert_eq!(told.watched.tenant().map(|tenant| tenant.identity.uid.to_string()).as_deref(), Some("b-0"));
}

/// What a sandbox used stays used when its address is doubted for a moment.
#[test]
fn a_doubted_address_renews_no_budget() {
    let mut told = Told::new();
    told.step(Step::Sandbox(0, Now::Alive(0, 0)));
    told.step(Step::Pod(0, Now::Alive(0, 1)));
    let before = told.watched.tenant().unwrap();
    let rule = |tenant: &Tenant| {
        let policy = tenant.terms().policy.clone();
        let (used, _place) = tenant.use_rule(&policy.rules()[0], &asked("a-0").destination).unwrap();
        used
    };
    let used = rule(&before);
    told.step(Step::Sandbox(1, Now::Alive(0, 0)));
    told.step(Step::Pod(1, Now::Alive(0, 1)));
    assert!(told.watched.tenant().is_none());
    told.step(Step::Pod(1, Now::Absent));
    let after = told.watched.tenant().unwrap();
    assert!(!Arc::ptr_eq(&before, &after) && Arc::ptr_eq(&used, &rule(&after)));
}
