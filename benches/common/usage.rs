//! What processes of one role of Glovebox used, where this machine runs them.

use std::time::Duration;

/// Clock ticks a second in /proc: fixed by the kernel's interface.
const TICKS: u64 = 100;
/// A page of memory, in bytes.
const PAGE: u64 = 4096;

/// CPU time since they were started, and memory now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system.
    pub(crate) cpu: Duration,
    /// In bytes.
    pub(crate) resident: u64,
    /// How many there are; none means that they are not on this machine.
    pub(crate) processes: usize,
}

impl Usage {
    /// Of all processes of `glovebox ROLE`.
    pub(crate) fn read(role: &str) -> Self {
        let mut sum = Self::default();
        let begins = format!("/glovebox\0{role}\0");
        let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        for process in processes {
            let read = |file: &str| std::fs::read_to_string(process.path().join(file)).unwrap_or_default();
            if !read("cmdline").starts_with(&begins) {
                continue;
            }
            let stat = read("stat");
            let fields: Vec<&str> =
                stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
            let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            sum.cpu += Duration::from_millis((field(11) + field(12)) * 1000 / TICKS);
            sum.resident += field(21) * PAGE;
            sum.processes += 1;
        }
        sum
    }

    /// Between two moments.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), ..self }
    }
}
