//! What a process has used.

use anyhow::{Context as _, Result};

/// User and system time of its threads, in microseconds: the sum of both as the scheduler counts it, since `stat` has it in hundredths of
/// a second.
pub(crate) fn micros(process: u32) -> Result<f64> {
    let mut nanos = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let (on_cpu, _) = text.split_once(' ').context("/proc/*/task/*/schedstat is short")?;
        nanos += on_cpu.parse::<f64>()?;
    }
    Ok(nanos / 1000.0)
}
