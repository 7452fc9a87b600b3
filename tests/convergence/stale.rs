//! Watches that lag: what was just done must not be done again.

use std::panic::{self, AssertUnwindSafe};

use glovebox::testkit::{caches, caches::Lag, scenarios};

use crate::faults::{play, wrong};

/// Each story, with all stores late and with each of them late: the same stops.
#[test]
fn late_stores_change_nothing() {
    let lags: Vec<Lag> =
        caches::watched().map(|kind| Lag::Kind(kind, 3)).chain([Lag::All(1), Lag::All(4)]).collect();
    let mut failed = Vec::new();
    for scenario in scenarios::all() {
        let plain = play(scenario, |_| {});
        for lag in &lags {
            let late = panic::catch_unwind(AssertUnwindSafe(|| {
                wrong(&plain, &play(scenario, |driver| driver.lag = lag.clone()))
            }));
            match late {
                Ok(wrong) if wrong.is_empty() => {}
                Ok(wrong) => failed.push(format!("{} with {lag:?}: {wrong:#?}", scenario.name)),
                Err(_) => failed.push(format!("{} with {lag:?}: see above", scenario.name)),
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} runs went wrong:\n{}",
        failed.len(),
        scenarios::all().count() * lags.len(),
        failed.join("\n")
    );
}
