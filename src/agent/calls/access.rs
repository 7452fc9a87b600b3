//! Owns what binds a call more than the pod does: where it may write, by Landlock, and whether it may open sockets, by seccomp.
//! Both hold this process and whatever it becomes or starts, and can't be taken off.
//!
//! Must say `NotEnforced` wherever anything of it does not hold. They bind what the call itself does: what it gets a process of
//! the workload to do, which is of the same user, is the workload's.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use crate::call::Held;

/// With the third version a kernel holds all that changes files, truncation included.
const LANDLOCK: ABI = ABI::V3;
/// Devices that keep nothing of what is written to them, which every shell script needs.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts"];
/// `io_uring_setup`, the same number on all architectures: a ring opens sockets without `socket`.
const IO_URING_SETUP: i64 = 425;
/// What the numbers of the x32 calls have in common, where a kernel has them beside its own.
const X32: i64 = 0x4000_0000;

/// Denies all that changes files but below `paths`.
///
/// # Errors
/// Which of the paths is not there, in words for whoever called.
pub fn write_only_below(paths: &[PathBuf]) -> Result<Held, String> {
    let mut open = Vec::new();
    for path in paths {
        let opened = PathFd::new(path).map_err(|_| format!("{} can't be opened", path.display()))?;
        open.push((opened, path.is_dir()));
    }
    let devices =
        DEVICES.iter().filter_map(|path| Some((PathFd::new(path).ok()?, PathBuf::from(path).is_dir())));
    open.extend(devices);
    Ok(restrict(open).map_or(Held::NotEnforced, |status| match status {
        RulesetStatus::FullyEnforced => Held::Enforced,
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Held::NotEnforced,
    }))
}

fn restrict(open: Vec<(PathFd, bool)>) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_write(LANDLOCK);
    let mut rules: RulesetCreated = Ruleset::default().handle_access(all)?.create()?;
    for (path, directory) in open {
        let granted = if directory { all } else { all & AccessFs::from_file(LANDLOCK) };
        rules = rules.add_rule(PathBeneath::new(path, granted))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Denies every socket but those of this kernel alone.
#[must_use]
pub fn deny_sockets() -> Held {
    let held = filter().and_then(|filter| apply_filter(&filter).ok());
    held.map_or(Held::NotEnforced, |()| Held::Enforced)
}

fn filter() -> Option<BpfProgram> {
    let unix = u64::try_from(libc::AF_UNIX).ok()?;
    let family = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix).ok()?;
    let foreign = SeccompRule::new(vec![family]).ok()?;
    let mut rules = BTreeMap::new();
    for offset in if ARCH == "x86_64" { &[0, X32][..] } else { &[0] } {
        rules.insert(libc::SYS_socket + offset, vec![foreign.clone()]);
        rules.insert(IO_URING_SETUP + offset, Vec::new());
    }
    let errno = u32::try_from(libc::EACCES).ok()?;
    let target: TargetArch = ARCH.try_into().ok()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), target).ok()?;
    filter.try_into().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_filter_can_be_built_here() {
        assert!(super::filter().is_some());
    }
}
