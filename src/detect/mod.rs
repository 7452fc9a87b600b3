//! Signs that a sandbox does what looks like an attack: what they weigh, how they are counted in bounded memory, and how replicas
//! tell them to the controller.
//!
//! Judges nothing: what is enough, and what becomes of it, is the class's word, in [`crate::sandbox::suspicion`]. Must never keep a
//! text out of a sandbox that was not made printable and cut.

mod rates;
mod signs;
mod wire;

pub use rates::{Names, Upload, information};
pub use signs::{MOST_SIGNS, Sign, Signs, Weight};
pub(crate) use wire::{Board, ask, routes};
pub use wire::{Place, Told, Wanted};
