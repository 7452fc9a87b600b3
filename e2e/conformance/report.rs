//! What is told of a proxy that was judged: a table for a person, or JSON for a program.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::table::{self, Table, Verdict};

/// How many failures of a row a person is shown.
const SHOWN: usize = 3;

/// How a verdict is called.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Nothing => "not offered",
    }
}

/// How many rows passed, failed, and were not offered.
fn sums(table: &Table) -> (usize, usize, usize) {
    let count = |wanted| table.judged().filter(|(_, _, verdict)| *verdict == wanted).count();
    (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Nothing))
}

/// Whether no row failed, and one passed.
pub(super) fn good(table: &Table) -> bool {
    let (passed, failed, _) = sums(table);
    failed == 0 && passed > 0
}

/// The table, what failed, and a closing line as test programs have it.
pub(super) fn print(name: &str, table: &Table) {
    rows(name, table);
    let (passed, failed, absent) = sums(table);
    let result = if good(table) { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {absent} not offered");
}

/// The table and what failed.
pub(super) fn rows(name: &str, table: &Table) {
    println!("\n{name}\n{}", table::head());
    for (row, count, verdict) in table.judged() {
        println!("{}", table::line(row, &count, word(verdict)));
    }
    for ((row, ..), count, _) in table.judged().filter(|(_, _, verdict)| *verdict == Verdict::Fail) {
        println!("\nrow {row}, {} failures", count.failures.len());
        for failure in count.failures.iter().take(SHOWN) {
            println!("  {failure}");
        }
    }
}

/// The same, with every failure.
pub(super) fn json(name: &str, table: &Table) -> Value {
    let rows = table.judged().map(|((row, group, attack, twin), count, verdict)| {
        json!({
            "row": row, "group": group, "attack": attack, "twin": twin, "result": word(verdict).to_lowercase(),
            "attacks": count.attacks, "held": count.held, "twins": count.twins, "worked": count.work,
            "notOffered": count.absent, "failures": count.failures,
        })
    });
    let (passed, failed, absent) = sums(table);
    json!({
        "target": name, "time": Timestamp::now().to_string(), "rows": rows.collect::<Vec<_>>(),
        "passed": passed, "failed": failed, "notOffered": absent,
    })
}
