//! Tests that disturb what others rely on, or are disturbed by others: one after the other, each with the cluster to itself.

mod budget;
mod deadline;
mod faults;
pub(crate) mod fence;
mod leftovers;
mod load;

use crate::harness::Cases;

/// Adds the tests; the last one looks at what the whole run left behind.
pub(crate) fn cases(cases: &mut Cases) {
    deadline::cases(cases);
    budget::cases(cases);
    load::cases(cases);
    crate::session::alone(cases);
    crate::evidence::alone(cases);
    faults::cases(cases);
    fence::cases(cases);
    leftovers::cases(cases);
}
