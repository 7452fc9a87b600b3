//! How many connections a replica has room for: as many as its file descriptors carry and its memory holds. What comes beyond is
//! closed at once, so that no crowd takes the process away from those who are in.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sandbox::names::ports;

/// Most of a kind, for all sandboxes together.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Connections.
    pub connections: u32,
    /// Directions that are spliced, each with a pipe.
    pub pipes: u32,
}

/// Connections of a replica, unless it is told otherwise.
const MOST_CONNECTIONS: u32 = 50_000;
/// File descriptors for all that is no connection.
const OTHER_FILES: u64 = 128;
/// Memory of one connection, idle or with a head that does not end.
const EACH: u64 = 20 * 1024;
/// The memory that the container may have, where it is bounded.
const MEMORY: &str = "/sys/fs/cgroup/memory.max";

/// Raises the number of file descriptors as far as it goes, and shares it out.
pub(super) fn room(most: Option<u32>) -> Room {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    share(limit.current.unwrap_or(1 << 20), memory(Path::new(MEMORY)), most)
}

/// Two file descriptors for a connection, two for a pipe; three quarters of the memory. Whoever names a number knows the memory.
fn share(files: u64, memory: Option<u64>, most: Option<u32>) -> Room {
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).max(1);
    // Ports that stand for hosts have a listener each; where files are few, so are these.
    let named = u64::try_from(ports::NAMED.count()).unwrap_or_default().min(files / 4);
    let third = number(files.saturating_sub(OTHER_FILES + named) / 3);
    let held = memory.map_or(u32::MAX, |bytes| number(bytes / 4 * 3 / EACH));
    let connections = most.unwrap_or_else(|| MOST_CONNECTIONS.min(held)).min(third);
    Room { connections, pipes: (third / 2).min(connections.saturating_mul(2)) }
}

/// None where there is no bound, or nothing that says so.
fn memory(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_memory_bound_it() {
        let connections = |files, memory, most| share(files, memory, most).connections;
        assert_eq!(connections(1 << 20, None, None), 50_000);
        assert_eq!(connections(20_000, None, None), 6_290);
        assert_eq!(connections(1 << 20, Some(512 << 20), None), 19_660, "as the chart has it");
        assert_eq!(connections(1 << 20, Some(512 << 20), Some(30_000)), 30_000);
        assert_eq!(connections(20_000, Some(1 << 40), Some(30_000)), 6_290);
        assert_eq!(connections(0, Some(0), None), 1);
    }

    /// Connections and pipes together never ask for a descriptor that is not there.
    #[test]
    fn descriptors_suffice_for_all_of_it() {
        for files in [200, 1024, 20_000, 1 << 20] {
            for most in [None, Some(1), Some(100), Some(1_000_000)] {
                let Room { connections, pipes } = share(files, None, most);
                assert!(
                    2 * u64::from(connections) + 2 * u64::from(pipes) + OTHER_FILES <= files,
                    "{files} {most:?}"
                );
            }
        }
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        let directory = std::env::temp_dir().join(format!("glovebox-room-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (text, want) in [("536870912\n", Some(536_870_912)), ("max\n", None), ("", None)] {
            let path = directory.join("memory.max");
            std::fs::write(&path, text).unwrap();
            assert_eq!(memory(&path), want, "{text:?}");
        }
        assert_eq!(memory(&directory.join("none")), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
