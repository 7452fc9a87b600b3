//! The table at the end of a run: each row of the conformance list with how many attempts were made and how many came to
//! nothing, and how many honest twins worked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A row's number, group, attack and twin.
pub(crate) type Row = (u16, &'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    (1, "names", "bytes that no host has, in every entry", "the name itself"),
    (2, "names", "upper case where it is denied", "upper case where it is allowed"),
    (3, "names", "dots in front, within, two behind", "one dot behind"),
    (6, "names", "beyond the borders of a wildcard", "one label under it"),
    (7, "names", "suffixes, user info, look-alikes", "-"),
    (8, "names", "addresses as hosts, in every spelling", "the name"),
    (10, "names", "IPv4 within IPv6, asked and answered", "-"),
    (12, "names", "this host, multicast, reserved", "-"),
    (13, "names", "metadata by address, name and answer", "-"),
    (14, "names", "allowed names that lead inside, or turn", "an answer that is good"),
    (15, "names", "the gateway and the cluster through the gateway", "-"),
    (16, "names", "nine aliases in a row", "three"),
    (18, "DNS", "data in names that no rule allows", "the allowed name"),
    (19, "DNS", "data in names under a wildcard", "some of them"),
    (20, "DNS", "other types, classes, opcodes, broken packets", "type A"),
    (22, "DNS", "denied names and bad lengths by TCP", "the same by TCP"),
    (23, "DNS", "other name servers, DoT, multicast", "-"),
    (24, "DNS", "DNS over HTTPS", "another host under the wildcard"),
    (25, "DNS", "HTTPS and SVCB records", "-"),
    (26, "DNS", "search lists", "one name server, ndots 1"),
    (27, "DNS", "the node's cache", "-"),
    (29, "DNS", "answers that are asked for again", "the C library finds what is allowed"),
    (30, "TLS", "a name forced to another address", "the allowed host"),
    (31, "TLS", "CONNECT one host, SNI another", "both the same"),
    (32, "TLS", "no name, an address, two names", "-"),
    (34, "TLS", "hellos in pieces, hellos that drip", "an allowed one in pieces"),
    (36, "TLS", "hellos without end", "a hello of 60 KiB"),
    (37, "TLS", "GREASE in a denied hello", "in an allowed one"),
    (38, "TLS", "encrypted hello behind a public name", "one that means nothing"),
    (39, "TLS", "another Host within what is opened", "the Host of the hello"),
    (41, "TLS", "bytes behind a denied hello", "a hello alone"),
    (42, "TLS", "QUIC, Alt-Svc", "the allowed request"),
    (43, "TLS", "what is not TLS, on a TLS port", "a rule with protocol TCP"),
    (45, "TLS", "opened hosts that can't prove themselves", "one that can, verified inside"),
    (46, "HTTP", "CONNECT to other hosts and ports", "to the rule's"),
    (48, "HTTP", "URI, Host and port that differ", "that agree"),
    (49, "HTTP", "a second request on the connection", "on a connection of its own"),
    (50, "HTTP", "two readings of one request", "bodies with one length"),
    (52, "HTTP", "forged identity", "the server's own fields"),
    (55, "doors", "ports that are not for sandboxes", "ports that are"),
    (56, "doors", "the gateway from another pod", "from a sandbox"),
    (58, "HTTP", "methods and paths beside the rule", "the rule's"),
    (62, "fence", "connections from the first instruction on", "-"),
    (63, "fence", "a rule taken back under an open tunnel", "a rule given"),
    (64, "fence", "a network that enforces nothing", "the same once it does"),
    (66, "doors", "the world and the nodes past the gateway", "-"),
    (67, "doors", "the API server", "-"),
    (68, "doors", "ICMP, SCTP, raw packets", "-"),
    (73, "fence", "a gateway killed under load", "connections after it"),
    (76, "doors", "ports that stand for other sandboxes' hosts", "a host by name, without a proxy"),
];

/// What other tests show, or what there is nothing of to be tried.
const ELSEWHERE: &[(&str, &str)] = &[
    ("58, credentials", "credentials:: foreign keys, placeholders elsewhere, echoes, redirects"),
    ("59", "policy::tests: wildcards at shared suffixes are refused"),
    ("60", "tests/gateway/limits.rs: budgets for a lifetime"),
    ("65", "admission:: and hardening::: pods that are no sandbox"),
    ("71", "every test here: a source that was changed would be unknown"),
    ("72", "chart: the gateway asks the node's name servers by address"),
    ("75", "approvals:: floods, edits after review, decisions in another's name, namesakes"),
];

