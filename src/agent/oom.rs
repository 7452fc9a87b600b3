//! Owns one number: how often the kernel's out-of-memory killer struck in this container.

use std::fs;
use std::path::Path;

/// Where the container's own cgroup is mounted.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The count under `root`, from `memory.events` (cgroup v2) or `memory/memory.oom_control` (v1); `None` where neither
/// is there, as on gVisor.
#[must_use]
pub fn kills(root: &Path) -> Option<u64> {
    ["memory.events", "memory/memory.oom_control"]
        .iter()
        .find_map(|file| count(&fs::read_to_string(root.join(file)).ok()?))
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_versions_of_the_file() {
        assert_eq!(count("low 0\nhigh 0\nmax 5\noom 2\noom_kill 3\noom_group_kill 0\n"), Some(3));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\n"), None);
        assert_eq!(count("oom_kill many\n"), None);
    }

    #[test]
    fn without_a_cgroup_there_is_no_count() {
        assert_eq!(kills(Path::new("/nonexistent")), None);
    }
}
