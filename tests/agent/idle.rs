//! A container without a workload: it waits, adopts what calls leave behind, and goes at TERM.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::container::{Container, Recipe, USER, eventually};

/// Runs a shell script beside process 1, as an exec call of Kubernetes does.
fn exec(process_1: Pid, script: &str) -> Command {
    let mut command = Command::new("nsenter");
    let target = process_1.to_string();
    command.args(["--target", &target, "--pid", "--mount"]);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.args(["--setuid", USER, "--setgid", USER]);
    }
    command.args(["sh", "-c", script]);
    command.stdin(Stdio::null());
    command
}

fn status_line(process_1: Pid, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process_1}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
}

#[test]
fn term_ends_it_at_once_with_status_0() {
    let mut container = Recipe::new().option("--grace", "20000").idle();
    container.process_1();
    let start = Instant::now();
    container.signal(Signal::SIGTERM);
    let ended = container.end();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!((ended.code, ended.record().exit_code), (0, Some(0)), "{}", ended.stderr);
}

#[test]
fn other_signals_do_not_end_it() {
    let mut container = Recipe::new().idle();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGALRM] {
        container.signal(signal);
    }
    let process_1 = container.process_1();
    eventually("the signals are read", || {
        (status_line(process_1, "State:")? == "S (sleeping)").then_some(())
    });
    container.signal(Signal::SIGTERM);
    assert_eq!(container.end().code, 0);
}

#[test]
fn it_is_small() {
    let mut container = Recipe::new().idle();
    let process_1 = container.process_1();
    let resident: u64 = status_line(process_1, "VmRSS:").unwrap().trim_end_matches(" kB").parse().unwrap();
    // What is shipped is a quarter as big as a build for tests, whose relocations alone are a good part of this.
    let most = if cfg!(debug_assertions) { 5 << 10 } else { 4 << 10 };
    assert!(resident < most, "{resident} kB");
    container.signal(Signal::SIGTERM);
    container.end();
}

#[test]
fn what_an_exec_call_leaves_behind_is_adopted_and_reaped() {
    let mut container = Recipe::new().idle();
    let process_1 = container.process_1();
    let output = exec(process_1, "setsid sleep 1000 >/dev/null 2>&1 & echo $!")
        .output()
        .expect("nsenter of util-linux is needed");
    assert!(output.status.success());
    let children = || fs::read_to_string(format!("/proc/{process_1}/task/{process_1}/children")).unwrap();
    eventually("the orphan is adopted", || (!children().trim().is_empty()).then_some(()));
    let orphan = String::from_utf8(output.stdout).unwrap();
    assert!(exec(process_1, &format!("kill {orphan}")).status().unwrap().success());
    eventually("the orphan is reaped", || children().trim().is_empty().then_some(()));
    container.signal(Signal::SIGTERM);
    assert_eq!(container.end().code, 0);
}

#[test]
fn a_running_exec_call_gets_term_and_a_stubborn_one_is_killed() {
    for (trap, expected, at_least) in [("exit 7", Some(7), 0), ("", Some(137), 400)] {
        let mut container: Container = Recipe::new().option("--grace", "400").idle();
        let process_1 = container.process_1();
        let script = format!("trap '{trap}' TERM; echo ready; while :; do sleep 0.02; done");
        let mut call = exec(process_1, &script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(call.stdout.take().unwrap()), &mut line)
            .unwrap();
        let start = Instant::now();
        container.signal(Signal::SIGTERM);
        let ended = container.end();
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(at_least) && took < Duration::from_secs(3), "{took:?}");
        assert_eq!(ended.code, 0);
        // nsenter repeats how the call ended; a signal ends nsenter by the same signal.
        let status = call.wait().unwrap();
        let code =
            status.code().or_else(|| std::os::unix::process::ExitStatusExt::signal(&status).map(|s| 128 + s));
        assert_eq!(code, expected, "{trap:?}");
    }
}