/// What was tried of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    /// Attacks that were made.
    pub(crate) attacks: usize,
    /// Those that came to nothing.
    pub(crate) held: usize,
    /// Honest twins.
    pub(crate) twins: usize,
    /// Those that worked.
    pub(crate) work: usize,
    /// What the target has no entry for.
    pub(crate) absent: usize,
    /// What did not hold, and what did not work.
    pub(crate) failures: Vec<String>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All attacks came to nothing, all twins worked.
    Pass,
    /// Not so.
    Fail,
    /// No attack was made.
    Nothing,
}

impl Count {
    /// With or without twins: some rows have none against Glovebox, which is known to work by the others.
    fn verdict(&self) -> Verdict {
        match self {
            Self { attacks: 0, twins: 0, .. } => Verdict::Nothing,
            Self { attacks, held, twins, work, .. } if held == attacks && work == twins => Verdict::Pass,
            _ => Verdict::Fail,
        }
    }

    /// A row without an attack says nothing of a target, and one without a twin no more: who refuses everything holds nothing.
    fn strict_verdict(&self) -> Verdict {
        match self {
            Self { attacks: 0, .. } => Verdict::Nothing,
            Self { twins: 0, .. } => Verdict::Fail,
            _ => self.verdict(),
        }
    }
}

/// The counts of all rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(BTreeMap<u16, Count>);

impl Table {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Notes what a script printed: lines such as `ok #46 attack CONNECT ...`.
    pub(crate) fn note(&mut self, log: &str) {
        for line in log.lines() {
            let mut words = line.splitn(4, ' ');
            let Some(word @ ("ok" | "BREACH" | "none")) = words.next() else { continue };
            let row = words.next().and_then(|word| word.strip_prefix('#')?.parse().ok());
            let (Some(row), Some(kind)) = (row, words.next()) else { continue };
            let what = words.next().unwrap_or_default();
            match (word, kind) {
                ("none", _) => self.0.entry(row).or_default().absent += 1,
                (word, "attack") => self.attack(row, what, word == "ok"),
                (word, "twin") => self.twin(row, what, word == "ok"),
                _ => {}
            }
        }
    }

    /// Notes an attack, and whether it came to nothing.
    pub(crate) fn attack(&mut self, row: u16, what: &str, held: bool) {
        let count = self.0.entry(row).or_default();
        count.attacks += 1;
        count.held += usize::from(held);
        if !held {
            count.failures.push(format!("attack {what}"));
        }
    }

    /// Notes a twin, and whether it worked.
    pub(crate) fn twin(&mut self, row: u16, what: &str, works: bool) {
        let count = self.0.entry(row).or_default();
        count.twins += 1;
        count.work += usize::from(works);
        if !works {
            count.failures.push(format!("twin {what}"));
        }
    }

    /// Each row as a target is judged by it.
    pub(crate) fn judged(&self) -> impl Iterator<Item = (&'static Row, Count, Verdict)> {
        ROWS.iter().map(|row| {
            let count = self.0.get(&row.0).cloned().unwrap_or_default();
            let verdict = count.strict_verdict();
            (row, count, verdict)
        })
    }

    fn strange(&self) -> impl Iterator<Item = &u16> {
        self.0.keys().filter(|row| !ROWS.iter().any(|(known, ..)| known == *row))
    }
}

static TABLE: Mutex<Table> = Mutex::new(Table::new());

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes what a script printed, in the table of this run.
pub(crate) fn note(log: &str) {
    table().note(log);
}

/// Notes an attack, and whether it came to nothing.
pub(crate) fn attack(row: u16, held: bool) {
    table().attack(row, "", held);
}

/// Notes a twin, and whether it worked.
pub(crate) fn twin(row: u16, works: bool) {
    table().twin(row, "", works);
}

/// The line above a table.
pub(crate) fn head() -> String {
    format!(
        "{:>3}  {:5}  {:47}  {:>11}  {:38}  {:>9}  result",
        "row", "group", "attack", "held", "twin", "works"
    )
}

/// One line of a table.
pub(crate) fn line((row, group, attack, twin): &Row, count: &Count, result: &str) -> String {
    let Count { attacks, held, twins, work, .. } = count;
    let (held, work) = (format!("{held}/{attacks}"), format!("{work}/{twins}"));
    format!("{row:>3}  {group:5}  {attack:47}  {held:>11}  {twin:38}  {work:>9}  {result}")
}

/// Prints the table of this run, if anything was tried.
pub(crate) fn print() {
    let table = table().clone();
    if table.0.is_empty() {
        return;
    }
    println!("\n{}", head());
    for row in ROWS {
        let count = table.0.get(&row.0).cloned().unwrap_or_default();
        let result = match count.verdict() {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Nothing => "not run",
        };
        println!("{}", line(row, &count, result));
    }
    for row in table.strange() {
        println!("{row:>3}  is tried and not in this table");
    }
    println!("\nnot of this suite:");
    for (rows, why) in ELSEWHERE {
        println!("{rows:>16}  {why}");
    }
}
