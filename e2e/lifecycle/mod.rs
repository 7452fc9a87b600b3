//! From `kubectl apply` to gone: how a sandbox ends, what it waits for, and how it is deleted.

mod deletion;
mod ending;
mod waiting;

use crate::harness::Cases;

/// Adds the tests.
pub(crate) fn cases(cases: &mut Cases) {
    ending::cases(cases);
    waiting::cases(cases);
    deletion::cases(cases);
}
