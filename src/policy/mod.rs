//! May this go out, may this image be used? Rules become verdicts here and nowhere else.
//!
//! Pure: no client, no clock, no IO. Whatever is missing, unparsable or unknown is denied.

mod address;
mod bounds;
mod compile;
mod credential;
mod decide;
mod denied;
mod host;
mod http_path;
mod image;
mod pattern;
mod ranges;
mod table;
mod verdict;

pub use address::{AddressRule, Block, Rejection, Source};
pub use compile::Unfit;
pub use credential::{Credential, placeholder};
pub use decide::{Ask, Wire};
pub use denied::{
    Checked, ClusterRanges, always_denied, check_answer, denied_name, denied_port, hard_denied,
};
pub use host::{Destination, Host, HostError};
pub use http_path::{HttpMatch, PathGlob};
pub use image::{ImageError, ImageRef, allowed as image_allowed};
pub use pattern::{Pattern, Shared, Width};
pub use table::{Limits, Policy, Rule};
pub use verdict::{Denial, DenyReason, Severity, Verdict};

#[cfg(test)]
mod tests;
